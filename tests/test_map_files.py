"""Maps in files: written whole or layer by layer, read whole or lazily."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix import MixingMap, bundled
from speechmix.errors import InputError
from speechmix.map_files import LayerWriter


def a_map(dtype) -> MixingMap:
    units = (speechmix.Span(0, 5, "les", word=0, onset=0.0, offset=0.1), speechmix.Span(5, 20, "étés", word=1))
    scores = np.random.default_rng(0).random((2, 3, 2, 2)).astype(dtype)
    return MixingMap(scores, units, units, "value_zeroing", "encoder", (0, 4), {"clip": "à", "steps": ["none"]})


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load(bundled.models()["tiny-french-whisper"], device="cpu")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read(tmp_path, lazy, dtype):
    mixing_map = a_map(dtype)
    found = MixingMap.load(mixing_map.save(tmp_path / "x.safetensors"), lazy=lazy)
    assert isinstance(found.scores, np.memmap) == lazy
    assert found.scores.dtype == dtype
    assert np.array_equal(found.scores, mixing_map.scores)
    assert (found.targets, found.sources, found.layers) == (mixing_map.targets, mixing_map.sources, mixing_map.layers)
    assert found.provenance == mixing_map.provenance
    assert np.array_equal(found.normalized().scores, mixing_map.normalized().scores)


def test_safetensors_itself_reads_it(tmp_path):
    from safetensors.numpy import load_file

    path = a_map(np.float32).save(tmp_path / "x.safetensors")
    assert np.array_equal(load_file(path)["scores"], a_map(np.float32).scores)


def test_an_unfinished_file_does_not_look_like_a_map(tmp_path):
    mixing_map = a_map(np.float32)
    writer = LayerWriter(tmp_path / "x.safetensors", 2)
    writer.append(mixing_map.scores[0])
    with pytest.raises(InputError, match="MixingMap"):
        MixingMap.load(tmp_path / "x.safetensors")


class TestOut:
    @pytest.mark.parametrize("units", ["word", "frame"])
    def test_maps_written_while_computed_are_those_in_memory(self, whisper, tmp_path, units):
        clip, measures = bundled.clips()[0], ["value_zeroing", "attention"]
        written = speechmix.mix(whisper, clip, units=units, measures=measures, out=tmp_path)
        for key, expected in speechmix.mix(whisper, clip, units=units, measures=measures).items():
            assert isinstance(written[key].scores, np.memmap)
            assert np.array_equal(written[key].scores, expected.scores)
            assert written[key].provenance == expected.provenance
            path = tmp_path / clip.name / f"{key[0]}.{key[1]}.safetensors"
            assert np.array_equal(MixingMap.load(path).scores, expected.scores)
        assert not list(tmp_path.rglob("*.part"))

    def test_a_folder_for_each_clip(self, whisper, tmp_path):
        clips = bundled.clips()[:2]
        speechmix.mix(whisper, clips, stacks="encoder", out=tmp_path)
        assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted(clip.name for clip in clips)


class TestFrameMaps:
    def test_window_is_a_part_of_the_whole_map(self, whisper):
        clip = bundled.clips()[0]
        whole = speechmix.mix(whisper, clip, units="frame", stacks=["encoder", "cross"])
        part = speechmix.mix(whisper, clip, units="frame", stacks=["encoder", "cross"], window=(0.2, 0.6))
        for (measure, stack), found in part.items():
            expected = whole[measure, stack]
            columns = [expected.sources.index(span) for span in found.sources]
            rows = columns if stack == "encoder" else slice(None)
            assert all(0.2 <= span.onset < span.offset <= 0.6 for span in found.sources)
            np.testing.assert_allclose(found.scores, expected.scores[:, rows][..., columns], rtol=1e-3, atol=1e-9)

    @pytest.mark.parametrize("window", [(0.6, 0.2), (1,), (5.0, 6.0)])
    def test_impossible_windows(self, whisper, window):
        with pytest.raises(InputError, match="window"):
            speechmix.mix(whisper, bundled.clips()[0], units="frame", window=window)

    def test_attention_pooled_to_words_later_is_attention_of_words(self, whisper):
        clip = bundled.clips()[0]
        frames = speechmix.mix(whisper, clip, units="frame", measures="attention", stacks="encoder")
        words = speechmix.mix(whisper, clip, measures="attention", stacks="encoder")["attention", "encoder"]
        pooled = frames["attention", "encoder"].pooled(words.sources, sources="mean")
        np.testing.assert_allclose(pooled.scores, words.scores, rtol=1e-5)

    def test_zeroing_a_word_at_once_is_more_than_its_frames_one_by_one(self, whisper):
        clip = bundled.clips()[0]
        frames = speechmix.mix(whisper, clip, units="frame", stacks="encoder")["value_zeroing", "encoder"]
        words = speechmix.mix(whisper, clip, stacks="encoder")["value_zeroing", "encoder"]
        singly = frames.pooled(words.sources, sources="sum")
        assert singly.scores.shape == words.scores.shape
        assert np.median(words.scores / singly.scores) > 1.5
