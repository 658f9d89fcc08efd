"""How well do alignment heads tell word times? The chosen heads, the model's default and random ones, on held-out clips.

    python recipes/alignment_heads_evaluation.py FOLDER [FOLDER ...] [--clips 200]

Clips are synthetic (espeak-ng, extra `synthesis`), so that word times are known to the sample, and of voices that
the models of `train_tiny_models.py` and `train_hallucinating_whisper.py` are not trained on.
"""

from __future__ import annotations

import argparse
import sys

import speechmix
from speechmix.extensions.synthetic_french.synthetic_corpus import random_pair

SEED = 80_000


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--effect-clips", type=int, default=20)
    options = parser.parse_args(arguments)
    clips = [
        random_pair(index, seed=SEED, voices_of="test")[index % 2].clip()
        for index in range(options.clips)
    ]
    for name in options.models:
        heads = speechmix.alignment_heads(
            speechmix.load(name), clips, effect_clips=options.effect_clips, progress=True
        )
        print(heads)
        print(heads.comparison.round(1).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
