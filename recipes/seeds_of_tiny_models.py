"""How much of the bundled study depends on the training seed: layer profiles of several trained
tiny models.

    python recipes/seeds_of_tiny_models.py runs/tiny_models*/tiny-french-whisper --out runs/seeds.csv

In: folders of models of one architecture, trained by `train_tiny_models.py` with other seeds. Out:
a table, printed and written as CSV: per model, side of the cue and stack, the cue's contribution
(Value Zeroing, %, mean over the bundled clips) layer by layer

- to the deciding position of the target (without a decoder: to the target), in singulars and in
  plurals too,
- to the word after the target, where there is one: specificity,
- to the target where the noun is spelled alike in both numbers: the control,

and the number accuracy that is left when the cue's values are silenced in that stack. Synthetic;
see the models' cards.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
from tqdm import tqdm

import speechmix
from speechmix.files.text_files import write_csv
from speechmix.inputs import bundled


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/seeds.csv"))
    options = parser.parse_args(arguments)
    tables = [read(folder) for folder in options.models]
    table = pd.concat(tables, ignore_index=True)
    write_csv(table, options.out)
    print(summary(table).to_string())
    print(f"wrote {options.out}")
    return 0


def read(folder: Path) -> pd.DataFrame:
    """One row per clip, stack, layer and reading; and the accuracies of ablation."""
    model, rows = speechmix.load(folder), []
    for clip in tqdm(bundled.clips(), desc=str(folder), disable=None):
        about = {"model": str(folder), "side": clip.meta["side"]}
        for (_, stack), found in speechmix.mix(model, clip).items():
            for reading, shares in contributions(found, clip, stack):
                rows += [
                    {**about, "stack": stack, "reading": reading, "layer": i, "value": x}
                    for i, x in enumerate(shares)
                ]
        if clip.foil:
            right = speechmix.ablate(model, clip)
            rows += [
                {
                    **about,
                    "stack": stack,
                    "reading": "number right when silenced",
                    "layer": -1,
                    "value": float(ok),
                }
                for stack, ok in zip(right.ablated, right.right, strict=True)
            ]
    return pd.DataFrame(rows)


def contributions(found, clip, stack: str):
    """Which contributions can be read off a clip's map, with their layers."""
    rows = "deciding" if clip.foil and stack != "encoder" else "target"
    name = "target" if clip.foil else "invariant noun"
    shares = speechmix.cue_contribution(found, cue=clip.cue, target=clip.target, rows=rows)
    yield name, shares
    if clip.foil:
        yield f"target, {clip.meta['number']}", shares
    after = clip.target + 1
    if after < len(clip.words) and after != clip.cue:
        yield "word after", speechmix.cue_contribution(found, cue=clip.cue, target=after)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means in %, one column per layer ("silenced": the accuracy left)."""
    named = table.assign(
        layer=table.layer.map(lambda layer: f"layer {layer}" if layer >= 0 else "accuracy left")
    )
    keys = ["side", "stack", "reading", "model"]
    return (
        100 * named.pivot_table(index=keys, columns="layer", values="value", aggfunc="mean")
    ).round(1)


if __name__ == "__main__":
    sys.exit(main())
