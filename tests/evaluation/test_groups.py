"""Which clips are drawn as one."""

from __future__ import annotations

import pandas as pd
import pytest

import speechmix
from speechmix.evaluation.statistics.groups import (
    assign_groups,
    describe_groups,
    describe_item_groups,
)


def clips(**columns):
    count = len(next(iter(columns.values())))
    return pd.DataFrame({"clip": [f"c{i}" for i in range(count)], **columns})


def test_pair_sentence_and_lemma_tie_and_ties_join():
    table = clips(
        pair=["1", "1", "2", "", "", "", "", ""],
        text=["a", "b", "c", "c", "d", "e", "f", "g"],
        lemma=["x", "x", "y", "z", "z", "u", "v", "w"],
    )
    groups, said = assign_groups(table)
    assert groups.tolist() == ["c0", "c0", "c2", "c2", "c2", "c5", "c6", "c7"]
    assert said == "the pair or the sentence or the target word"


def test_both_spellings_are_one_word_in_whichever_order():
    table = clips(
        text=list("abcdefg"),
        target=["livre", "Livres", "chat", "chien", "loup", "ours", "lion"],
        foil=["livres", "livre", "", "", "", "", ""],
    )
    groups, said = assign_groups(table)
    assert groups.tolist()[:3] == ["c0", "c0", "c2"]
    assert said == "the target word"


def test_a_study_of_one_word_is_not_one_group():
    groups, said = assign_groups(clips(text=[f"t{i}" for i in range(20)], target=["livres"] * 20))
    assert groups.nunique() == 20
    assert said == ""


def test_pairs_stay_together_however_few():
    groups, said = assign_groups(
        clips(pair=["1", "1", "2", "2"], text=list("abcd"), target=["x"] * 4)
    )
    assert groups.tolist() == ["c0", "c0", "c2", "c2"]
    assert said == "the pair"


def test_nothing_known_is_nothing_shared():
    assert assign_groups(clips(text=["", "", ""]))[0].tolist() == ["c0", "c1", "c2"]
    assert assign_groups(clips(text=["", None]))[1] == ""


PAIRS = [str(index // 2) for index in range(12)]  # six pairs


def describe(group=None, *, names=None, **columns):
    table = clips(**columns)
    groups, ties = assign_groups(table, group)
    return describe_groups(table.assign(group=groups), ties, names=names)


@pytest.mark.parametrize("column", ["speaker", "speaker_id", "client_id"])
def test_fewer_speakers_than_groups_are_the_groups(column):
    table = clips(pair=PAIRS, **{column: ["a"] * 4 + ["b"] * 8})
    groups, ties = assign_groups(table)
    assert groups.tolist() == ["c0"] * 4 + ["c4"] * 8
    assert ties == "the speaker"


def test_as_many_speakers_as_groups_change_nothing():
    table = clips(pair=PAIRS, client_id=[f"s{index}" for index in range(12)])
    groups, ties = assign_groups(table)
    assert (groups.nunique(), ties) == (6, "the pair")


def test_the_first_column_with_a_value_names_the_speakers():
    table = clips(pair=PAIRS, speaker=[None, ""] * 6, client_id=["a"] * 6 + ["b"] * 6)
    assert assign_groups(table)[0].nunique() == 2
    table = clips(pair=PAIRS, speaker=["a", "b", "c"] * 4, client_id=["a"] * 6 + ["b"] * 6)
    assert assign_groups(table)[0].nunique() == 3


def test_one_speaker_makes_no_group_of_all_clips():
    table = clips(pair=PAIRS, speaker=["anne"] * 12)
    groups, ties = assign_groups(table)
    assert (groups.nunique(), ties) == (6, "the pair")


def test_clips_without_a_speaker_count_as_one_speaker():
    table = clips(pair=PAIRS, speaker=["a"] * 4 + ["b"] * 4 + [None, "", " ", float("nan")])
    groups, _ = assign_groups(table)
    assert groups.tolist() == ["c0"] * 4 + ["c4"] * 4 + ["c8"] * 4


@pytest.mark.parametrize(
    ("speaker_count", "sentence_count", "ties"), [(6, 9, "the speaker"), (9, 6, "the sentence")]
)
def test_of_speakers_who_read_the_same_sentences_the_coarser_are_groups(
    speaker_count, sentence_count, ties
):
    count = speaker_count * sentence_count
    speakers = [f"s{index % speaker_count}" for index in range(count)]
    sentences = [f"t{index // speaker_count}" for index in range(count)]
    groups, found = assign_groups(clips(speaker=speakers, text=sentences))
    assert (groups.nunique(), found) == (6, ties)
    other = "sentences" if ties == "the speaker" else "speakers"
    text = describe(speaker=speakers, text=sentences)
    assert text.endswith(f"{speaker_count} speakers: no statement about other {other}.")


def test_a_column_that_is_named_decides():
    table = clips(pair=PAIRS, speaker=["a"] * 6 + ["b"] * 6, session=["1", "2", None] * 4)
    groups, ties = assign_groups(table, "session")
    assert (groups.nunique(), ties) == (3, "the session")


def test_names_and_order_of_clips_do_not_matter():
    table = clips(pair=PAIRS, speaker=list("abcdcbadabcd"))
    renamed = table.assign(clip=[f"x{index}" for index in range(12)]).iloc[::-1]
    first, second = (
        frame.groupby(assign_groups(frame)[0].to_numpy()).speaker.unique().map(list).tolist()
        for frame in (table, renamed)
    )
    assert sorted(first) == sorted(second) == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"text": ["one"]}, "1 clip, speakers unknown."),
        ({"text": ["", ""]}, "2 clips, each a group, speakers unknown."),
        ({"pair": PAIRS}, "12 clips in 6 groups (same pair), speakers unknown."),
        (
            {"pair": PAIRS, "speaker": ["anne"] * 12},
            "12 clips in 6 groups (same pair), 1 speaker: no statement about other speakers.",
        ),
        (
            {"pair": PAIRS, "speaker": ["a"] * 4 + ["b"] * 8},
            "12 clips in 2 groups (same speaker), 2 speakers.",
        ),
        (
            {"pair": PAIRS, "speaker": ["a"] * 4 + ["b"] * 4 + [""] * 4},
            "12 clips in 3 groups (same speaker), 2 speakers and 4 clips without one (counted as one "
            "speaker).",
        ),
        (
            {"text": [f"t{index}" for index in range(12)], "target": ["livre"] * 12},
            "12 clips, each a group, speakers unknown: no statement about other target words.",
        ),
        (
            {"pair": PAIRS, "speaker": list("abcdefabcdef"), "group": "clip"},
            "12 clips in 12 groups (same clip), 6 speakers: no statement about other speakers or "
            "pairs.",
        ),
        (
            {"pair": PAIRS, "speaker": ["a"] * 6 + ["b"] * 6, "names": ["c0", "c1", "c11"]},
            "3 clips in 2 groups (same speaker), 2 speakers.",
        ),
    ],
)
def test_a_sentence_says_how_many_groups_and_speakers_there_are(columns, text):
    assert describe(**columns) == text


def test_sentences_and_clips_are_described_alike():
    items = [
        speechmix.Sentence(f"the cats sleep {index}", meta={"pair": "p"}) for index in range(2)
    ]
    text = "2 texts in 1 group (same pair), speakers unknown."
    assert describe_item_groups(items, noun="text") == text
