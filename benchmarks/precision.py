"""How far each precision is from float64: relative errors of Value Zeroing scores, as a Markdown
table.

    python benchmarks/precision.py [--shared ../shared]

In: the small golden speech models, and the real trained Whisper tiny.en encoder on real French
clips, both from the shared folder beside the project. Out: for each way of computing, the largest
and the median error of a score, relative to that score, over all scores of at least 1e-7; and what
the smallest score was. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

import speechmix

WAYS = {
    "delta, float32": "value_zeroing",
    "delta, bfloat16 products": "value_zeroing:product_dtype=bfloat16",
    "replay, float32": "value_zeroing:engine=replay",
}
SMALLEST = 1e-7
SPANS = [(7, 21), (21, 40), (45, 60)]


def golden(shared: Path):
    """The golden models with their inputs."""
    for name, file in (
        ("whisper", "whisper_inputs"),
        ("wav2vec2_stable", "wav2vec2_inputs"),
        ("wav2vec2_post", "wav2vec2_inputs"),
    ):
        model = speechmix.load(shared / "golden/speech" / name, device="cpu")
        inputs = {
            key: torch.as_tensor(value)
            for key, value in np.load(shared / f"golden/speech/{file}.npz").items()
        }
        known = {"input_values", "attention_mask", "input_features", "decoder_input_ids"}
        yield (
            f"golden {name}",
            model,
            [{key: value for key, value in inputs.items() if key in known}],
            {"spans": SPANS},
        )


def tiny_en(shared: Path, count: int = 6):
    """The trained encoder of Whisper tiny.en, with real clips aligned from their text."""
    folder = shared / "data/weights/whisper_tiny_en"
    module = transformers.WhisperModel(transformers.WhisperConfig.from_pretrained(folder)).float()
    weights = load_file(folder / "whisper_tiny_en.no_embed_tokens.fp16.safetensors")
    weights = {name.removeprefix("model."): value.float() for name, value in weights.items()}
    module.load_state_dict(weights, strict=False)
    model = speechmix.load(module, device="cpu")
    manifest = (shared / "data/clips_fr/manifest.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in manifest[1 : count + 1]]
    clips = [
        speechmix.Clip.from_file(shared / "data/clips_fr" / row[0], text=row[1], language="fr")
        for row in rows
    ]
    return (
        "real Whisper tiny.en encoder",
        model,
        [speechmix.align(clip) for clip in clips],
        {"stacks": ["encoder"]},
    )


def errors(model, items, options) -> dict[str, tuple[float, float]]:
    expected = [speechmix.mix(model, item, dtype="float64", **options) for item in items]
    rows = {}
    for way, measure in WAYS.items():
        relative = []
        for item, reference in zip(items, expected, strict=True):
            maps = speechmix.mix(model, item, measures=measure, **options)
            for (_, stack), found in maps.items():
                scores = reference["value_zeroing", stack].scores
                kept = scores >= SMALLEST
                relative.append((np.abs(found.scores - scores)[kept] / scores[kept]).ravel())
        rows[way] = (
            float(np.max(np.concatenate(relative))),
            float(np.median(np.concatenate(relative))),
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | computed with | largest error | median error |\n|---|---|---|---|")
    for name, model, items, more in (*golden(options.shared), tiny_en(options.shared)):
        for way, (largest, median) in errors(model, items, more).items():
            print(f"| {name} | {way} | {largest:.1e} | {median:.1e} |", flush=True)


if __name__ == "__main__":
    main()
