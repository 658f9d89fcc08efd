"""States of an item as arrays are those that transformers gives, frame by frame and token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.probing.task import read_item_states
from speechmix.inputs import bundled
from tests.conftest import trained


@pytest.fixture
def clip():
    return next(clip for clip in bundled.clips() if clip.name == "left_00_pl")


def test_they_are_those_of_transformers(clip):
    model = trained("tiny-french-ctc")
    found = speechmix.states(model, clip)["encoder"]
    audio = torch.as_tensor(clip.audio(model.sample_rate))
    inputs = model.feature_extractor(
        audio.numpy(), sampling_rate=model.sample_rate, return_tensors="pt"
    )
    with torch.no_grad():
        output = model.module(**inputs, output_hidden_states=True)
    expected = torch.stack(output.hidden_states)[:, 0].numpy()
    assert found.values.shape == (expected.shape[0], len(found.positions), expected.shape[2])
    np.testing.assert_allclose(found.values[:-1], expected[:-1], atol=1e-4)


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_their_mean_over_a_word_is_what_is_probed(name, clip):
    model = trained(name)
    found = speechmix.states(model, clip)["encoder"]
    probed = read_item_states(model, clip, ["target"], stacks=["encoder"]).states[
        "encoder", "target"
    ]
    rows = [row for row, span in enumerate(found.positions) if span.word == clip.target]
    np.testing.assert_allclose(found.values[:, rows].mean(axis=1), probed, atol=1e-5)


def test_a_text_has_tokens_and_a_clip_needs_no_words(clip):
    model = trained("tiny-french-whisper")
    both = speechmix.states(model, clip)
    assert list(both) == ["encoder", "decoder"]
    assert [span.label for span in both["decoder"].positions][:2] == [
        "<|startoftranscript|>",
        "<|fr|>",
    ]
    alone = speechmix.Clip.from_file(clip.path)
    sound = speechmix.states(model, alone, stacks=["encoder"])["encoder"]
    np.testing.assert_array_equal(sound.values, both["encoder"].values)
    with pytest.raises(InputError, match="has states in encoder, decoder, found 'cross'"):
        speechmix.states(model, clip, stacks=["cross"])


def test_all_maps_are_one_table(clip):
    maps = speechmix.mix(trained("tiny-french-ctc"), clip, measures=["attention", "alti"])
    table = maps.to_dataframe()
    assert set(table["measure"]) == {"attention", "alti"}
    assert len(table) == sum(len(found.to_dataframe()) for found in maps.values())
    assert len(maps.plot()) == 2


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_states_of_words_and_phones_are_means_over_their_frames_and_tokens(name, clip):
    model = trained(name)
    frames, words = speechmix.states(model, clip), speechmix.states(model, clip, level="word")
    assert set(words) == set(frames)
    for stack, found in words.items():
        assert [span.label for span in found.positions] == [word.text for word in clip.words]
        for index, span in enumerate(found.positions):
            rows = [row for row, unit in enumerate(frames[stack].positions) if unit.word == index]
            expected = frames[stack].values[:, rows].mean(axis=1)
            np.testing.assert_allclose(found.values[:, index], expected, atol=1e-5)
            assert (span.onset, span.offset) == (clip.words[index].start, clip.words[index].end)
    middle = (clip.words[0].start + clip.words[0].end) / 2
    phones = [("n", clip.words[0].start, middle), ("o", middle, clip.words[0].end)]
    with_phones = clip.with_words(None, tiers={"phone": phones})
    found = speechmix.states(model, with_phones, level="phone")
    assert list(found) == ["encoder"]
    assert [(span.label, span.word) for span in found["encoder"].positions] == [("n", 0), ("o", 0)]
    both = np.average(
        found["encoder"].values, axis=1, weights=[len(s) for s in found["encoder"].positions]
    )
    np.testing.assert_allclose(both, words["encoder"].values[:, 0], atol=1e-5)


def test_a_level_that_there_is_not_is_refused(clip):
    model = trained("tiny-french-whisper")
    with pytest.raises(InputError, match="level should be one of word, syllable, phone, frame"):
        speechmix.states(model, clip, level="token")
    with pytest.raises(InputError, match="reads text, which has no frames"):
        speechmix.states(model, clip, level="frame", stacks=["decoder"])
    with pytest.raises(InputError, match="has no phones"):
        speechmix.states(model, clip, level="phone")
    with pytest.raises(InputError, match="prepared inputs have no words"):
        speechmix.states(model, {"input_features": torch.zeros(1, 80, 300)}, level="word")
