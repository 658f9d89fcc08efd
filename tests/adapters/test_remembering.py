"""What is made of a sound is made once for all questions about it, changes no bit of an answer, and
is let go."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.model_use import (
    ActivationCache,
    LRUCache,
    extract_features,
    run_encoder,
    store_encoder_states,
)
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.interventions.value_knock_out import ablate_with_control
from speechmix.mixing.passes.batches import prefetch_inputs
from tests.conftest import trained


@pytest.fixture
def extractions(monkeypatch):
    """Threads that features are made in, one entry each time."""
    threads = []
    features = speechmix.adapters.Model.features

    def counted(model, audio):
        threads.append(threading.current_thread())
        return features(model, audio)

    monkeypatch.setattr(speechmix.adapters.Model, "features", counted)
    return threads


def encoder_passes(model) -> tuple[list[int], torch.utils.hooks.RemovableHandle]:
    """Batch sizes of the encoder's passes from now on."""
    sizes: list[int] = []
    first = model.stacks["encoder"].layers[0].module
    return sizes, first.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))


def judged(model, clip):
    """Maps, ablation and transcript of a clip."""
    return speechmix.mix(model, clip), ablate_with_control(model, clip), transcribe(model, clip)


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_all_questions_about_a_clip_share_its_features_and_answers_are_the_same_bits(
    name, extractions
):
    model, clip = trained(name), bundled.clips()[0]
    maps, ablation, transcript = judged(model, clip)
    apart = len(extractions)
    extractions.clear()
    with model.unchanged():
        shared_maps, shared_ablation, shared_transcript = judged(model, clip)
    assert len(extractions) == 1 < apart
    assert shared_transcript == transcript
    assert shared_ablation.equals(ablation)
    for key, expected in maps.items():
        assert np.array_equal(shared_maps[key].scores, expected.scores)
    assert model.activation_cache is None


def test_a_whisper_encodes_a_clip_once_for_maps_ablation_and_transcript():
    model, clip = trained("tiny-french-whisper"), bundled.clips()[0]
    sizes, handle = encoder_passes(model)
    try:
        judged(model, clip)
        apart, sizes[:] = list(sizes), []
        with model.unchanged():
            judged(model, clip)
        assert apart == [1, 1, 1, 1]  # maps; ablation: behind the encoder, within it; transcript
        assert sizes == [1, 1]
    finally:
        handle.remove()


def test_another_sound_another_precision_and_another_start_are_computed_anew(extractions):
    model, (one, other) = trained("tiny-french-whisper"), bundled.clips()[:2]
    with model.unchanged():
        expected = [speechmix.mix(model, clip, stacks="encoder") for clip in (one, other)]
        fine = speechmix.mix(model, one, dtype="float64")
        ablate_with_control(model, one)
    assert len(extractions) == 2
    assert fine["value_zeroing", "encoder"].scores.dtype == np.float64
    with model.unchanged():
        again = speechmix.mix(model, other, stacks="encoder")
    assert len(extractions) == 3
    assert np.array_equal(
        again["value_zeroing", "encoder"].scores, expected[1]["value_zeroing", "encoder"].scores
    )


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_features_of_the_next_clips_are_made_in_a_thread(name, extractions):
    model, clips = trained(name), bundled.clips()[:4]
    alone = [extract_features(model, clip).tensors for clip in clips]
    extractions.clear()
    with model.unchanged():
        ahead = list(prefetch_inputs(model, iter(clips), count=2))
        found = [extract_features(model, clip).tensors for clip in ahead]
    assert ahead == list(clips)
    assert len(extractions) == len(clips)
    assert threading.main_thread() not in extractions
    for expected, tensors in zip(alone, found, strict=True):
        for key, tensor in expected.items():
            assert torch.equal(torch.as_tensor(tensors[key]), torch.as_tensor(tensor))


def test_mix_makes_features_in_a_thread(extractions):
    speechmix.mix(
        trained("tiny-french-whisper"), bundled.clips()[:2], stacks="encoder", measures="attention"
    )
    assert len(extractions) == 2
    assert threading.main_thread() not in extractions


def test_a_clip_that_cannot_be_read_fails_where_it_is_used(tmp_path):
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"no audio")
    model, clip = trained("tiny-french-whisper"), speechmix.Clip.from_file(broken)
    with model.unchanged():
        assert list(prefetch_inputs(model, [clip, "a text"])) == [clip, "a text"]
        with pytest.raises(InputError):
            extract_features(model, clip)


def test_what_was_used_longest_ago_is_let_go():
    remembered = LRUCache(max_bytes=16)
    for name in "abcd":
        remembered.store(name, {"x": torch.zeros(1)})
    assert remembered.get("a")
    remembered.store("e", {"x": torch.zeros(1)})
    assert [name for name in "abcde" if remembered.get(name)] == ["a", "c", "d", "e"]
    remembered.store("large", {"x": torch.zeros(5)})
    assert remembered.get("large") is None
    assert remembered.get("e")


def test_another_prefix_has_a_memory_of_its_own():
    model = trained("tiny-french-whisper")
    with model.unchanged():
        assert isinstance(model.activation_cache, ActivationCache)
        assert model.with_prefix().activation_cache is None


def test_a_thread_that_is_late_gives_nothing_to_the_next_block(monkeypatch):
    """What it made may be of another extractor: it belongs to the block in which it was asked
    for."""
    model, clip = trained("tiny-french-whisper"), bundled.clips()[0]
    features, asked, going_on = (
        speechmix.adapters.Model.features,
        threading.Event(),
        threading.Event(),
    )

    def late(model, audio):
        asked.set()
        assert going_on.wait(60)
        return {
            name: torch.full_like(tensor, 7.0) for name, tensor in features(model, audio).items()
        }

    with model.unchanged():
        monkeypatch.setattr(speechmix.adapters.Model, "features", late)
        thread = threading.Thread(target=extract_features, args=(model, clip))
        thread.start()
        assert asked.wait(60)
    monkeypatch.setattr(speechmix.adapters.Model, "features", features)
    with model.unchanged():
        going_on.set()
        thread.join()
        tensors = extract_features(model, clip).tensors
        assert not (tensors["input_features"] == 7.0).any()


def test_states_of_one_device_are_not_given_to_another():
    model = trained("tiny-french-whisper")
    with model.unchanged():
        store_encoder_states(model, torch.zeros(1, 2, 3, device="meta"), "sound", attention="sdpa")
        states = run_encoder(
            model, extract_features(model, bundled.clips()[0]).tensors, "sound", attention="sdpa"
        )
    assert states[0].device.type == "cpu"
