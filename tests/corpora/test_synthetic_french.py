"""The corpus keeps its promise: nothing but the cue tells a pair's members apart."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.errors import InputError
from speechmix.extensions.synthetic_french.synthetic_corpus import (
    SAMPLE_RATE,
    SIDES,
    TEMPLATES,
    PairText,
    invariant_nouns,
    random_pair,
    random_pair_text,
    speak_pair,
    speak_pairs,
    split_nouns,
    split_voices,
)
from speechmix.inputs.bundled import clips


@pytest.fixture(scope="module")
def spoken():
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    return list(speak_pairs(40, seed=3, control=0.2))


def _assert_shared(singular, plural, side, sample_rate=SAMPLE_RATE):
    """Take (audio, words, cue, target) of both members: equal, bit for bit, on the target's side of
    the joint."""
    starts = [
        round(words[target if side == "left" else cue].start * sample_rate)
        for _, words, cue, target in (singular, plural)
    ]
    first, second = singular[0], plural[0]
    assert len(first) == len(second)
    assert starts[0] == starts[1] > 0
    shared = slice(starts[0], None) if side == "left" else slice(0, starts[0])
    own = slice(0, starts[0]) if side == "left" else slice(starts[0], None)
    assert np.array_equal(first[shared], second[shared])
    assert np.abs(first[shared]).max() > 0.02  # something is said there
    assert not np.array_equal(first[own], second[own])


def test_pairs_are_bit_identical_but_for_the_cue(spoken):
    for members in spoken:
        parts = [(each.audio, each.words, each.cue, each.target) for each in members]
        _assert_shared(*parts, members[0].side)


def test_bundled_clips_are_bit_identical_but_for_the_cue():
    by_pair: dict[str, list] = {}
    for clip in clips():
        by_pair.setdefault(clip.meta["pair"], []).append(clip)
    assert len(by_pair) >= 24
    for singular, plural in by_pair.values():
        assert (singular.meta["number"], plural.meta["number"]) == ("sg", "pl")
        assert (singular.text, plural.text) == (
            plural.meta["other_text"],
            singular.meta["other_text"],
        )
        _assert_shared(
            *[(each.audio(), each.words, each.cue, each.target) for each in (singular, plural)],
            singular.meta["side"],
        )


def test_bundled_clips_cover_what_they_should():
    meta = [clip.meta for clip in clips()]
    assert {each["side"] for each in meta} == set(SIDES)
    assert {each["template"] for each in meta} == {
        name for names in TEMPLATES.values() for name in names
    }
    assert {each["voice"] for each in meta} <= set(split_voices("test"))
    assert {each["noun"] for each in meta if each["control"] == "no"} <= set(split_nouns("train"))
    assert {each["noun"] for each in meta if each["control"] == "yes"} <= set(invariant_nouns())


def test_members_share_every_word_time_on_the_shared_side(spoken):
    for singular, plural in spoken:
        first = slice(singular.target, None) if singular.side == "left" else slice(0, singular.cue)
        for one, other in zip(singular.words[first], plural.words[first], strict=True):
            assert (one.start, one.end) == pytest.approx((other.start, other.end), abs=1e-9)


def test_same_seed_same_bits_and_any_order(spoken):
    again = random_pair(7, seed=3, control=0.2)
    for one, other in zip(again, spoken[7], strict=True):
        assert one.text == other.text
        assert np.array_equal(one.audio, other.audio)
    assert not np.array_equal(random_pair(7, seed=4)[0].audio[:4000], spoken[7][0].audio[:4000])


def test_word_times_are_plausible(spoken):
    for example in (each for pair in spoken for each in pair):
        assert [word.text for word in example.words] == example.text.split()
        edges = [edge for word in example.words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert edges[0] > 0.05
        assert edges[-1] <= len(example.audio) / SAMPLE_RATE
        assert all(0.02 < word.end - word.start < 1.2 for word in example.words)
        peak = np.abs(example.audio).max()
        assert 0.15 < peak <= 1
        silence = example.audio[: round(0.04 * SAMPLE_RATE)]
        assert np.abs(silence).max() < 0.2 * peak


def test_nothing_held_out_is_trained_on():
    assert len(split_nouns("train")) >= 60
    assert not set(split_nouns("train")) & (set(split_nouns("test")) | set(invariant_nouns()))
    assert not set(split_voices("train")) & set(split_voices("test"))
    random = np.random.default_rng(0)
    drawn = {
        split: [
            random_pair_text(random, side=side, nouns_of=split)
            for side in SIDES
            for _ in range(200)
        ]
        for split in ("train", "test")
    }
    for split, texts in drawn.items():
        assert {text.noun for text in texts} <= set(split_nouns(split))
    held_out = {form for noun in split_nouns("test") for form in (noun, f"{noun}s")}
    assert not held_out & {
        word for text in drawn["train"] for word in f"{text.singular} {text.plural}".split()
    }


def test_target_is_the_first_word_that_sounds_alike_but_is_spelled_apart(spoken):
    for singular, plural in spoken:
        if singular.control:
            assert singular.words[singular.target].text == plural.words[plural.target].text
            continue
        apart = [
            i
            for i, (one, other) in enumerate(zip(singular.words, plural.words, strict=True))
            if one.text != other.text
        ]
        assert plural.words[plural.target].text == singular.words[singular.target].text + "s"
        assert apart[0] == min(singular.cue, singular.target)
        if singular.side == "right":
            assert apart[0] == singular.target


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_noun_sounds_the_same_in_the_plural(split):
    espeak = pytest.importorskip("speechmix.alignment.espeak")
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")

    def sounds(text):
        return [
            phoneme.text.strip("ˈˌ-") for phoneme in espeak.speak(text).phonemes if phoneme.text
        ]

    for noun in split_nouns(split):
        assert sounds(f"leur {noun} va")[:-2] == sounds(f"leurs {noun}s va")[:-2], noun


def test_clip_has_words_cue_and_target(spoken):
    example = spoken[1][1]
    clip = example.clip()
    assert (clip.text, clip.cue, clip.target, clip.language) == (
        example.text,
        example.cue,
        example.target,
        "fr",
    )
    assert clip.foil == example.foil == spoken[1][0].text.split()[example.target]
    assert clip.words == tuple(example.words)
    assert clip.meta["side"] == example.side == "right"
    assert clip.meta["other_text"] == spoken[1][0].text
    assert np.array_equal(clip.audio(), example.audio)


def test_one_given_sentence_can_be_spoken():
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    text = PairText("leur voisin est là", "leurs voisins sont là", 2, 0, "right", "leur", "voisin")
    singular, plural = speak_pair(text, voice="fr-fr", random=np.random.default_rng(0))
    assert (singular.words[2].text, plural.words[2].text) == ("est", "sont")


def test_wrong_options_are_refused():
    with pytest.raises(InputError, match="split"):
        split_nouns("validation")
    with pytest.raises(InputError, match="side"):
        random_pair_text(np.random.default_rng(0), side="middle", nouns_of="train")
    with pytest.raises(InputError, match="side"):
        random_pair(0, seed=0, sides=())
