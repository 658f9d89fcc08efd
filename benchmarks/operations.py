"""How many operations a device is given for a map, and how many of them are the plain forward pass.

    python benchmarks/operations.py [--layers 4]

A GPU takes some microseconds to begin each operation, however small, so where there are many the
device waits for the host. Counted on a device that is none, for a small Whisper with random weights
and eight clips: by clip and layer this is the same for a large one. Nothing is measured in seconds,
nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from unittest.mock import patch

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import speechmix
from speechmix.adapters.model import Model
from speechmix.mixing.passes.forward_pass import compute_maps
from speechmix.mixing.passes.request import MixRequest
from tests.fake_device import FakeDevice

CLIPS = 8  # that share a pass


def whisper(layers: int) -> Model:
    """A small Whisper with random weights."""
    config = transformers.WhisperConfig(
        d_model=32,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=60,
        vocab_size=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    return speechmix.load(
        transformers.WhisperForConditionalGeneration(config), init="random", seed=0, device="cpu"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    layers = parser.parse_args().layers
    model = whisper(layers)
    inputs = {
        "input_features": torch.randn(1, model.config.num_mel_bins, 120),
        "decoder_input_ids": torch.randint(4, 100, (1, 12)),
    }
    spans = [(start, start + 5) for start in range(0, 60, 5)]
    weights_cannot_be_hashed_there = patch.object(Model, "fingerprint", model.fingerprint)
    with (
        weights_cannot_be_hashed_there,
        sdpa_kernel(SDPBackend.MATH),
        FakeDevice() as device,
        torch.no_grad(),
    ):
        device.put(model.module)
        model.family.run(
            model.base, {name: x.to("meta") for name, x in inputs.items()}, tuple(model.stacks)
        )
        plain = device.launches
        print(
            f"{layers} layers a stack, 3 stacks: forward pass {plain} operations, which clips of a "
            "batch share"
        )
        for measures in (
            ["attention"],
            ["attention_norm"],
            ["value_zeroing"],
            ["value_zeroing", "attention", "attention_norm"],
        ):
            request = MixRequest.of({"spans": spans, "targets": [3], "measures": measures})
            per_clip = {}
            for clip_count in (1, CLIPS):
                before = device.launches
                items, folders = [inputs] * clip_count, itertools.repeat(None)
                compute_maps(model, items, folders, request, model.state_dtype)
                per_clip[clip_count] = (device.launches - before - plain) / clip_count
            print(
                f"  {', '.join(measures)}: {per_clip[1]:.0f} more for a clip alone, "
                f"{per_clip[1] / (3 * layers):.0f} a layer and stack; {per_clip[CLIPS]:.0f} for each of "
                f"{CLIPS} clips of a pass, {per_clip[CLIPS] / (3 * layers):.0f} a layer and stack"
            )


if __name__ == "__main__":
    main()
