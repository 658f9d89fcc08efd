"""A real trained model whose task is known exactly: does each measure point to where the sorted
digit comes from?

    python -m benchmarks.sorting FOLDER [--step 7] [--out sorting.csv]

In: the weights of a minGPT that sorts six digits of 0, 1, 2 (gpt-nano-sort-model.json of
bbycroft/llm-viz, MIT), fed six digits and the sorted ones written so far. The row that writes a
digit is asked three things, layer by layer, rolled out and averaged:

    share       of the row (what it has written included) on input digits that equal the one it writes
    of digits   the same of what falls on the six input digits
    spearman    over the six input digits, of the row with what the digit's probability loses when another digit stands there
                (mean over the two others); what was written before stays

Beside the measures: random scores, and "the digit", a row that has all equal digits in even shares
and nothing else. Every step-th of the 729 lists; means over lists and the six places. Nothing is
asserted here; `test_sorting.py` does that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import speechmix
from speechmix.extensions.faithfulness.word_scores import spearman
from speechmix.files.text_files import write_csv
from speechmix.mixing.maps.measure_registry import measure_facts
from speechmix.mixing.maps.numerics import normalize_rows
from tests.models.sorting_model import DIGITS, gpt_nano, sorting

MEASURES = (
    "value_zeroing",
    "attention",
    "attention_norm",
    "attention_norm_residual",
    "alti",
    "alti_l2",
    "gradient_input",
    "random",
)
KNOWN = "the digit"


def drops_of(model, ids: np.ndarray, place: int, digit: int) -> np.ndarray:
    """What the probability of a digit at a place loses with each input digit exchanged, [6]."""
    changed = np.repeat(ids[None], 2 * DIGITS, axis=0)
    for position in range(DIGITS):
        changed[2 * position : 2 * position + 2, position] = [
            other for other in range(3) if other != ids[position]
        ]
    with torch.no_grad():
        logits = model.module(torch.tensor(np.concatenate([ids[None], changed]))).logits.double()
    intact, *without = logits[:, DIGITS - 1 + place].softmax(-1)[:, digit].tolist()
    return intact - np.reshape(without, (DIGITS, 2)).mean(axis=1)


def rows_of(
    model, ids: np.ndarray, place: int, digit: int, measures, maps
) -> Iterator[tuple[str, str, np.ndarray]]:
    """The row that writes a digit, by measure and way to put layers together; shares of what it
    sees."""
    row = DIGITS - 1 + place
    for name in measures:
        if measure_facts(name).objective:
            found = speechmix.mix(
                model, {"input_ids": torch.tensor(ids[None])}, measures=name, objective=(row, digit)
            )
            shares = normalize_rows(found[name, "decoder"].scores[:, 0, : row + 1].astype(float))
        else:
            shares = normalize_rows(maps[name, "decoder"].scores[:, row, : row + 1].astype(float))
            for way, residual in (
                ("rollout", None),
                ("residual rollout", True),
                ("strength rollout", "strength"),
            ):
                rolled = maps[name, "decoder"].rollout(residual=residual)
                yield name, way, rolled.scores[-1, row, : row + 1].astype(float)
        yield name, "mean", shares.mean(axis=0)
        yield from ((name, f"layer {layer}", share) for layer, share in enumerate(shares))


def table_of(model, *, step: int = 7, measures=MEASURES, places=range(DIGITS)) -> pd.DataFrame:
    """One row for each list, place, measure and way: share, of digits, spearman; and what an even
    row would have."""
    inputs, solutions = sorting(step)
    rows: list[dict[str, Any]] = []
    for number, (ids, solution) in enumerate(zip(inputs, solutions, strict=True)):
        of_blocks = [name for name in measures if not measure_facts(name).objective]
        maps = speechmix.mix(model, {"input_ids": torch.tensor(ids[None])}, measures=of_blocks)
        for place in places:
            digit = int(solution[place])
            drops = drops_of(model, ids, place, digit)
            holds = ids[:DIGITS] == digit
            known = np.concatenate([holds / holds.sum(), np.zeros(place)])
            for name, way, row in (
                *rows_of(model, ids, place, digit, measures, maps),
                (KNOWN, "", known),
            ):
                told = {
                    "list": number,
                    "place": place,
                    "measure": name,
                    "way": way,
                    "even": holds.sum() / len(row),
                }
                on_digit, on_digits = row[:DIGITS][holds].sum(), row[:DIGITS].sum()
                told |= {
                    "share": _part(on_digit, row.sum()),
                    "of digits": _part(on_digit, on_digits),
                }
                rows.append(
                    {
                        **told,
                        "even of digits": holds.mean(),
                        "spearman": spearman(row[:DIGITS], drops),
                    }
                )
    return pd.DataFrame(rows)


def _part(part: float, whole: float) -> float:
    return part / whole if whole > 0 else np.nan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--step", type=int, default=7, help="every so many lists (default: 7)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, _ = gpt_nano(options.folder)
    table = table_of(model, step=options.step)
    if options.out:
        write_csv(table, options.out)
    even = f"share {table['even'].mean():.2f}, of digits {table['even of digits'].mean():.2f}"
    known = table.loc[table["measure"] == KNOWN, "spearman"].mean()
    print(
        f"{table['list'].nunique()} lists, {DIGITS} places; an even row: {even}; {KNOWN}: spearman "
        f"{known:.2f}"
    )
    for column in ("share", "of digits", "spearman"):
        measured = table[table["measure"] != KNOWN]
        means = measured.pivot_table(index="way", columns="measure", values=column, sort=True)[
            list(MEASURES)
        ]
        print(f"\n{column}\n{means.round(2).to_string()}")


if __name__ == "__main__":
    main()
