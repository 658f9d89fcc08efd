"""SYNTHETIC tables of probes, drawn with a known accuracy in every layer; no model was run for
them."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from speechmix.evaluation.statistics.claim_rule import DEFAULT_TWINS
from speechmix.extensions.probing.scores import share_interval

LAYERS = range(-1, 5)


def synthetic_probes(*given, **options) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table and answers of two clips a group, each right with the accuracy of its layer."""
    table, answers = _draw(*given, **options)
    return table.copy(), answers.copy()


@functools.cache
def _draw(
    trained=(0.5, 0.5, 0.5, 0.95, 0.98, 1.0),
    random=(0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
    *,
    groups: int = 24,
    twins: int = DEFAULT_TWINS,
    seed: int = 0,
    part: str = "all",
    stack: str = "encoder",
    position: str = "target",
    label: str = "number",
    model: str = "synthetic",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    generator, rows, answers = np.random.default_rng(seed), [], []
    names = np.repeat([f"word {number}" for number in range(groups)], 2)
    for init, number, accuracies in [
        ("trained", pd.NA, trained),
        *(("random", twin, random) for twin in range(twins)),
    ]:
        for layer, accuracy in zip(LAYERS, accuracies, strict=True):
            right = (generator.random(len(names)) < accuracy).astype(float)
            control = (
                generator.integers(2, size=(3, len(names))).mean(axis=0)
                if init == "trained"
                else np.nan
            )
            low, high = share_interval(right, names)
            place = {
                "model": model,
                "init": init,
                "seed": number,
                "part": part,
                "stack": stack,
                "position": position,
                "layer": layer,
                "depth": layer / 4,
                "label": label,
            }
            rows.append(
                {
                    **place,
                    "method": "logistic",
                    "accuracy": right.mean(),
                    "low": low,
                    "high": high,
                    "majority": 0.5,
                    "control": np.mean(control),
                    "gain_over_baseline": right.mean() - np.fmax(np.mean(control), 0.5),
                    "memorised": 0.9,
                    "macro_f1": right.mean(),
                    "n": len(names),
                    "groups": groups,
                }
            )
            items = pd.DataFrame(
                {"item": [f"clip {i:03d}" for i in range(len(names))], "group": names}
            )
            told = {"true": "sg", "predicted": "sg", "right": right, "control": control}
            answers.append(items.assign(**place, **told))
    table = pd.DataFrame(rows).astype({"seed": "Int64"})
    columns = [*table.columns[:9], "item", "group", "true", "predicted", "right", "control"]
    return table, pd.concat(answers, ignore_index=True)[columns].astype({"seed": "Int64"})
