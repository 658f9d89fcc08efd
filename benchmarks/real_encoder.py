"""Which measure ranks the words that move a state, in the trained encoder of Whisper tiny.en on
real French recordings.

    python benchmarks/real_encoder.py SHARED [--perturbations "states (zeros)" "states (noise)"]

In: the shared folder with the encoder's weights and the recordings (neither is in the package).
Out: a leaderboard for the trained encoder and for an untrained one, by each perturbation. The model was
trained on English and has no output matrix here, so what it would write cannot be asked. About ten
minutes of a core.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from functools import partial
from pathlib import Path

import transformers
from safetensors.torch import load_file

import speechmix
from speechmix.extensions.faithfulness import state_perturbation
from speechmix.extensions.faithfulness.state_perturbation import state_shifts

MEASURES = ("value_zeroing", "attention", "attention_norm", "alti", "alti_l2")
AGGREGATIONS = ("mean", "last", "rollout", "residual rollout")
SHOWN = [
    "measure",
    "aggregation",
    "value",
    "low",
    "high",
    "over_random",
    "over_length",
    "over_position",
    "p",
]


def encoder_of(shared: Path) -> transformers.WhisperModel:
    """Whisper tiny.en with all its trained weights but those of the tokens."""
    folder = shared / "data/weights/whisper_tiny_en"
    module = transformers.WhisperModel(transformers.WhisperConfig.from_pretrained(folder)).float()
    weights = load_file(folder / "whisper_tiny_en.no_embed_tokens.fp16.safetensors")
    module.load_state_dict(
        {name.removeprefix("model."): value.float() for name, value in weights.items()},
        strict=False,
    )
    return module


def clips_of(shared: Path, fewest: int = 4) -> list[speechmix.Clip]:
    """Real recordings of several words, aligned from their text."""
    folder = shared / "data/clips_fr"
    with (folder / "manifest.tsv").open(encoding="utf-8") as lines:
        rows = [
            row
            for row in csv.DictReader(lines, delimiter="\t")
            if len(row["text"].split()) >= fewest
        ]
    clips = (
        speechmix.Clip.from_file(folder / row["path"], text=row["text"], language="fr")
        for row in rows
    )
    return [speechmix.align(clip) for clip in clips]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("--perturbations", nargs="+", default=["states (zeros)", "states (noise)"])
    parser.add_argument("--metric", default="spearman")
    parser.add_argument(
        "--distance", default="cosine", help="by which the perturbation sees that a state has moved"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="clip .* alignment")
    state_perturbation.state_shifts = partial(state_shifts, distance=options.distance)
    module, clips = encoder_of(options.shared), clips_of(options.shared)
    for asked in ({}, {"init": "random", "seed": 0}):
        model = speechmix.load(module, **asked)
        trial = speechmix.faithfulness(
            model,
            clips,
            measures=MEASURES,
            perturbations=options.perturbations,
            aggregations=AGGREGATIONS,
            metrics=[options.metric],
        )
        for perturbation in trial.perturbations:
            print(f"\n{model.init}: {trial.sentence(options.metric, perturbation=perturbation)}")
            print(
                trial.leaderboard(options.metric, perturbation=perturbation)[SHOWN]
                .round(2)
                .to_string(index=False)
            )
        for reason, count in trial.left_out["reason"].value_counts().items():
            print(f"left out {count} times: {reason}")


if __name__ == "__main__":
    main()
