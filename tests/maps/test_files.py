"""Maps in files: written whole or layer by layer, read whole or lazily."""

from __future__ import annotations

import dataclasses
import json
import struct
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
import soundfile
import torch

import speechmix
from speechmix import MixingMap
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.mixing.maps.map_files import (
    VERSION,
    LayerWriter,
    _checksum,
    read_map,
    score_checksum,
)
from tests.conftest import trained


def a_map(dtype) -> MixingMap:
    units = (
        speechmix.Span(0, 5, "les", word=0, onset=0.0, offset=0.1),
        speechmix.Span(5, 20, "étés", word=1),
    )
    scores = np.random.default_rng(0).random((2, 3, 2, 2)).astype(dtype)
    return MixingMap(
        scores, units, units, "value_zeroing", "encoder", (0, 4), {"clip": "à", "steps": ["none"]}
    )


@pytest.fixture(scope="module")
def whisper():
    return trained("tiny-french-whisper")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read(tmp_path, lazy, dtype):
    mixing_map = a_map(dtype)
    found = MixingMap.load(mixing_map.save(tmp_path / "x.safetensors"), lazy=lazy)
    assert isinstance(found.scores, np.memmap) == lazy
    assert found.scores.dtype == dtype
    assert np.array_equal(found.scores, mixing_map.scores)
    assert (found.targets, found.sources, found.layers) == (
        mixing_map.targets,
        mixing_map.sources,
        mixing_map.layers,
    )
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
    writer.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 1, 2, 0)])
def test_a_map_without_targets_or_sources(tmp_path, shape):
    units = tuple(speechmix.Span(i, i + 1) for i in range(3))
    empty = MixingMap(
        np.zeros(shape), units[: shape[-2]], units[: shape[-1]], "attention", "encoder", (0, 1)
    )
    path = empty.save(tmp_path / "x.safetensors")
    assert (
        MixingMap.load(path).scores.shape == MixingMap.load(path, lazy=True).scores.shape == shape
    )


def test_scores_that_a_file_cannot_hold_are_refused_and_leave_nothing(tmp_path):
    for scores, provenance in (
        (np.zeros((1, 1, 1), np.float16), {}),
        (np.zeros((1, 1, 1)), {"clip": object()}),
    ):
        span = speechmix.Span(0, 1)
        with pytest.raises(InputError, match=r"float16|provenance"):
            MixingMap(scores, (span,), (span,), "attention", "encoder", (0,), provenance).save(
                tmp_path / "x.safetensors"
            )
    assert not list(tmp_path.iterdir())


class TestDamage:
    """No byte of a file can change without being an error (or not being of any weight: a blank)."""

    @pytest.mark.parametrize("lazy", [False, True])
    def test_every_byte_counts(self, tmp_path, lazy):
        original = a_map(np.float32)
        path = original.save(tmp_path / "x.safetensors")
        data = path.read_bytes()
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            with suppress(InputError):
                found = read_map(path, lazy=lazy)
                assert chr(data[place]).isspace()
                assert np.array_equal(found.scores, original.scores)
                assert found.targets == original.targets

    def test_what_is_damaged_is_said(self, tmp_path):
        path = a_map(np.float64).save(tmp_path / "x.safetensors")
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(
            InputError, match="scores of layer 4 are not as they were written: the file is damaged"
        ):
            MixingMap.load(path)
        path.write_bytes(data.replace(b"livres", b"livret").replace(b"les", b"des"))
        with pytest.raises(InputError, match="labels or provenance are not as they were written"):
            MixingMap.load(path, lazy=True)
        path.write_bytes(data[:-8])
        with pytest.raises(InputError, match="cut off"):
            MixingMap.load(path)

    @pytest.mark.parametrize("version", ["1", "3", None])
    def test_a_map_of_another_version_is_an_error(self, tmp_path, version):
        assert MixingMap.load(with_header(tmp_path / "x.safetensors", a_map(np.float32))).measure
        path = with_header(tmp_path / "x.safetensors", a_map(np.float32), version=version)
        with pytest.raises(
            InputError, match=r"x\.safetensors: a map in the format .*: compute the map again"
        ):
            MixingMap.load(path)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("layers", "[0]"),
            ("layers", "[0, -1]"),
            ("layers", "[0, true]"),
            ("layers", "3"),
            ("targets", "[]"),
            ("targets", "{"),
            ("targets", "[1, 2]"),
            ("sources", '[{"start": -5, "stop": 0}, {"start": 0, "stop": 1}]'),
            ("sources", '[{"start": 5, "stop": 0}, {"start": 0, "stop": 1}]'),
            ("sources", '[{"start": "0", "stop": 1}, {"start": 0, "stop": 1}]'),
            ("sources", '[{"start": 0, "stop": 1, "colour": 2}, {"start": 0, "stop": 1}]'),
            ("provenance", "[]"),
            ("provenance", "[" * 100_000),
            ("provenance", "1" * 5000),
            ("measure", None),
        ],
    )
    def test_labels_that_make_no_sense(self, tmp_path, name, text):
        path = with_header(tmp_path / "x.safetensors", a_map(np.float32), **{name: text})
        with pytest.raises(InputError, match=r"x\.safetensors"):
            MixingMap.load(path)

    @pytest.mark.parametrize(
        "shape",
        [[2**40, 1, 1], [2, 3, 2, 2, 1], [-2, 3, 2, -2], [2.0, 3, 2, 2], [24], 24, [True, 24, 1]],
    )
    def test_shapes_that_lie(self, tmp_path, shape):
        path = with_header(tmp_path / "x.safetensors", a_map(np.float32), shape=shape)
        with pytest.raises(InputError, match=r"x\.safetensors"):
            MixingMap.load(path)

    @pytest.mark.parametrize("length", [0, 1, 2**30, 2**40, 2**63, 2**64 - 1])
    def test_a_header_that_declares_terabytes(self, tmp_path, length):
        path = a_map(np.float32).save(tmp_path / "x.safetensors")
        path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
        tracemalloc.start()
        for lazy in (False, True):
            with pytest.raises(InputError, match=r"x\.safetensors"):
                MixingMap.load(path, lazy=lazy)
        assert tracemalloc.get_traced_memory()[1] < 2e6
        tracemalloc.stop()

    @pytest.mark.parametrize("lazy", [False, True])
    def test_what_is_no_file(self, tmp_path, lazy):
        (tmp_path / "folder").mkdir()
        (tmp_path / "empty").touch()
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        for name in ("folder", "empty", "loop", "gone", "a\0b", "x" * 300):
            with pytest.raises(InputError, match="expected a map written by MixingMap"):
                MixingMap.load(tmp_path / name, lazy=lazy)

    def test_a_file_that_may_not_be_read(self, tmp_path, monkeypatch):
        def refused(*args):
            raise PermissionError(13, "Permission denied")

        path = a_map(np.float32).save(tmp_path / "x.safetensors")
        monkeypatch.setattr(type(path), "open", refused)
        with pytest.raises(
            InputError, match=r"x\.safetensors: expected a map .* Permission denied"
        ):
            MixingMap.load(path)


def with_header(path, mixing_map, *, shape=None, **entries):
    """Write a map with entries of its header, or the shape of its scores, replaced before the
    checksum is computed."""
    header = {
        "format": "speechmix.MixingMap",
        "version": VERSION,
        "measure": mixing_map.measure,
        "stack": mixing_map.stack,
        "layers": json.dumps(mixing_map.layers),
        "targets": json.dumps([dataclasses.asdict(span) for span in mixing_map.targets]),
        "sources": json.dumps([dataclasses.asdict(span) for span in mixing_map.sources]),
        "provenance": json.dumps(mixing_map.provenance),
        "digests": json.dumps([score_checksum(layer) for layer in mixing_map.scores]),
    }
    header = {name: text for name, text in {**header, **entries}.items() if text is not None}
    shape = list(mixing_map.scores.shape) if shape is None else shape
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, mixing_map.scores.nbytes]}
    header["checksum"] = _checksum(header, tensor)
    content = json.dumps({"__metadata__": header, "scores": tensor}).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + mixing_map.scores.tobytes())
    return path


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
        assert not list(tmp_path.rglob("*.part")) + list(tmp_path.rglob(".*"))

    def test_a_folder_for_each_clip(self, whisper, tmp_path):
        clips = bundled.clips()[:2]
        speechmix.mix(whisper, clips, stacks="encoder", out=tmp_path)
        assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted(
            clip.name for clip in clips
        )

    def test_a_folder_for_each_of_several_prepared_inputs(self, whisper, tmp_path):
        shape = (3, whisper.config.num_mel_bins, 2 * whisper.config.max_source_positions)
        features = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        options = {"measures": "attention", "stacks": "encoder", "spans": [(0, 20), (20, 49)]}
        written = speechmix.mix(whisper, {"input_features": features}, out=tmp_path, **options)
        for index, expected in enumerate(
            speechmix.mix(whisper, {"input_features": features}, **options)
        ):
            path = tmp_path / f"inputs_{index}" / "attention.encoder.safetensors"
            for found in (MixingMap.load(path), written[index]["attention", "encoder"]):
                assert np.array_equal(found.scores, expected["attention", "encoder"].scores)
        speechmix.mix(whisper, {"input_features": features[:1]}, out=tmp_path / "single", **options)
        assert [path.name for path in (tmp_path / "single").iterdir()] == [
            "attention.encoder.safetensors"
        ]

    @pytest.mark.parametrize(
        "names", [("001", "001"), ("a b", "a_b"), ("\u00e9", "e\u0301"), ("Les", "les")]
    )
    def test_two_clips_of_one_name_are_refused_before_anything_is_computed(
        self, whisper, tmp_path, names
    ):
        paths = [tmp_path / folder / "001.wav" for folder in "ab"]
        for path in paths:
            path.parent.mkdir()
            soundfile.write(path, np.zeros(16_000), 16_000)
        clips = [
            speechmix.Clip.from_file(path, name=name)
            for path, name in zip(paths, names, strict=True)
        ]
        out = tmp_path / "out"
        with pytest.raises(InputError, match=rf"two clips .*{paths[0]}.*{paths[1]}.*name="):
            speechmix.mix(whisper, iter(clips), units="frame", stacks="encoder", out=out)
        memory = [speechmix.Clip.from_array(np.zeros(16_000), 16_000) for _ in range(2)]
        with pytest.raises(InputError, match="samples in memory"):
            speechmix.mix(whisper, memory, units="frame", stacks="encoder", out=out)
        assert not out.exists()

    def test_maps_of_gradient_measures_too(self, whisper, tmp_path):
        clip, measures = bundled.clips()[0], ["gradient_input", "value_zeroing"]
        written = speechmix.mix(whisper, clip, measures=measures, out=tmp_path)
        for key, expected in speechmix.mix(whisper, clip, measures=measures).items():
            found = MixingMap.load(tmp_path / clip.name / f"{key[0]}.{key[1]}.safetensors")
            assert isinstance(written[key].scores, np.memmap)
            for one in (found, written[key]):
                assert np.array_equal(one.scores, expected.scores)
                assert one.provenance == json.loads(json.dumps(expected.provenance))

    @pytest.mark.parametrize("blocks", [0, 1, 3])
    def test_a_pass_that_dies_leaves_nothing(self, whisper, tmp_path, monkeypatch, blocks):
        append = LayerWriter.append
        left = iter(range(blocks))

        def dying(writer, scores):
            append(writer, scores)
            if next(left, None) is None:
                raise KeyboardInterrupt

        monkeypatch.setattr(LayerWriter, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            speechmix.mix(
                whisper, bundled.clips()[0], measures=["value_zeroing", "attention"], out=tmp_path
            )
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    def test_out_that_is_a_file(self, whisper, tmp_path):
        (tmp_path / "out").touch()
        with pytest.raises(InputError, match="expected a folder to write maps to, found a file"):
            speechmix.mix(whisper, bundled.clips()[0], out=tmp_path / "out")


class TestFrameMaps:
    def test_window_is_a_part_of_the_whole_map(self, whisper):
        clip = bundled.clips()[0]
        whole = speechmix.mix(whisper, clip, units="frame", stacks=["encoder", "cross"])
        part = speechmix.mix(
            whisper, clip, units="frame", stacks=["encoder", "cross"], window=(0.2, 0.6)
        )
        for (measure, stack), found in part.items():
            expected = whole[measure, stack]
            columns = [expected.sources.index(span) for span in found.sources]
            rows = columns if stack == "encoder" else slice(None)
            assert all(0.2 <= span.onset < span.offset <= 0.6 for span in found.sources)
            np.testing.assert_allclose(
                found.scores, expected.scores[:, rows][..., columns], rtol=1e-3, atol=1e-9
            )

    @pytest.mark.parametrize("window", [(0.6, 0.2), (1,), (5.0, 6.0)])
    def test_impossible_windows(self, whisper, window):
        with pytest.raises(InputError, match="window"):
            speechmix.mix(whisper, bundled.clips()[0], units="frame", window=window)

    def test_attention_pooled_to_words_later_is_attention_of_words(self, whisper):
        clip = bundled.clips()[0]
        frames = speechmix.mix(whisper, clip, units="frame", measures="attention", stacks="encoder")
        words = speechmix.mix(whisper, clip, measures="attention", stacks="encoder")[
            "attention", "encoder"
        ]
        pooled = frames["attention", "encoder"].pooled(words.sources, sources="mean")
        np.testing.assert_allclose(pooled.scores, words.scores, rtol=1e-5)

    def test_zeroing_a_word_at_once_is_more_than_its_frames_one_by_one(self, whisper):
        clip = bundled.clips()[0]
        frames = speechmix.mix(whisper, clip, units="frame", stacks="encoder")[
            "value_zeroing", "encoder"
        ]
        words = speechmix.mix(whisper, clip, stacks="encoder")["value_zeroing", "encoder"]
        singly = frames.pooled(words.sources, sources="sum")
        assert singly.scores.shape == words.scores.shape
        assert np.median(words.scores / singly.scores) > 1.5
