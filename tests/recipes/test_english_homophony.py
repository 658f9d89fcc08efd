"""The English homophony recipe: balanced pairs, the filter, distances; a small run by tiny.en."""

from __future__ import annotations

import importlib.util
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    path = ROOT / "recipes" / "english_homophony.py"
    spec = importlib.util.spec_from_file_location("english_homophony", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def template(recipe):
    return tomllib.loads(recipe.TEMPLATE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pairs(recipe, template):
    spoken = [*recipe.noun_pairs(template, 0), *list(recipe.word_pairs(template))[::6]]
    return [pair.speak() for pair in spoken]


def all_pairs(recipe, template):
    for index in range(len(template["nouns"].split())):
        yield from recipe.noun_pairs(template, index)


def test_there_are_enough_sentences_and_voices(recipe, template):
    texts = [pair.text for pair in all_pairs(recipe, template)]
    sentences = {text for pair in texts for text in (pair.singular, pair.plural)}
    assert len(sentences) >= 400
    nouns = template["nouns"].split()
    assert len(nouns) == len(set(nouns)) >= 60
    assert len({pair.voice for pair in all_pairs(recipe, template)}) >= 6


def test_frames_and_voices_are_crossed_in_each_turn(recipe, template):
    turns = zip(
        *(recipe.noun_pairs(template, index) for index in range(len(template["nouns"].split()))),
        strict=True,
    )
    for pairs in turns:
        counts = Counter((pair.frame["name"], pair.voice) for pair in pairs)
        frames = [f for f in template["frames"] if f["side"] == pairs[0].frame["side"]]
        assert len(counts) == len(frames) * len(template["voices"])
        assert min(counts.values()) >= 6


def test_a_noun_is_tried_by_another_voice_in_each_frame(recipe, template):
    for index in range(len(template["nouns"].split())):
        tries = [(pair.frame["name"], pair.voice) for pair in recipe.noun_pairs(template, index)]
        assert len(tries) == len(set(tries))


def test_members_differ_in_cue_target_and_what_only_a_right_cue_may_change(recipe, template):
    nouns = set(template["nouns"].split())
    for spoken in [*all_pairs(recipe, template), *recipe.word_pairs(template)]:
        pair, kind = spoken.text, spoken.frame["kind"]
        first, second = pair.singular.split(), pair.plural.split()
        assert len(first) == len(second)
        if pair.noun in nouns:
            assert first[pair.target] == f"{pair.noun}'s"
            assert second[pair.target] == f"{pair.noun}s"
        different = {
            i for i, words in enumerate(zip(first, second, strict=True)) if len({*words}) > 1
        }
        assert {pair.cue, pair.target} <= different
        if pair.side == "left":
            assert different == {pair.cue, pair.target}
            assert pair.target - pair.cue == (1 if kind == "adjacent" else 2)
        else:
            assert min(different) == pair.target == pair.cue - 1


def test_only_the_cue_can_be_heard(pairs):
    for possessive, plural in pairs:
        audios = [clip.audio(16_000) for clip in (possessive, plural)]
        assert len(audios[0]) == len(audios[1])
        words = [clip.words for clip in (possessive, plural)]
        if possessive.meta["side"] == "left":
            joint = round(words[0][possessive.cue + 1].start * 16_000)
            assert joint == round(words[1][plural.cue + 1].start * 16_000)
            shared = [audio[joint:] for audio in audios]
        else:
            joint = round(words[0][possessive.cue].start * 16_000)
            shared = [audio[:joint] for audio in audios]
        assert np.array_equal(*shared)
        assert not np.array_equal(*audios)
        assert possessive.foil == plural.words[plural.target].text
        assert possessive.language == "en"


@pytest.mark.parametrize(
    ("transcript", "is_right"),
    [
        ("I can name two teachers walk.", True),
        ("I can name 2 teachers log.", True),
        ("I can name two teacher's walk.", False),
        (
            "I can name two teachers' walk.",
            True,
        ),  # the same letters, and still no possessive singular
        ("I can name to teachers walk.", False),
        ("Two. I can name these teachers walk.", False),
        ("I can name one teacher\u2019s walk.", False),
    ],
)
def test_the_filter_wants_cue_and_target_at_their_places(recipe, pairs, transcript, is_right):
    plural = pairs[0][1]
    assert plural.text == "I can name two teachers walk"
    assert recipe.is_written_right(plural, transcript) is is_right


def test_an_apostrophe_of_either_form_is_right(recipe, pairs):
    assert recipe.is_written_right(pairs[0][0], "I can name one teacher\u2019s walk.")
    assert recipe.is_written_right(pairs[0][0], "I can name 1 Teacher's log")


@pytest.mark.real
def test_a_pair_is_chosen_if_both_members_are_right(recipe, template, real_model, tmp_path):
    few = {**template, "nouns": "teacher", "word_pairs": []}
    clips = recipe.choose_pairs(real_model, few, [0], tmp_path, None)
    assert 2 <= len(clips) <= 4  # one noun, two sides
    pairs = Counter(clip.meta["pair"] for clip in clips)
    assert set(pairs.values()) == {2}
