"""Fit a tuned lens (Belrose et al. 2023) to a model on clips, and check it on held-out clips.

    python recipes/fit_tuned_lens.py bundled:tiny-french-ctc --clips bundled:clips --out runs/lens.npz

Each layer gets an affine map, at first the identity, that is trained (Adam) so that the outputs behind it come close to
those of the last layer: the mean over positions of KL(last layer || this layer), in nats. Clips with the same text, pair
or word stay together. 3/5 of the groups train the maps, 1/5 choose the epoch (with the identity among them, so that
a map which learns nothing general stays the logit lens), and 1/5 are the check, which is printed and written beside
the maps (.csv): `logit` is the divergence without the map, `tuned` with it.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import speechmix
from speechmix.adapters.capture.device_copy import inputs_to_device
from speechmix.errors import InputError
from speechmix.evaluation.statistics.groups import assign_groups, build_item_table
from speechmix.extensions.lens.lens import LayerReplay, lens_stack, prepare_item
from speechmix.extensions.lens.lens_result import TunedLens
from speechmix.files.text_files import write_csv
from speechmix.inputs import bundled

MIN_GROUPS, LEARNING_RATE = 5, 1e-3


def fit_tuned_lens(
    model: speechmix.adapters.Model,
    clips: Sequence[speechmix.Clip],
    *,
    kind: str = "logit",
    epochs: int = 20,
    seed: int = 0,
) -> tuple[TunedLens, pd.DataFrame]:
    """Return the maps, and the check on held-out clips by layer."""
    stack = lens_stack(model, kind)
    training, choosing, held_out = split_clips(clips, seed)
    layers = range(-1, len(model.stacks[stack]) - 1)
    maps = [identity_map(model.stacks[stack].width, model) for _ in layers]
    best, least = copy.deepcopy(maps), divergences(model, stack, choosing, maps)
    for epoch in range(epochs):
        optimizer = torch.optim.Adam(
            [parameter for each in maps for parameter in each.parameters()],
            lr=LEARNING_RATE * (1 - epoch / epochs),
        )
        for clip in training:
            divergences(model, stack, [clip], maps, optimizer)
        now = divergences(model, stack, choosing, maps)
        for index in np.flatnonzero(now < least):
            best[index], least[index] = copy.deepcopy(maps[index]), now[index]
    check = pd.DataFrame(
        {
            "layer": list(layers),
            "logit": divergences(model, stack, held_out, [None for _ in layers]),
            "tuned": divergences(model, stack, held_out, best),
        }
    )
    arrays = [
        torch.cat([each.weight.T, each.bias[None]]).detach().float().cpu().numpy() for each in best
    ]
    return TunedLens(stack, model.fingerprint, np.stack(arrays)), check


def identity_map(width: int, model: speechmix.adapters.Model) -> nn.Linear:
    """Return a map that changes nothing."""
    layer = nn.Linear(width, width, device=model.device, dtype=model.state_dtype)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def split_clips(
    clips: Sequence[speechmix.Clip], seed: int
) -> tuple[list[speechmix.Clip], list[speechmix.Clip], list[speechmix.Clip]]:
    """Return clips that train, that choose the epoch, and that are the check."""
    names, group_of_clip = np.unique(
        assign_groups(build_item_table(clips))[0].to_numpy(str), return_inverse=True
    )
    if len(names) < MIN_GROUPS:
        raise InputError(f"expected at least {MIN_GROUPS} groups of clips, found {len(names)}")
    fifth_of_group = 5 * np.random.default_rng(seed).permutation(len(names)) // len(names)
    fifths = fifth_of_group[group_of_clip]
    parts = [[0, 1, 2], [3], [4]]
    return tuple(
        [clip for clip, fifth in zip(clips, fifths, strict=True) if fifth in part] for part in parts
    )


def divergences(
    model: speechmix.adapters.Model,
    stack: str,
    clips: Sequence[speechmix.Clip],
    maps: Sequence[nn.Linear | None],
    optimizer: torch.optim.Optimizer | None = None,
) -> np.ndarray:
    """Return the divergence of each layer, mean over positions; with an optimizer, train the maps."""
    sums, count = np.zeros(len(maps)), 0
    for clip in clips:
        inputs = prepare_item(model, clip)[0].inputs
        with model.in_use(model.state_dtype), torch.no_grad():
            inputs = inputs_to_device(inputs, model.device, model.state_dtype)
            last = log_probabilities(model, inputs)
            replay = LayerReplay.record(model, stack, inputs)
            count += len(last)
            for index, each in enumerate(maps):
                with torch.set_grad_enabled(optimizer is not None):
                    with replay.ending_at(index - 1, each):
                        ended = log_probabilities(model, inputs)
                    divergence = (last.exp() * (last - ended)).sum(dim=-1)
                    if optimizer is not None:
                        divergence.mean().backward()
                sums[index] += float(divergence.sum())
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return sums / max(count, 1)


def log_probabilities(model: speechmix.adapters.Model, inputs: dict[str, Tensor]) -> Tensor:
    """Return what the model gives for an item [T, V]."""
    return model.run_with_head(inputs).logits[0].log_softmax(dim=-1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", help="hub id, folder or bundled:NAME")
    parser.add_argument("--clips", required=True, help="manifest, or bundled:clips")
    parser.add_argument("--kind", choices=("logit", "encoder"), default="logit")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, required=True, help=".npz, for speechmix.lens(tuned=)")
    options = parser.parse_args(arguments)
    is_bundled = options.clips == "bundled:clips"
    clips = bundled.clips() if is_bundled else list(speechmix.read_clips(options.clips))
    model = speechmix.load(options.model, device=options.device)
    tuned, check = fit_tuned_lens(
        model, clips, kind=options.kind, epochs=options.epochs, seed=options.seed
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    tuned.save(options.out)
    write_csv(check, options.out.with_suffix(".csv"))
    print(check.round(3).to_string(index=False))
    print(f"saved: {options.out}")


if __name__ == "__main__":
    main()
