"""Several clips in one forward pass: the same scores as one at a time, and only where that
holds."""

from __future__ import annotations

import functools
import itertools
import shutil

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.block_batch import BlockBatch
from speechmix.adapters.delta_engine.change_propagator import ChangePropagator
from speechmix.adapters.delta_engine.matrix_products import MatrixProduct, WeightProducts
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.mixing.passes import batches
from speechmix.mixing.passes.batches import (
    clip_bytes,
    clips_per_pass,
    pair_batch_bytes,
    prefetch_audio,
)
from speechmix.mixing.passes.forward_pass import compute_maps
from speechmix.mixing.passes.request import MixRequest
from tests.conftest import ALL_FAMILIES, build, inputs_of, tiny

MEASURES = ["value_zeroing", "attention", "attention_norm", "alti"]


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_clips_together_get_the_scores_they_get_alone(name):
    model = speechmix.load(bundled.models()[name], dtype="float64", device="cpu")
    clips = bundled.clips()[:3]
    assert len({len(clip.audio()) for clip in clips}) > 1
    alone = speechmix.mix(model, clips, measures=MEASURES)
    for engine in ("delta", "replay"):
        measures = [f"value_zeroing:engine={engine}", *MEASURES[1:]]
        together = speechmix.mix(model, clips, measures=measures, clips_at_once=2)
        for expected, found in zip(alone, together, strict=True):
            assert [stack for _, stack in expected] == [stack for _, stack in found]
            for expected_map, found_map in zip(expected.values(), found.values(), strict=True):
                np.testing.assert_allclose(
                    found_map.scores, expected_map.scores, rtol=1e-9, atol=1e-14
                )


@pytest.mark.parametrize(
    "name", [name for name in ALL_FAMILIES if not name.startswith(("whisper", "wavlm"))]
)
def test_padding_in_a_batch_of_prepared_inputs_is_no_unit_and_changes_nothing(name):
    model = tiny(name)
    if model.hears:
        pytest.skip("audio is prepared from clips")
    ids = torch.randint(4, 50, (2, 9), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    more = {"decoder_input_ids": ids[:, :5]} if "cross" in model.stacks else {}
    _, padded = speechmix.mix(model, {**inputs, **more})
    alone = speechmix.mix(
        model, {"input_ids": ids[1:, :6], **{key: x[1:] for key, x in more.items()}}
    )
    for key, expected in alone.items():
        assert [span.start for span in padded[key].sources] == [
            span.start for span in expected.sources
        ]
        np.testing.assert_allclose(padded[key].scores, expected.scores, rtol=1e-4, atol=1e-12)


@pytest.fixture
def batches_read(monkeypatch):
    """Stacks whose blocks were read for several clips at once, in order."""
    stacks, make = [], BlockBatch.__init__

    def note(self, blocks, *arguments):
        stacks.append(blocks[0].stack.name)
        make(self, blocks, *arguments)

    monkeypatch.setattr(BlockBatch, "__init__", note)
    return stacks


@pytest.mark.every_family
@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_clips_go_through_a_layer_together_where_rows_do_not_meet(name, batches_read):
    model = tiny(name)
    if not model.family.can_batch(model.config):
        pytest.skip("clips of this family do not share a pass")
    items = [inputs_of(model, seed) for seed in (1, 2, 3)]
    if not model.hears:
        items[1] = {key: x[:, :-2] for key, x in items[1].items()}  # and is padded
    request = MixRequest.of({"measures": ["value_zeroing", "value_zeroing:distance=euclidean"]})
    nowhere = itertools.repeat(None)
    together = compute_maps(model, items, nowhere, request, model.state_dtype)
    is_described = {
        stack: not layers.layers[0].runs_whole and layers.layers[0].post_attention is not None
        for stack, layers in model.stacks.items()
    }
    assert {*batches_read} == {stack for stack, described in is_described.items() if described}
    for item, found in zip(items, together, strict=True):
        [expected] = compute_maps(model, [item], nowhere, request, model.state_dtype)
        for key, alone in expected.items():
            scale = np.abs(alone.scores).max()
            np.testing.assert_allclose(
                found[key].scores, alone.scores, rtol=1e-8, atol=1e-11 * scale
            )
            np.testing.assert_allclose(
                found[key].mixing_strength, alone.mixing_strength, rtol=1e-8, atol=1e-12
            )


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load(
        bundled.models()["tiny-french-whisper"], dtype="float64", device="cpu", check=False
    )


@pytest.fixture(scope="module")
def alone_in_whisper(whisper):
    """Clips of two lengths and their maps, one clip in a pass and as the engine does it by itself."""

    @functools.cache
    def mix_alone(name, value):
        clips = bundled.clips()[1:4] if name != "heads" else bundled.clips()[1:3]
        return clips, speechmix.mix(whisper, clips, clips_at_once=1, **{name: value})

    return mix_alone


_ALL, _FEW = 2**24, 2**15
_SMALL_CASES = (  # the other ones differ in what others have: of heads, nothing goes together
    *((floats, is_fused, "max") for floats in (_ALL, _FEW) for is_fused in (True, False)),
    *((_ALL, True, "target"), (_FEW, False, "target"), (_FEW, False, "each")),
)


@pytest.mark.parametrize(
    ("floats", "is_fused", "options"),
    [
        pytest.param(
            floats,
            is_fused,
            {name: value},
            marks=[pytest.mark.long] * ((floats, is_fused, value) not in _SMALL_CASES),
            id=f"{'all' if floats == _ALL else 'few'}-{is_fused}-{name}",
        )
        for floats in (_ALL, _FEW)
        for is_fused in (True, False)
        for name, value in (("pooling", "max"), ("targets", "target"), ("heads", "each"))
    ],
)
def test_words_of_clips_that_go_together(
    options, floats, is_fused, whisper, alone_in_whisper, batches_read, monkeypatch
):
    model = whisper
    [option] = options.items()
    clips, alone = alone_in_whisper(*option)
    assert not batches_read
    monkeypatch.setattr(batches, "ATTENTION_FLOATS", floats)
    monkeypatch.setattr(
        ChangePropagator,
        "_is_cheaper_on_values",
        lambda self, *_: is_fused and self._fused_feed_forward is not None,
    )
    together = speechmix.mix(model, clips, clips_at_once=3, **options)
    assert bool(batches_read) == ("heads" not in options)
    for expected, found in zip(alone, together, strict=True):
        for key, one in expected.items():
            np.testing.assert_allclose(found[key].scores, one.scores, rtol=1e-9, atol=1e-14)


def test_group_norm_models_refuse():
    model = speechmix.load(build("wav2vec2-post"), processor=_extractor(), device="cpu")
    clips = bundled.clips()[:2]
    with pytest.raises(InputError, match="clips_at_once must be 1"):
        speechmix.mix(model, clips, clips_at_once=2)
    assert len(speechmix.mix(model, clips)) == 2


@pytest.mark.parametrize("count", [0, 2.5, "many"])
def test_impossible_counts(count):
    model = speechmix.load(build("wav2vec2-stable"), processor=_extractor(), device="cpu")
    with pytest.raises(InputError, match="clips_at_once"):
        speechmix.mix(model, bundled.clips()[:2], clips_at_once=count)


def test_reading_ahead_keeps_order_and_leaves_errors_to_who_asks(tmp_path):
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"no audio")
    clips = [*bundled.clips()[:3], speechmix.Clip.from_file(broken), "a text"]
    assert list(prefetch_audio(iter(clips), sample_rate=16_000, count=2)) == clips
    with pytest.raises(InputError):
        clips[3].audio()


def _extractor():
    import transformers

    return transformers.Wav2Vec2FeatureExtractor(do_normalize=False)


@pytest.mark.parametrize(
    ("limit", "product_dtype"), [(2**29, None), (2**29, "bfloat16"), (400_000, None), (0, None)]
)
def test_products_of_weights_serve_the_next_clips_and_change_no_bit(
    limit, product_dtype, monkeypatch
):
    made, of = [], MatrixProduct.fused_weight

    def counted(self, first, second, make):
        return of(self, first, second, lambda: made.append(first) or make())

    monkeypatch.setattr(
        ChangePropagator,
        "_is_cheaper_on_values",
        lambda self, *_: self._fused_feed_forward is not None,
    )
    monkeypatch.setattr(MatrixProduct, "fused_weight", counted)
    monkeypatch.setattr(WeightProducts.__init__, "__defaults__", (limit,))
    model, clips = speechmix.load(bundled.models()["tiny-french-whisper"]), bundled.clips()[:2]
    measure = f"value_zeroing:product_dtype={product_dtype}" if product_dtype else "value_zeroing"
    options = {"stacks": "encoder", "measures": measure}
    alone = [speechmix.mix(model, clip, **options) for clip in clips]
    layers = len(model.stacks["encoder"])
    assert len(made) == len(clips) * layers
    made.clear()
    together = speechmix.mix(model, clips, clips_at_once=1, **options)
    assert layers <= len(made) <= len(clips) * layers
    if limit != 400_000:
        assert len(made) == (layers if limit else len(clips) * layers)
    for found, expected in zip(together, alone, strict=True):
        for key in expected:
            assert np.array_equal(found[key].scores, expected[key].scores)
    assert model.weight_products is None


def test_products_of_weights_are_forgotten_when_the_weights_may_change():
    model, clips = speechmix.load(bundled.models()["tiny-french-whisper"]), bundled.clips()[:2]
    before = speechmix.mix(model, clips, stacks="encoder")
    with torch.no_grad():
        model.stacks["encoder"].layers[0].module.fc1.weight.mul_(1.5)
    after = speechmix.mix(model, clips, stacks="encoder")
    replay = "value_zeroing:engine=replay"
    replayed = speechmix.mix(model, clips, stacks="encoder", measures=replay)
    for old, new, expected in zip(before, after, replayed, strict=True):
        key = ("value_zeroing", "encoder")
        assert not np.allclose(new[key].scores, old[key].scores)
        expected_scores = expected[replay, "encoder"].scores
        np.testing.assert_allclose(new[key].scores, expected_scores, rtol=1e-3, atol=1e-6)


def test_bytes_of_a_clip_by_hand():
    whisper, xlsr = tiny("whisper-80"), tiny("wav2vec2-stable")
    config = whisper.config
    assert clip_bytes(whisper) == 8 * 1500 * (8 * config.d_model + 3 * config.encoder_ffn_dim)
    samples, channels, largest = 480_000, 1, 0
    for out, stride in zip(xlsr.config.conv_dim, xlsr.config.conv_stride, strict=True):
        before = samples * channels
        samples, channels = samples // stride, out
        largest = max(largest, before + 3 * samples * channels)
    layer = 1500 * (8 * xlsr.config.hidden_size + 3 * xlsr.config.intermediate_size)
    assert clip_bytes(xlsr) == 8 * max(largest, layer)


@pytest.mark.parametrize(("free", "expected"), [(139 * 2**30, 8), (0, 1), (None, 3)])
def test_clips_share_a_pass_as_memory_allows(free, expected, monkeypatch):
    model, padded_differs = tiny("whisper-80"), tiny("wav2vec2-post")  # loaded on the real device
    free = 7 * clip_bytes(model) if free is None else free
    assert clips_per_pass(model) == 1
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(batches.torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    assert clips_per_pass(model) == expected
    assert pair_batch_bytes(model.device) == min(max(free // 4, 2**27), 2**31)
    assert clips_per_pass(padded_differs) == 1


class TestABadClipCostsOnlyThisClip:
    @pytest.fixture
    def model(self):
        return speechmix.load(build("wav2vec2-stable"), processor=_extractor(), device="cpu")

    @pytest.fixture
    def broken(self, tmp_path):
        path = tmp_path / "broken.wav"
        shutil.copy(bundled.clips()[3].path, path)
        clip = speechmix.Clip.from_file(path, words=[("a", 0.1, 0.2)])
        path.write_bytes(b"no audio")
        return clip

    @pytest.mark.parametrize("clips_at_once", [1, 2, 3])
    def test_of_several(self, model, broken, clips_at_once):
        good = bundled.clips()[:2]
        with pytest.warns(UserWarning, match=r"no maps of broken, .*: cannot read .*broken\.wav"):
            first, none, second = speechmix.mix(
                model, [good[0], broken, good[1]], clips_at_once=clips_at_once
            )
        assert none is None
        for found, clip in ((first, good[0]), (second, good[1])):
            alone = speechmix.mix(model, clip)["value_zeroing", "encoder"].scores
            np.testing.assert_allclose(found["value_zeroing", "encoder"].scores, alone, rtol=1e-4)

    def test_all_of_them(self, model, broken):
        for clips in (broken, [broken], [broken, broken]):
            with pytest.raises(InputError, match="cannot read"):
                speechmix.mix(model, clips)
