"""States of an item as arrays are those that transformers gives, frame by frame and token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.probing.positions import read_item_states
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
