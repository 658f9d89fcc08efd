"""Every measure against the slow oracle, for every family, both norm orders, all stacks."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from tests import oracle
from tests.conftest import inputs_of, maps_of, tiny

SPANS = [(3, 9), (9, 10), (12, 31), (40, 59)]


def sides(model, stack, n_tokens=7):
    frames = [list(range(a, b)) for a, b in SPANS]
    tokens = [[i] for i in range(n_tokens)]
    return (frames if stack == "encoder" else tokens), (tokens if stack == "decoder" else frames)


def close(found, expected, tolerance=1e-9):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(
    ("distance", "pooling"),
    [("cosine", "mean"), pytest.param("euclidean", "max", marks=pytest.mark.every_family)],
)
def test_value_zeroing_is_rerunning_the_layer_with_zeroed_values(model, distance, pooling):
    inputs = inputs_of(model)
    measure = f"value_zeroing:distance={distance}"
    maps = speechmix.mix(model, inputs, measures=measure, spans=SPANS, pooling=pooling)
    for stack in model.stacks:
        targets, sources = sides(model, stack)
        expected = oracle.value_zeroing(
            model.module, inputs, stack, targets, sources, distance, pooling
        )
        close(maps[measure, stack].scores, expected)


def test_value_zeroing_of_each_head_zeroes_that_head_alone(model):
    inputs = inputs_of(model)
    maps = speechmix.mix(model, inputs, spans=SPANS, heads="each")
    for stack in model.stacks:
        targets, sources = sides(model, stack)
        for head in (0, 3):
            expected = oracle.value_zeroing(
                model.module, inputs, stack, targets, sources, head=head
            )
            close(maps["value_zeroing", stack].scores[:, head], expected)


def test_attention_and_attention_norm_are_the_explicit_tensors(model, family_name):
    if family_name.startswith("wavlm"):
        pytest.skip(
            "transformers returns WavLM's attention weights averaged over heads; the next test "
            "covers them"
        )
    inputs = inputs_of(model)
    maps = speechmix.mix(model, inputs, measures=["attention", "attention_norm"], heads="each")
    summed = speechmix.mix(model, inputs, measures=["attention_norm"])
    for stack in model.stacks:
        close(
            maps["attention", stack].scores,
            oracle.attention_weights(model.module, inputs, stack).numpy(),
        )
        close(
            maps["attention_norm", stack].scores,
            oracle.attention_norm(model.module, inputs, stack, each_head=True),
        )
        close(
            summed["attention_norm", stack].scores,
            oracle.attention_norm(model.module, inputs, stack),
        )


@pytest.mark.parametrize("family_name", ["wavlm-post", "wavlm-stable"])
def test_wavlm_attention_is_per_head_and_averages_to_what_transformers_returns(model):
    inputs = inputs_of(model)
    found = speechmix.mix(model, inputs, measures=["attention"], heads="each")[
        "attention", "encoder"
    ].scores
    averaged = oracle.attention_weights(model.module, inputs, "encoder").numpy()
    close(found.mean(axis=1), averaged[:, 0])
    assert np.abs(found[:, 0] - found[:, 1]).max() > 0.01


@pytest.mark.every_family
def test_frames_as_units_equal_single_frame_spans(model):
    inputs = inputs_of(model)
    whole = speechmix.mix(model, inputs, stacks=["encoder"])["value_zeroing", "encoder"]
    some = speechmix.mix(model, inputs, stacks=["encoder"], spans=[(4, 5), (20, 21)])[
        "value_zeroing", "encoder"
    ]
    close(some.scores, whole.scores[:, [4, 20]][:, :, [4, 20]])


def test_padded_wav2vec2_input_with_a_mask():
    model = tiny("wav2vec2-stable")
    inputs = inputs_of(model)
    inputs["attention_mask"] = (np.arange(19_280) < 12_000).astype(int)[None]
    inputs = {key: __import__("torch").as_tensor(value) for key, value in inputs.items()}
    found = speechmix.mix(model, inputs, spans=SPANS[:3])["value_zeroing", "encoder"].scores
    frames = [list(range(a, b)) for a, b in SPANS[:3]]
    close(found, oracle.value_zeroing(model.module, inputs, "encoder", frames, frames))


@pytest.mark.parametrize("batch_size", [1, 7, 64, 100_000])
def test_batch_size_changes_nothing(batch_size, set_pair_batches):
    expected = maps_of("whisper-80", ("value_zeroing",), spans=tuple(SPANS))
    set_pair_batches(batch_size)
    model = tiny("whisper-80")
    found = speechmix.mix(model, inputs_of(model), spans=SPANS)
    for key in expected:
        close(found[key].scores, expected[key].scores, 1e-12)


@pytest.mark.every_family
def test_chosen_targets_are_rows_of_the_whole_map(model):
    inputs = inputs_of(model)
    rows = {"encoder": [2, 0], "decoder": [5, 1], "cross": [6]}
    measures = ["value_zeroing", "attention", "attention_norm"]
    whole = speechmix.mix(model, inputs, spans=SPANS, measures=measures)
    some = speechmix.mix(model, inputs, spans=SPANS, measures=measures, targets=rows)
    for (measure, stack), found in some.items():
        close(found.scores, whole[measure, stack].scores[:, rows[stack]])
        assert [t.label for t in found.targets] == [
            whole[measure, stack].targets[i].label for i in rows[stack]
        ]
