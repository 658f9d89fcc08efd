"""Clips prepared ahead: in order, no more than asked for, and nothing goes on when nobody listens
any more."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.mixing.passes.batches import prefetch_items
from tests.conftest import trained


def clips(count: int) -> list[Clip]:
    return [Clip.from_array(np.zeros(160), 16_000, name=str(index)) for index in range(count)]


def test_a_generator_that_is_closed_prepares_no_further_clip_and_leaves_no_thread():
    prepared: list[str] = []
    begun, going_on, before = threading.Event(), threading.Event(), threading.active_count()

    def prepare(clip: Clip) -> None:
        prepared.append(clip.name)
        if clip.name == "1":
            begun.set()
            assert going_on.wait(60)

    items = prefetch_items(clips(9), prepare, count=4)
    assert next(items).name == "0"
    assert begun.wait(60)
    timer = threading.Timer(0.2, going_on.set)
    timer.start()
    items.close()
    timer.join()
    assert prepared == ["0", "1"]
    assert threading.active_count() == before


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_is_taken_than_is_prepared(count):
    taken: list[str] = []

    def taking():
        for clip in clips(8):
            taken.append(clip.name)
            yield clip

    for place, clip in enumerate(prefetch_items(taking(), lambda clip: None, count=count)):
        assert clip.name == str(place)
        assert len(taken) == min(8, place + 1 + count)


def test_an_error_that_is_not_ours_is_met_where_the_clip_is_used():
    def prepare(clip: Clip) -> None:
        raise KeyError(clip.name)

    assert [clip.name for clip in prefetch_items(clips(3), prepare)] == ["0", "1", "2"]


def test_mix_that_fails_leaves_no_thread_behind():
    model, clip = trained("tiny-french-whisper"), bundled.clips()[0]
    without_words = clip.replace(words=None, cue=None, target=None)
    before = threading.active_count()
    with pytest.raises(InputError) as raised:
        speechmix.mix(model, [without_words] * 8, clips_at_once=1)
    assert raised.value.__traceback__ is not None  # which holds the frames, and what they hold
    assert threading.active_count() == before
