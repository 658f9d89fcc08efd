"""Which pairs become examples, what is counted, and what is drawn; on stages written by hand."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import soundfile

from speechmix.errors import InputError
from speechmix.runs.journal.stage_journal import run_stage
from speechmix.runs.journal.stage_lines import input_digest, read_kept_lines
from speechmix.studies.french import stage_counts
from speechmix.studies.french.cue_number_pairs import describe_confounded_numbers, find_cue_pair
from speechmix.studies.french.dataset import (
    SCHEMA,
    read_dataset_metadata,
    read_examples,
    write_examples,
)
from speechmix.studies.french.mining import MINING_VERSION
from speechmix.studies.french.pair_template import BALANCE_COLUMNS
from speechmix.studies.french.sampling import PairCandidate, draw_evenly, find_lone_pairs
from speechmix.studies.french.selection import balance_values, select_examples
from speechmix.studies.french.stage_counts import (
    SelectionCounts,
    draw_count_figure,
    format_stage_counts,
    read_selection_metadata,
)
from speechmix.studies.french.study_folder import PAIRS, TRANSCRIPTS, WORDS

pytest.importorskip("jiwer", reason="selection by transcript needs the extra speechmix[french]")

TEXTS = {"le": "oui le livre dort", "les": "oui les livres dorment"}


def pair(text, number):
    cue = text.index("le")
    target = text.index("livre")
    stop = target + len(text[target:].split()[0])
    known = {
        "template": "det_noun",
        "number": number,
        "person": "",
        "tense": "",
        "lemma": "livre",
        "differs": "number",
    }
    known |= {
        "cue": [cue, text.index(" ", cue)],
        "target": [target, stop],
        "foil": "livre" if number == "p" else "livres",
    }
    return {**known, "audible": True, "liaison": False, "distance": 1}


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path)


@pytest.fixture(scope="module")
def _selected_once(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("selected"))
    select_examples(folder)
    return folder


@pytest.fixture
def selected(_selected_once, tmp_path):
    """The folder of the study's examples, in a copy that a test may damage."""
    return shutil.copytree(_selected_once, tmp_path / "study") / "examples"


def write_study(tmp_path):
    """Twelve clips, two thirds singular; a model that is always right and one that misses three."""
    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(16_000) / 9) / 3, 16_000)
    names = [f"clip_{i:02}" for i in range(12)]
    number = {name: "p" if i % 3 == 0 else "s" for i, name in enumerate(names)}
    text = {name: TEXTS["les" if number[name] == "p" else "le"] for name in names}

    def mined(name):
        known = {
            "text": text[name],
            "language": "fr",
            "path": str(tmp_path / "a.wav"),
            "meta": {"age": "teens"},
        }
        return {**known, "pairs": [pair(text[name], number[name])]}

    def placed(name):
        words, start = [], 0
        for i, word in enumerate(text[name].split()):
            words.append([start, start + len(word), i / 5, (i + 1) / 5, 0.9])
            start += len(word) + 1
        doubts = ["it may not be what is said"] if name == "clip_11" else []
        return {"seconds": 1.0, "alignment": "ctc", "score": 0.9, "doubts": doubts, "words": words}

    def written(wrong):
        def work(name):
            transcript = (
                text[name].replace("livres", "livre") + " livres" if name in wrong else text[name]
            )
            tokens = [None, [0, 3], [3, 7], [7, 20]]
            return {"transcript": transcript, "errors": 0, "words": 4, "wer": 0.0, "tokens": tokens}

        return work

    run_stage(tmp_path / PAIRS, [(name, name) for name in names], mined, options={})
    pairs = input_digest(tmp_path / PAIRS, "text", "path")
    run_stage(
        tmp_path / WORDS,
        [(name, name) for name in names],
        placed,
        options={},
        inputs={"pairs": pairs},
    )
    for model, wrong in (("sure", ()), ("unsure", ("clip_00", "clip_03"))):
        items = [(name, name) for name in names]
        path, options = tmp_path / TRANSCRIPTS / f"{model}.jsonl", {"model": model}
        run_stage(path, items, written(wrong), options=options, inputs={"pairs": pairs})
    return tmp_path


def chosen(folder):
    return [clip.meta["pair"] for clip in read_examples(folder)]


def test_all_models_must_spell_both_words_right_at_their_places(study):
    """The misspelled transcripts hold "livres", elsewhere: membership would have kept them."""
    sure = set(chosen(select_examples(study, models=["sure"])))
    assert sure - set(chosen(select_examples(study))) == {"clip_00", "clip_03"}
    dropped = pd.read_csv(study / "examples" / "dropped.csv")
    assert dropped.why.value_counts().to_dict() == {
        "target misspelled by unsure": 2,
        "doubtful alignment": 1,
    }
    models = pd.read_csv(study / "examples" / "models.csv").set_index("model")
    assert models.both_right.to_dict() == {"sure": 100.0, "unsure": 81.8}


def test_doubtful_clips_are_kept_on_request(study):
    assert "clip_11" in chosen(select_examples(study, keep_doubtful=True))


def test_balance_is_drawn_by_name_and_seed(study):
    balanced = select_examples(study, models=["sure"], balance=["number"])
    table = pd.read_csv(balanced / "examples.csv")
    assert table["count"].tolist() == [4, 4]
    first = chosen(balanced)
    assert first == chosen(select_examples(study, models=["sure"], balance=["number"]))
    assert first != chosen(select_examples(study, models=["sure"], balance=["number"], seed=1))
    assert (
        len(chosen(select_examples(study, models=["sure"], balance=["number"], max_examples=2)))
        == 4
    )
    assert len(chosen(select_examples(study, models=["sure"], max_examples=2))) == 2
    with pytest.raises(InputError, match="balance takes number"):
        select_examples(study, balance=["age"])


def test_counts_add_up(study, monkeypatch):
    monkeypatch.setattr(stage_counts, "draw_count_figure", draw_count_figure)
    table = pd.read_csv(select_examples(study) / "counts.csv")
    mined = table[(table.stage == "mine") & (table.unit == "pairs") & (table.outcome == "kept")][
        "count"
    ].sum()
    assert table[table.stage == "select"]["count"].sum() == mined == 12
    assert (study / "examples" / "counts.png").stat().st_size > 10_000


def test_error_rates_are_of_all_transcribed_clips_chosen_or_not(study):
    facts = read_selection_metadata(select_examples(study))
    assert ["mine", "clips", "kept", 12] in facts["stages"]
    models = {row["model"]: row for row in facts["models"]}
    assert {row["transcribed_clips"] for row in models.values()} == {12}
    rates = [row["transcribed_cer_percent"] for row in models.values()]
    assert min(rates) == 0  # of the model that is always right
    assert max(rates) > 0  # of the one that misses three, none of which is an example
    assert read_selection_metadata(study) == {}


def test_the_data_set_says_where_cue_and_target_are(selected):
    import datasets
    import pyarrow.parquet as pq

    folder = selected
    data = datasets.load_from_disk(folder / "dataset")
    table = pq.read_table(folder / "examples.parquet")
    assert data.column_names == table.column_names == SCHEMA.names
    assert table.schema.remove_metadata() == SCHEMA
    one = data[0]
    assert (one["text"], one["cue_word"], one["target_word"], one["foil"]) == (
        TEXTS["le"],
        "le",
        "livre",
        "livres",
    )
    assert [word["text"] for word in one["words"]][one["cue"] : one["target"] + 1] == [
        "le",
        "livre",
    ]
    assert [m["model"] for m in one["models"]] == ["sure", "unsure"]
    assert (one["models"][0]["cue_columns"], one["models"][0]["target_rows"]) == ([2], [2])
    made = json.loads(table.schema.metadata[b"speechmix"])
    assert made == read_dataset_metadata(folder) == json.loads(data.info.description)
    assert made["select"]["models"] == ["sure", "unsure"]
    assert set(made["stages"]) == {"pairs", "words", "sure", "unsure"}
    assert made["versions"]["speechmix"]


def test_clips_of_the_data_set(study, tmp_path):
    folder = select_examples(study)
    clip = read_examples(folder)[0]
    assert (clip.words[clip.cue].text, clip.words[clip.target].text, clip.foil) == (
        "le",
        "livre",
        "livres",
    )
    assert (clip.alignment, clip.meta["number"], clip.meta["age"], clip.language) == (
        "ctc",
        "s",
        "teens",
        "fr",
    )
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (study / "a.wav").rename(moved / "a.wav")
    with pytest.raises(InputError, match="no such audio file"):
        read_examples(folder)
    skipped = []
    assert read_examples(folder, skipped=skipped) == []
    assert len(skipped) == 9
    assert len(read_examples(folder, audio_root=moved)) == 9


def test_a_data_set_is_replaced_whole_or_not_at_all(study):
    folder = select_examples(study)
    before = (folder / "examples.parquet").read_bytes()

    def breaks():
        yield from ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_examples(folder, breaks(), {})
    assert (folder / "examples.parquet").read_bytes() == before
    assert (select_examples(study) / "examples.parquet").read_bytes() == before


def test_no_byte_of_a_data_set_can_change_unnoticed(selected):
    folder = selected
    path = folder / "examples.parquet"
    data, before = path.read_bytes(), _answers(folder)
    for place in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(
            InputError
        ):  # what is not read (the schema's description, statistics) has no weight
            assert _answers(folder) == before, place


def _answers(folder):
    return [
        (clip.name, clip.text, clip.words, clip.cue, clip.target, clip.foil, clip.meta)
        for clip in read_examples(folder)
    ]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"audio_root": 3}', b"{}"]
)
def test_a_damaged_description_is_named(selected, content):
    folder = selected
    (folder / "about.json").write_bytes(content)
    with pytest.raises(InputError, match=r"about\.json"):
        read_examples(folder)


def test_a_table_that_is_no_data_set_is_named(selected):
    folder = selected
    for content in (b"", b"PAR1 half of it", None):
        if content is None:
            pd.DataFrame({"name": ["a"]}).to_parquet(folder / "examples.parquet")
        else:
            (folder / "examples.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"examples\.parquet: expected"):
            read_examples(folder)


def test_transcripts_of_other_pairs_are_refused(study):
    other = [
        {**line, "text": line["text"].replace("dort", "ment")}
        for line in read_kept_lines(study / PAIRS)
    ]
    (study / PAIRS).unlink()
    run_stage(study / PAIRS, [(line["key"], line) for line in other], lambda line: line, options={})
    with pytest.raises(InputError, match="belong to other pairs"):
        select_examples(study)


def test_missing_stages_are_named(tmp_path, study):
    with pytest.raises(
        InputError, match="no transcripts of other: there are those of sure, unsure"
    ):
        select_examples(study, models=["other"])
    with pytest.raises(InputError, match="transcribe first"):
        select_examples(tmp_path / "empty")


def test_the_figure_has_a_panel_for_each_stage(selected):
    figure = draw_count_figure(SelectionCounts(selected.parent, []).stage_table())
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "mine: clips",
        "mine: pairs",
        "align: clips",
    ]


def kinds_of(study, *kinds):
    """Give the pairs of the study's clips, in their order, other kinds: (contrast, number, audible,
    liaison)."""
    lines = [
        line for line in (study / PAIRS).read_text(encoding="utf-8").splitlines() if '"key"' in line
    ]
    mined = {json.loads(line)["key"]: json.loads(line) for line in lines}
    for line, (contrast, number, audible, liaison) in zip(
        mined.values(), kinds * len(mined), strict=False
    ):
        line["pairs"][0] |= {
            "contrast": contrast,
            "number": number,
            "audible": audible,
            "liaison": liaison,
        }
    (study / PAIRS).unlink()
    templates = [{"name": "det_noun", "contrasts": ["number"]}]
    options = {"templates": templates, "rules": MINING_VERSION}
    run_stage(study / PAIRS, [(key, key) for key in mined], lambda key: mined[key], options=options)


def test_contrasts_are_a_filter_that_the_template_sets(study):
    kinds_of(study, ("number", "s", True, False), ("person", "s", True, False))
    assert {clip.meta["contrast"] for clip in read_examples(select_examples(study, models=[]))} == {
        "number"
    }
    for asked, expected in ((["person"], {"person"}), ([], {"number", "person"})):
        folder = select_examples(study, models=[], contrasts=asked)
        assert {clip.meta["contrast"] for clip in read_examples(folder)} == expected
    with pytest.raises(InputError, match="contrasts are number,"):
        select_examples(study, models=[], contrasts=["gender"])


def test_what_is_audible_is_balanced_between_numbers(study):
    kinds_of(
        study,
        *[("number", "s", True, False)] * 3,
        ("number", "p", True, False),
        ("number", "p", True, True),
    )
    clips = read_examples(select_examples(study, models=[], audible_only=True))
    numbers = [clip.meta["number"] for clip in clips]
    assert numbers.count("s") == numbers.count("p") > 0
    assert {clip.meta["liaison"] for clip in clips} == {"False"}


def test_pairs_of_other_rules_are_refused(study):
    kinds_of(study, ("number", "s", True, False))
    text = (study / PAIRS).read_text(encoding="utf-8").splitlines()
    options = {"templates": [{"name": "det_noun"}], "rules": MINING_VERSION - 1}
    mined = [json.loads(line) for line in text if '"key"' in line]
    (study / PAIRS).unlink()
    run_stage(
        study / PAIRS, [(line["key"], line) for line in mined], lambda line: line, options=options
    )
    with pytest.raises(InputError, match=r"rules of another release.*mine again"):
        select_examples(study, models=[])


def test_a_target_without_a_contrast_is_a_control(study):
    kinds_of(study, ("invariant", "s", True, False))
    clips = read_examples(select_examples(study, models=[], contrasts=[]))
    assert {clip.meta["control"] for clip in clips} == {"yes"}


def test_columns_to_balance_by():
    example = {
        "contrast": "number",
        "number": "s",
        "distance": 5,
        "position": "end",
        "attractor": True,
        "numeral": False,
    }
    values = balance_values(example)
    assert [values[name] for name in ("distance", "position", "attractor", "numeral")] == [
        "3+",
        "end",
        "True",
        "False",
    ]
    assert set(values) == set(BALANCE_COLUMNS)


def test_balance_by_cue_pair_leaves_out_a_cue_that_has_no_plural():
    cues = (
        [("on", "s")] * 20
        + [("il", "s")] * 5
        + [("ils", "p")] * 3
        + [("elles", "p")] * 4
        + [("elle", "s")] * 2
    )
    of = [
        PairCandidate(
            f"{i}.v.0-3",
            "v",
            {"contrast": "number", "number": number, "cue_pair": find_cue_pair(cue)},
        )
        for i, (cue, number) in enumerate(cues)
    ]
    names = draw_evenly(of, ["number", "cue_pair"], None, 0)
    assert Counter(cues[int(name.split(".")[0])][0] for name in names) == {
        "il": 3,
        "ils": 3,
        "elle": 2,
        "elles": 2,
    }


def test_a_cue_word_that_stands_for_a_number_is_named(tmp_path):
    columns = ["template", "number", "cue", "audible", "liaison", "count"]
    on = [
        ("v", "s", "on", 80),
        ("v", "s", "elle", 20),
        ("v", "p", "ils", 50),
        ("v", "p", "elles", 50),
    ]
    pairs = [
        ("d", "s", "le", 90),
        ("d", "s", "un", 10),
        ("d", "p", "les", 80),
        ("d", "p", "des", 20),
    ]
    table = pd.DataFrame(
        [(*row[:3], True, False, row[3]) for row in (*on, *pairs)], columns=columns
    )
    (sentence,) = describe_confounded_numbers(table)
    assert sentence.startswith(
        'v: 80 % of the singulars have the cue "on", and 0 % of the other number'
    )
    for name in ("counts", "models"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    table.to_csv(tmp_path / "examples.csv", index=False)
    assert sentence in format_stage_counts(tmp_path)


def test_only_pairs_that_are_alone_in_their_sentence(study):
    lines = [json.loads(line) for line in (study / PAIRS).read_text(encoding="utf-8").splitlines()]
    assert find_lone_pairs(["a.d.0-3", "a.v.9-12", "b.d.0-3"]) == {"b.d.0-3"}
    alone = select_examples(study, models=[], one_pair_per_sentence=True)
    assert read_dataset_metadata(alone)["select"]["one_pair_per_sentence"] is True
    assert (
        len(chosen(alone)) == len([line for line in lines if len(line.get("pairs", ())) == 1]) - 1
    )  # one is doubted


def test_the_documented_row_has_the_schema_and_every_column_is_explained():
    folder = Path(__file__).resolve().parents[2] / "data_templates" / "annotated"
    row = json.loads((folder / "example.json").read_text(encoding="utf-8"))
    assert list(row) == SCHEMA.names
    assert pa.Table.from_pylist([row], schema=SCHEMA).to_pylist() == [row]
    assert all(row["text"][word["from"] : word["to"]] == word["text"] for word in row["words"])
    explained = (folder / "README.md").read_text(encoding="utf-8")
    assert [name for name in SCHEMA.names if f"`{name}`" not in explained] == []
