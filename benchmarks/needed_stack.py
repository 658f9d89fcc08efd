"""Which measure puts the stack first that the decision needs? Contribution of the cue against
ablation, stack by stack.

    python benchmarks/needed_stack.py [MODEL ...] [--twins 3] [--clips 0] [--out runs/needed_stack.csv]

In: folders of encoder-decoder models (the bundled Whisper-style one by default; other training
seeds come from `train_tiny_models.py --seed`), asked about the bundled clips. Needed is the stack
whose ablation costs the most spelling (clips of one side together). For each measure and way to put
layers together: the share of clips in which the needed stack has the largest contribution of the
cue, of the trained model, and of the trained model less the mean of its random twins; and whether
it has for all clips of a side together. Knock-out and patching stand below, as what judges of the
decision itself give. SYNTHETIC models and clips. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import speechmix
from speechmix.files.text_files import write_csv
from speechmix.inputs import bundled

MEASURES = (
    "value_zeroing",
    "attention",
    "attention_norm",
    "attention_norm_residual",
    "globenc",
    "alti",
    "alti_l2",
    "random",
)
TOGETHER = {"best layer": np.nanmax, "mean": np.nanmean, "last": lambda shares: shares[-1]}


def contributions(model, clip) -> list[dict]:
    """Contribution of the cue by stack, measure and way to put layers together."""
    rows = []
    for measure in MEASURES:
        for stack in model.stacks:
            try:
                mixing_map = speechmix.mix(model, clip, measures=[measure], stacks=[stack])[
                    measure, stack
                ]
                which = "target" if stack == "encoder" else "deciding"
                shares = speechmix.cue_contribution(
                    mixing_map, cue=clip.cue, target=clip.target, rows=which
                )
            except (
                speechmix.SpeechmixError
            ):  # not defined for this stack, or the cue comes after what is decided
                continue
            rows += [
                {
                    "measure": measure,
                    "together": name,
                    "stack": stack,
                    "value": float(function(shares)),
                }
                for name, function in TOGETHER.items()
            ]
    return rows


def judges(model, clip, other) -> list[dict]:
    """The largest drop over layers with the cue knocked out, or patched, by stack."""
    maps = {"knock_out": speechmix.knock_out(model, clip, words=[clip.cue])}
    maps["patch (values)"] = speechmix.patch(model, clip, other, what="values", words=[clip.cue])
    return [
        {
            "measure": name,
            "together": "best layer",
            "stack": stack,
            "value": float(np.nanmax(drops.scores(stack))),
        }
        for name, drops in maps.items()
        for stack in drops.stacks
    ]


def table_of(folder: Path, name: str, clips, twins: int) -> pd.DataFrame:
    """Rows of one trained model and its twins, and what is left right with the cue ablated."""
    by_pair = {(clip.meta["pair"], clip.name): clip for clip in clips}
    models = [speechmix.load(folder, device="cpu")]
    models += [
        speechmix.load(folder, init="random", seed=seed, device="cpu") for seed in range(twins)
    ]
    rows = []
    for model in models:
        for clip in clips:
            about = {
                "model": name,
                "init": model.init,
                "clip": clip.name,
                "side": clip.meta["side"],
            }
            parts = contributions(model, clip)
            if model.init == "trained":
                other = next(
                    c
                    for (pair, name), c in by_pair.items()
                    if pair == clip.meta["pair"] and name != clip.name
                )
                parts += judges(model, clip, other)
                ablated = speechmix.ablate(model, clip)
                parts += [
                    {
                        "measure": "ablation",
                        "together": "",
                        "stack": row.ablated,
                        "value": float(row.right),
                    }
                    for row in ablated.itertuples()
                ]
            rows += [{**about, **part} for part in parts]
    return pd.DataFrame(rows)


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Share of clips (%) in which each measure puts the needed stack first; and whether the mean
    over clips does."""
    rows = []
    for (model, side), part in table.groupby(["model", "side"], sort=False):
        left = part[part["measure"] == "ablation"].groupby("stack")["value"].mean()
        needed = left.drop("none").idxmin()
        scores = part[part["measure"] != "ablation"]
        for (measure, together), of_measure in scores.groupby(["measure", "together"], sort=False):
            means = of_measure.groupby(["init", "clip", "stack"])["value"].mean().unstack("stack")
            trained = means.loc["trained"]
            row = {
                "model": model,
                "side": side,
                "needed": needed,
                "left (%)": 100 * left[needed],
                "measure": measure,
            }
            row |= {
                "together": together,
                "clips": len(trained),
                **_hits(trained, needed, "trained"),
            }
            if "random" in means.index:
                row |= _hits(
                    trained - means.loc["random"].reindex(trained.index), needed, "less twins"
                )
            rows.append(row)
    return pd.DataFrame(rows)


def _hits(values: pd.DataFrame, needed: str, what: str) -> dict:
    share = (
        100 * (values.dropna(how="all").idxmax(axis=1) == needed).mean()
        if needed in values
        else 0.0
    )
    first = values.mean().idxmax()
    return {f"{what}: clips (%)": round(share, 1), f"{what}: first": first}


def _distinct(folders: list[Path]) -> list[str]:
    """Names of folders, with as much of the path before as tells them apart: two trainings have one
    name."""
    parts = next(
        n for n in range(1, 99) if len({f.resolve().parts[-n:] for f in folders}) == len(folders)
    )
    return ["/".join(folder.resolve().parts[-parts:]) for folder in folders]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "models", nargs="*", type=Path, default=[bundled.models()["tiny-french-whisper"]]
    )
    parser.add_argument("--twins", type=int, default=3)
    parser.add_argument("--clips", type=int, default=0, help="of each side; 0: all")
    parser.add_argument("--out", type=Path, default=Path("runs/needed_stack.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    clips = [clip for clip in bundled.clips() if clip.meta["control"] == "no"]
    if options.clips:
        clips = [
            c
            for side in ("left", "right")
            for c in [x for x in clips if x.meta["side"] == side][: options.clips]
        ]
    named = dict(zip(_distinct(options.models), options.models, strict=True))
    table = pd.concat(
        [table_of(folder, name, clips, options.twins) for name, folder in named.items()],
        ignore_index=True,
    )
    result = verdicts(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_csv(result, options.out)
    print(result.to_string(index=False))


if __name__ == "__main__":
    main()
