"""Which clips are drawn as one."""

from __future__ import annotations

import pandas as pd

from speechmix.evaluation.statistics.groups import assign_groups


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
