"""A cue in two parts, named by a corpus: its characters in the study's files, and one word of the
examples' clips."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from speechmix.inputs.formats.word_files import read_words
from speechmix.runs.journal.stage_lines import lines
from speechmix.studies.french.dataset import SCHEMA, read_examples, write_examples
from speechmix.studies.french.selection import make_example_row
from speechmix.studies.french.stages import align_corpus, mine_corpus

TEXT = "Il ne mange pas."
TIMES = [["Il", 0.1, 0.2], ["ne", 0.2, 0.3], ["mange", 0.3, 0.6], ["pas", 0.6, 0.8]]


def mined(folder, words, cue="ne ... pas", target="mange"):
    import json

    soundfile.write(
        folder / "a.wav", np.random.default_rng(0).normal(scale=0.1, size=16_000), 16_000
    )
    row = {
        "path": "a.wav",
        "text": TEXT,
        "cue": cue,
        "target": target,
        "foil": "manges",
        "number": "s",
    }
    (folder / "m.jsonl").write_text(json.dumps({**row, **words}), encoding="utf-8")
    (line,) = lines(mine_corpus(folder / "m.jsonl", folder / "study"))
    return line


@pytest.mark.parametrize("words", [{}, {"words": TIMES}], ids=["text alone", "word times"])
def test_a_pair_has_the_characters_of_both_parts(tmp_path, words):
    (pair,) = mined(tmp_path, words)["pairs"]
    assert (pair["cue"], pair["further_cues"], pair["target"]) == ([3, 5], [[12, 15]], [6, 11])
    assert (pair["cue_form"], pair["joined_cue"]) == ("ne … pas", True)


def test_a_cue_of_two_words_is_none_in_two_parts(tmp_path):
    (pair,) = mined(tmp_path, {}, cue="ne pas")["pairs"]
    assert (pair["cue_form"], pair["further_cues"], "joined_cue" in pair) == (
        "ne pas",
        [[12, 15]],
        False,
    )


@pytest.mark.parametrize(("cue", "target"), [("Il", "ne ... pas"), (["ne ... pas", "Il"], "mange")])
def test_what_the_study_does_not_take(tmp_path, cue, target):
    line = mined(tmp_path, {"words": TIMES}, cue, target)
    assert (line["why"], "only the cue may be in several parts" in line["reason"]) == (
        "pair not found",
        True,
    )


@pytest.mark.parametrize(
    ("cue", "target", "expected"), [("ne ... pas", "mange", 1), ("Il ... mange", "pas", 0)]
)
def test_an_examples_clip_has_one_word_for_it(tmp_path, cue, target, expected):
    line = mined(tmp_path, {"words": TIMES}, cue, target)
    (placed,) = lines(align_corpus(tmp_path / "study"))
    example = make_example_row({**line, **placed}, line["pairs"][0])
    parts = cue.split(" ... ")
    assert [example["words"][i]["text"] for i in example["cue_indices"]] == parts
    absent = {name: None for name in SCHEMA.names if name not in example}
    about = {"audio_root": str(tmp_path)}
    folder = write_examples(tmp_path / "examples", [{**absent, **example, "audio": "a.wav"}], about)
    (clip,) = read_examples(folder)
    assert (clip.words[clip.cue].text, clip.cue, clip.words[clip.target].text) == (
        " … ".join(parts),
        expected,
        target,
    )
    assert len(clip.words[clip.cue].pieces) == 2
    assert [word.text for word in read_words(next((tmp_path / "study").rglob("*.TextGrid")))] == [
        "Il",
        "ne",
        "mange",
        "pas",
    ]


def test_words_with_something_cut_out_are_left_out_of_the_study_with_a_reason(tmp_path):
    words = [
        ["Il", 0.1, 0.2],
        ["ne", 0.2, 0.3],
        ["mange", [[0.3, 0.4], [0.5, 0.6]]],
        ["pas", 0.6, 0.8],
    ]
    mined(tmp_path, {"words": words}, cue="Il")
    (line,) = lines(align_corpus(tmp_path / "study"))
    assert "expected words in one piece, found 'mange' in 2" in line["reason"]
