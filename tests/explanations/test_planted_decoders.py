"""Grounding and loops in decoders of which it is known what each word comes from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from speechmix.extensions.grounding.grounded_words import ground_words
from speechmix.extensions.grounding.grounding import Grounding
from speechmix.extensions.grounding.loops import find_loops, head_effects, select_copies, trace_loop
from speechmix.extensions.grounding.readers import find_reader
from speechmix.extensions.grounding.word_readings import INTACT

from .planted_decoders import planted, window_of

MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 11)]
LOOPING = "xy " + " ".join(["ab", "c"] * 6)  # a group of five tokens


def first_head(seed: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The head that is named first, and the planted one."""
    model, head = planted(seed, loop=1.5, period=5)
    reader = find_reader(model, "fr")
    readings = reader.read(window_of(model, LOOPING))
    [loop] = find_loops(readings.words)
    effects = head_effects(reader, readings, range(loop.first + loop.period, loop.stop))
    return max(effects, key=effects.__getitem__), head


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_loop_head_is_named_first(seed):
    named, head = first_head(seed)
    assert named == head


@pytest.mark.long
def test_the_planted_loop_head_is_named_first_in_most_of_100_models():
    heads = [first_head(seed) for seed in range(100)]
    assert sum(named == head for named, head in heads) >= 95


def test_a_loop_is_traced_and_written_without_its_heads():
    model, head = planted(0, loop=1.5, period=5)
    reader = find_reader(model, "fr")
    readings = reader.read(window_of(model, LOOPING))
    words = ground_words(readings, 0)
    loop = trace_loop(find_loops(readings.words)[0], words, [readings], reader)
    assert loop.heads[0][:2] == head
    assert loop.heads[0][2] > 10
    assert "ab c ab c" not in loop.without_heads
    assert f"layer {head[0]} head {head[1]}" in loop.sentence(words)


def test_a_long_loop_is_traced_over_its_first_repeats():
    model, head = planted(0, loop=1.5, period=3)
    reader = find_reader(model, "fr")
    reads: list[int] = []
    run = reader._run
    reader._run = lambda ids, states: reads.append(ids.shape[1]) or run(ids, states)
    for repeats, untraced_count in ((8, 0), (14, 6)):
        readings = reader.read(window_of(model, "xy " + " ".join(["ab"] * repeats)))
        words = ground_words(readings, 0)
        [loop] = find_loops(readings.words)
        reads.clear()
        traced = trace_loop(loop, words, [readings], reader)
        n_prefix = readings.window.n_prefix
        assert set(reads) == {
            n_prefix + 3 * 9 - 1
        }  # up to the token that predicts the last one read
        assert traced.untraced_count == untraced_count
        assert traced.heads[0][:2] == head
        grounding = Grounding("a", 2.0, "tiny", tuple(words), (traced,))
        assert ("its first 8 words were used" in traced.sentence(words)) == bool(untraced_count)
        content = json.loads(json.dumps(grounding.to_json()))
        assert content["loops"][0]["untraced_count"] == untraced_count
        assert Grounding.from_json(content).loops == (traced,)


def test_what_is_behind_the_words_read_changes_nothing():
    model, _ = planted(0, loop=1.5, period=5)
    reader = find_reader(model, "fr")
    readings = reader.read(window_of(model, LOOPING))
    read = reader.sum_log_probabilities(readings, range(3, 7), 2)
    assert read == pytest.approx([readings.log_probabilities[INTACT][3:7].sum()] * 2, abs=1e-4)


def test_a_decoder_that_ignores_the_sound_has_no_grounded_word():
    model, _ = planted(1, loop=1.5, period=5)
    words = ground_words(find_reader(model, "fr").read(window_of(model, LOOPING)), 0)
    assert max(abs(word.sound) for word in words) < 1e-4
    assert {word.reason for word in words} == {
        "not in the sound: the model writes it about silence or noise, too"
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_decoder_that_needs_the_sound_has_no_ungrounded_word(seed):
    text = "ab cde fg hab"
    model, _ = planted(seed, spoken=text)
    readings = find_reader(model, "fr").read(window_of(model, text))
    words = ground_words(readings, 0)
    assert [word.reason for word in words] == ["comes from the sound"] * 4
    for word in words:
        assert word.probability > 0.5
        assert word.sound > 3
    tokens = np.cumsum([0, 3, 4, 3, 4]) * 2.0 / 14  # tokens are spoken one after the other
    for word, start, end in zip(words, tokens[:-1], tokens[1:], strict=True):
        assert word.start == pytest.approx(start, abs=0.07)
        assert word.end == pytest.approx(end, abs=0.07)


def read_loops(model, text):
    """The words of a window, and its loops."""
    readings = find_reader(model, "fr").read(window_of(model, text))
    words = ground_words(readings, 0)
    return words, [select_copies(loop, words) for loop in find_loops(readings.words)]


@pytest.mark.parametrize("seed", [*range(3), *MORE_SEEDS])
def test_a_phrase_that_is_said_four_times_is_no_loop(seed):
    text = " ".join(["ab cd"] * 4)
    words, [loop] = read_loops(planted(seed, spoken=text)[0], text)
    assert loop is None
    assert {word.reason for word in words} == {"comes from the sound"}


@pytest.mark.parametrize("seed", range(3))
def test_a_phrase_that_is_said_and_then_copied_is_a_loop_whose_first_word_needs_the_sound(seed):
    text = " ".join(["ab c"] * 8)
    words, [loop] = read_loops(planted(seed, loop=1.5, period=5, spoken="ab c ab c")[0], text)
    assert (loop.first, loop.stop, loop.repeats) == (0, 16, 8)
    assert {word.reason for word in words[:2]} == {"comes from the sound"}
    assert "repeats need no sound" in loop.sentence(words)


def test_only_the_repeats_that_need_no_sound_are_a_loop():
    model, _ = planted(0, loop=1.5, period=5)
    words, [loop] = read_loops(model, LOOPING)
    heard = [replace(word, silence=5.0, noise=5.0) for word in words]
    assert select_copies(loop, heard) is None
    for spoken, expected in (
        (4, (3, 13, 5)),
        (6, (5, 13, 4)),
        (10, None),
    ):  # times 2, 3 or 5 are said
        found = select_copies(loop, heard[: spoken + 1] + words[spoken + 1 :])
        assert (found and (found.first, found.stop, found.repeats)) == expected


@pytest.mark.parametrize("seed", [*range(3), *MORE_SEEDS])
def test_what_is_repeated_without_the_sound_is_a_loop(seed):
    words, [loop] = read_loops(planted(seed, loop=1.5, period=5)[0], LOOPING)
    assert (loop.first, loop.stop, loop.repeats) == (1, 13, 6)
    assert not any(word.is_in_sound() for word in words)
