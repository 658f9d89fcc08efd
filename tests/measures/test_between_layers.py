"""Models in which a convolution mixes positions between layers (DeBERTa-v2 xlarge): what follows
states over layers says so."""

from __future__ import annotations

import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError

INPUTS = {"input_ids": torch.tensor([[1, 5, 6, 7, 8, 9, 2]])}


def deberta(kernel):
    config = transformers.DebertaV2Config(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        relative_attention=True,
        position_buckets=4,
        pos_att_type=["p2c", "c2p"],
        conv_kernel_size=kernel,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.DebertaV2ForMaskedLM(config).eval()


def test_chefer_refuses():
    model = speechmix.load(deberta(kernel=3))
    with pytest.raises(
        InputError, match=r"chefer: the encoder .* has a convolution behind its first layer"
    ):
        speechmix.mix(model, INPUTS, measures="chefer", objective=(3, 7))


def test_maps_of_layers_warn_and_note_it():
    model = speechmix.load(deberta(kernel=3))
    with pytest.warns(UserWarning, match="a rollout or a composed map leaves that mixing out"):
        maps = speechmix.mix(model, INPUTS, measures="attention")
    rolled = maps["attention", "encoder"].rollout()
    assert "a convolution behind its first layer" in rolled.provenance["between_layers"]


@pytest.mark.filterwarnings("error")
def test_without_the_convolution_nothing_is_said():
    model = speechmix.load(deberta(kernel=0))
    maps = speechmix.mix(model, INPUTS, measures=["attention", "chefer"], objective=(3, 7))
    assert "between_layers" not in maps["attention", "encoder"].provenance
