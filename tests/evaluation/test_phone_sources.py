"""Sources of phones: a planted model that takes from the next phone, one that ignores the sound, and
what must not depend on order, names and duplicates."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import transformers

import speechmix
from speechmix.errors import InputError, MissingExtraError
from speechmix.evaluation.statistics.random_twin_comparison import WHOLE_STACK
from speechmix.extensions.phones.phone_sources import SOURCES, phone_shares
from speechmix.extensions.planted.case_table import CASES, Case
from speechmix.extensions.planted.hand_set_models import FAMILIES
from speechmix.extensions.planted.hand_set_weights import Head
from speechmix.extensions.planted.planting import plant
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.mixing.maps.numerics import STRENGTH_FLOOR

# Position 0 of a planted model is empty; 1 to 7 are the phones of four words.
PHONES, WORD_LENGTHS = "l ɛ z a m i s".split(), (2, 2, 2, 1)
FRAME_SECONDS = 11 / 16_000  # eleven samples spell one position
NEXT = {position: (position + 1,) for position in range(1, 7)}
ASSIMILATION = Case(
    "assimilation",
    1,
    "each position takes the content of the next",
    heads=((0, Head(NEXT, "content", "carried", gain=2.0)),),
    edges=tuple((0, target, *sources) for target, sources in NEXT.items()),
)


@functools.cache
def planted_model(case: str, seed: int):
    CASES["assimilation"] = ASSIMILATION
    try:
        planted = plant(case, family="wav2vec2", seed=seed, rotation_seed=seed, noise=0.002)
    finally:
        del CASES["assimilation"]
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=False)
    return speechmix.load(planted.model.module, processor=extractor, check=False, device="cpu")


def make_clip(seed: int, **changes):
    """A clip whose positions have random contents."""
    random = np.random.default_rng(seed)
    contents = {"encoder": [0, *random.choice([-1, 1], len(PHONES))]}
    edges = FRAME_SECONDS * np.arange(1, len(PHONES) + 2)
    word_edges = edges[np.cumsum([0, *WORD_LENGTHS])]
    words = [(f"w{index}", *times) for index, times in enumerate(itertools.pairwise(word_edges))]
    options = {"name": f"clip{seed}", "text": f"sentence {seed}", "words": words} | changes
    return speechmix.Clip.from_array(
        FAMILIES["wav2vec2"].prepare(contents)["input_values"][0].numpy(),
        16_000,
        tiers={"phone": list(zip(PHONES, edges[:-1], edges[1:], strict=True))},
        **options,
    )


@functools.cache
def assimilated():
    """Sources in the model that takes from the next phone, over nine clips."""
    clips = [make_clip(seed) for seed in range(9)]
    return speechmix.phone_sources(planted_model("assimilation", 100), clips, by=())


def shares_of(result, layer: int) -> pd.Series:
    rows = result.shares[result.shares["layer"] == layer]
    return rows.set_index("source")["share"]


def test_the_next_phone_is_found_where_it_was_planted_and_nowhere_else():
    result = assimilated()
    for layer in (0, 1, 2):
        shares = shares_of(result, layer)
        assert shares.sum() == pytest.approx(100, abs=1e-4)
        if layer == 1:  # the last phone has no next one
            assert shares["next"] > 75
            assert shares["self"] == pytest.approx(100 / 7, abs=5)
        else:
            assert shares["self"] > 95
        assert shares[["previous", "same_word", "other_words"]].sum() < 4
    # By position: a word's last phone takes from another word, and is counted there as next, too.
    phones = result.table[(result.table["layer"] == 1) & (result.table["phone"] != "s")]
    assert phones.groupby("position")["next"].min().min() > 0.9
    assert set(phones["position"]) == {"initial", "final"}


@pytest.mark.long
def test_only_the_planted_share_is_claimed_against_models_without_it():
    twins = [planted_model("residual", seed) for seed in range(9)]
    clips = [make_clip(seed) for seed in range(16)]  # two of them in one group
    found = speechmix.phone_sources(planted_model("assimilation", 100), clips, twins=twins, by=())
    claims = found.shares[found.shares["claim"] != ""]
    assert set(claims["layer"]) == {WHOLE_STACK}
    assert dict(zip(claims["source"], claims["claim"], strict=True)) == {
        "next": "more",  # shares sum to 100 %, so all others lose
        **dict.fromkeys(("self", "previous", "other_words"), "less"),
    }
    # One of the models without it, in the place of the trained one; and one that reads no value.
    null = speechmix.phone_sources(planted_model("residual", 99), clips, twins=twins, by=())
    assert (null.shares["claim"] == "").all()
    idle = speechmix.phone_sources(planted_model("nothing", 5), clips, twins=twins, by=())
    assert (idle.shares["claim"] == "").all()
    assert (idle.shares["mixing_strength"] < STRENGTH_FLOOR).all()


def test_shares_are_sums_of_the_map():
    units = [
        Span(i, i + 1, phone, "phone", None, i / 10, (i + 1) / 10)
        for i, phone in enumerate("abcdefg")
    ]
    scores = np.random.default_rng(3).random((2, 7, 7))
    words = [("ab", 0.0, 0.2), ("cdef", 0.2, 0.6)]  # g is in no word
    clip = speechmix.Clip.from_array(np.zeros(16_000), 16_000, words=words, target=1)
    table = phone_shares(
        MixingMap(scores, tuple(units), tuple(units), "attention", "encoder", (0, 4)), clip
    )
    word_by_phone = [0, 0, 1, 1, 1, 1, 2]
    for row in table.to_dict("records"):
        i, layer = row["index"], {0: 0, 4: 1}[row["layer"]]
        expected = dict.fromkeys(SOURCES, 0.0)
        for j, score in enumerate(scores[layer, i] / scores[layer, i].sum()):
            is_same = word_by_phone[j] == word_by_phone[i]
            near = {0: "self", -1: "previous", 1: "next"}.get(j - i)
            expected[near or ("same_word" if is_same else "other_words")] += score
        assert {name: row[name] for name in SOURCES} == pytest.approx(expected)
    first = table[table["layer"] == 0]
    assert first["position"].tolist() == [
        *("initial final".split()),
        "initial",
        *["medial"] * 2,
        "final",
        "",
    ]
    assert first["role"].tolist() == ["", "", *["target"] * 4, ""]
    assert first["word"].isna().tolist() == [False] * 6 + [True]


def test_order_and_names_of_clips_change_nothing_and_duplicates_do_not_narrow():
    clips = [make_clip(seed) for seed in range(9)]
    model, original = planted_model("assimilation", 100), assimilated()
    renamed = [clip.with_name("same") for clip in clips[::-1]]
    again = speechmix.phone_sources(model, renamed, by=())
    columns = ["share", "low", "high"]
    assert np.allclose(
        original.shares[columns], again.shares[columns], rtol=0, atol=1e-9, equal_nan=True
    )
    assert again.table["clip"].nunique() == 9
    for text in ("as it is", None):
        originals = [clip.replace(text=clip.text if text else None) for clip in clips[:8]]
        once = speechmix.phone_sources(model, originals, by=(), layers=[1])
        twice = speechmix.phone_sources(model, originals * 2, by=(), layers=[1])
        assert np.allclose(
            once.shares[columns], twice.shares[columns], rtol=0, atol=1e-9, equal_nan=True
        )
        assert twice.shares["clips"].max() == 16


def test_levels_come_from_phones_and_from_the_columns_of_clips():
    clips = [make_clip(seed, meta={"condition": "ab"[seed % 2]}, target=1) for seed in range(2)]
    model = planted_model("assimilation", 100)
    result = speechmix.phone_sources(
        model, clips, by=["condition", "position"], where={"role": "target"}, layers=[1]
    )
    assert result.shares.groupby(["condition", "position"])["phones"].max().tolist() == [1, 1, 1, 1]
    assert result.shares["low"].isna().all()  # two groups: no interval
    again = result.average(by="position", where={"condition": "a"})
    called = speechmix.phone_sources(
        model, clips, by="position", where={"condition": "a"}, layers=[1]
    )
    pd.testing.assert_frame_equal(again.shares, called.shares)
    assert again.provenance == called.provenance
    assert again.shares["position"].unique().tolist() == ["initial", "final", "single"]  # in time
    assert (
        again.skipped
        == called.skipped
        == (("clip1", "clip 'clip1' has no phone with {'condition': 'a'}"),)
    )
    with pytest.raises(InputError, match="no column 'speaker'"):
        speechmix.phone_sources(model, clips, by="speaker")
    with pytest.raises(InputError, match="no phone with"):
        speechmix.phone_sources(model, clips, by=(), where={"position": "middle"})
    with pytest.raises(InputError, match="no clip can be used: none"):
        speechmix.phone_sources(model, [])
    result = speechmix.phone_sources(
        model, [clips[0], clips[1].replace(tiers={})], by=(), layers=[1]
    )
    assert result.skipped[0][0] == "clip1"
    assert "has no phones" in result.skipped[0][1]
    with pytest.raises(InputError, match="has phones, but no words"):
        speechmix.phone_sources(model, [clips[0].replace(words=None, target=None)], by=())


def test_a_symbol_that_is_no_ipa_is_named_with_its_clip_and_time():
    pytest.importorskip("panphon", reason="the extra `phones` is not installed")
    clip, model = make_clip(0), planted_model("assimilation", 100)
    phones = [(p.text.replace("z", "8"), p.start, p.end) for p in clip.tiers["phone"]]
    with pytest.raises(InputError, match=r"clip 'clip0', 0\.00 s: '8': no IPA symbol '8' is known"):
        speechmix.phone_sources(model, [clip.replace(tiers={"phone": phones})])
    result = speechmix.phone_sources(model, [clip], layers=[1])
    assert result.shares["phone_class"].unique().tolist() == [
        *("approximant fricative nasal vowel".split())
    ]
    axes = result.show().axes
    assert [ax.get_title().split("\n")[0] for ax in axes] == result.shares[
        "phone_class"
    ].unique().tolist()
    with pytest.raises(InputError, match="level should be one of"):
        result.plot(level="tone")


def test_a_missing_extra_is_an_error_and_no_reason_to_skip(monkeypatch):
    def refuse(label, where=""):
        raise MissingExtraError("panphon", "phones", "classes of phones")

    monkeypatch.setattr("speechmix.extensions.phones.phone_sources.phone_class", refuse)
    with pytest.raises(MissingExtraError):
        speechmix.phone_sources(planted_model("assimilation", 100), [make_clip(0)], layers=[1])
