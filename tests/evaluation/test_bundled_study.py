"""Validity: where it is known which word carries the number, the measures find it and ablation
agrees.

Only what holds over training seeds is asserted. Statistics are fixed beforehand: trained - random
twins (five seeds) at the deciding position, in the layer of the highest lower limit of a 95 %
interval over pairs and twins; ablation accuracies on the bundled clips, chance 50 %.
"""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import speechmix
from speechmix.evaluation.statistics.random_twin_comparison import compare_with_twins
from speechmix.inputs import bundled
from speechmix.inputs.words.spans import word_spans
from speechmix.runs.results.tidy_tables import contribution_table
from tests.conftest import trained

SEEDS = range(5)

pytestmark = pytest.mark.long  # a minute; `make soak`


@pytest.fixture(scope="module")
def clips():
    return [clip for clip in bundled.clips() if clip.foil]


@pytest.fixture(scope="module")
def models():
    return {name: trained(name) for name in bundled.models()}


@pytest.fixture(scope="module")
def contributions(clips, models):
    tables = []
    for name, folder in bundled.models().items():
        twins = [speechmix.load(folder, init="random", seed=seed, device="cpu") for seed in SEEDS]
        for model in (models[name], *twins):
            for clip, maps in zip(
                clips, speechmix.mix(model, clips, targets="target"), strict=True
            ):
                table = contribution_table(maps, clip, model)
                tables.append(table.assign(side=clip.meta["side"], pair=clip.meta["pair"]))
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def accuracy(clips, models):
    tables = [
        speechmix.ablate(model, clip).assign(model=name, side=clip.meta["side"])
        for name, model in models.items()
        for clip in clips
    ]
    return pd.concat(tables).groupby(["model", "side", "ablated"]).right.mean()


def largest_lower_limit(contributions, model, side, stack, rows):
    """Of the difference to untrained twins, among the layers of a stack."""
    chosen = contributions.query(
        "model == @model and side == @side and stack == @stack and rows == @rows"
    )
    return compare_with_twins(chosen, by=["model", "layer"], group="pair")["low"].max()


def test_a_left_cue_reaches_the_decoder_through_its_self_attention(contributions):
    assert (
        largest_lower_limit(contributions, "tiny-french-whisper", "left", "decoder", "deciding") > 0
    )


def test_a_right_cue_reaches_the_decoder_through_cross_attention(contributions):
    assert (
        largest_lower_limit(contributions, "tiny-french-whisper", "right", "cross", "deciding") > 0
    )


def test_the_encoder_of_the_ctc_model_brings_a_left_cue_into_the_target(contributions):
    assert largest_lower_limit(contributions, "tiny-french-ctc", "left", "encoder", "target") > 0


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model", ["tiny-french-ctc", "tiny-french-whisper"])
def test_intact_models_choose_the_right_number(accuracy, model, side):
    assert accuracy[model, side, "none"] >= 0.9


@pytest.mark.parametrize(("side", "carries"), [("left", "decoder"), ("right", "cross")])
def test_ablation_falls_to_chance_in_the_stack_that_carries_the_cue_and_in_no_other(
    accuracy, side, carries
):
    for stack in ("encoder", "decoder", "cross"):
        found = accuracy["tiny-french-whisper", side, stack]
        if stack == carries:
            assert 0.3 <= found <= 0.7
        else:
            assert found >= 0.8


def test_the_ctc_model_is_at_chance_without_a_left_cue_in_its_only_stack(accuracy):
    assert 0.3 <= accuracy["tiny-french-ctc", "left", "encoder"] <= 0.7


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_the_ctc_model_keeps_without_attention_comes_by_its_positional_convolution(
    clips, models, side
):
    model = models["tiny-french-ctc"]
    frames: list[int] = []

    def silence(module, args):
        return (args[0].index_fill(1, torch.tensor(frames), 0), *args[1:])

    handle = model.base.encoder.pos_conv_embed.register_forward_pre_hook(silence)
    right = []
    for clip in (clip for clip in clips if clip.meta["side"] == side):
        cue = word_spans(clip.words, model.grid(len(clip.audio())))[clip.cue]
        frames[:] = range(cue.start, cue.stop)
        right.append(speechmix.ablate(model, clip).set_index("ablated").right["encoder"])
    handle.remove()
    assert 0.3 <= sum(right) / len(right) <= 0.7


def test_twins_are_at_chance(clips):
    twin = speechmix.load(
        bundled.models()["tiny-french-whisper"], init="random", seed=0, device="cpu"
    )
    right = [speechmix.ablate(twin, clip, stacks=[]).right[0] for clip in clips]
    assert 0.3 <= sum(right) / len(right) <= 0.7


def test_members_of_a_pair_are_bit_identical_from_the_target_on_or_up_to_the_cue(clips):
    pairs = {}
    for clip in clips:
        pairs.setdefault(clip.meta["pair"], []).append(clip)
    for one, other in pairs.values():
        a, b = one.audio(), other.audio()
        assert len(a) == len(b)
        if one.meta["side"] == "left":
            start = round(one.words[one.target].start * 16_000)
            assert (a[start:] == b[start:]).all()
            assert (a[:start] != b[:start]).any()
        else:
            stop = round(one.words[one.cue].start * 16_000)
            assert (a[:stop] == b[:stop]).all()
            assert (a[stop:] != b[stop:]).any()
