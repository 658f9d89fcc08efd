"""Page section with the faithfulness evaluation of a run.

The section with the faithfulness evaluation of a run, if it has one.

In: ``faithfulness.csv`` in a run's folder, as `speechmix faithfulness --out RUN` writes it. Out: a
part of the page, or none.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.text_files import read_csv
from ...reporting.pages.html_page import Item
from ...reporting.pages.page_sections import PageContent, PageSection
from .leaderboard import FILE, describe_leaderboard, is_measure_row

_INTRODUCTION = (
    "Which measure ranks words as the model needs them? “mean” is Spearman's rank correlation of "
    "attribution scores with the effects of a reference perturbation: 1 is the same order, 0 no "
    "relation, −1 the reverse order. Baselines are random scores, words ordered by length or by "
    "distance to the target, and the reference itself. “over” is the difference from a baseline. p is "
    "the largest of three tests, corrected for multiple comparisons over all rankings. Knock-out is "
    "close to Value Zeroing: both zero value vectors. faithfulness.csv has all references and "
    "metrics."
)
_METRIC, _MAX_MEASURES = "spearman", 8
_TEXT_COLUMNS = (
    "stack",
    "measure",
    "aggregation",
    "perturbation",
    "metric",
    "model",
    "init",
    "seed",
    "better",
    "note",
)
_COLUMN_NAMES = {
    "stack": "stack",
    "measure": "measure",
    "aggregation": "layers",
    "value": "mean",
    "low": "low",
    "high": "high",
    "over_random": "over random",
    "over_length": "over length",
    "over_position": "over position",
    "p": "p",
    "note": "note",
}


def _faithfulness_items(content: PageContent) -> list[Item]:
    """Return the leaderboards of a run's faithfulness evaluation, each with a sentence."""
    table = _read_faithfulness_table(content.folder / FILE)
    items: list[Item] = [_INTRODUCTION]
    for key, leaderboard in table[table["metric"] == _METRIC].groupby(
        ["model", "init", "seed", "perturbation"], sort=False
    ):
        model, init, seed, perturbation = map(str, key)
        weights = f"{init}, seed {seed}" if init == "random" else init
        leaderboard = leaderboard.reset_index(drop=True)
        measures = is_measure_row(leaderboard, perturbation)
        shown_rows = leaderboard[(measures & (measures.cumsum() <= _MAX_MEASURES)) | ~measures]
        formatted = shown_rows[list(_COLUMN_NAMES)].rename(columns=_COLUMN_NAMES).map(_format_cell)
        items += [
            f"{model} ({weights}). {describe_leaderboard(leaderboard, perturbation=perturbation, metric=_METRIC)}",
            formatted,
        ]
    return items if len(items) > 1 else []


def _read_faithfulness_table(path: Path) -> pd.DataFrame:
    """Read and check ``faithfulness.csv``."""
    table = read_csv(path)
    number_columns = [str(name) for name in table if name not in _TEXT_COLUMNS]
    if missing_columns := [
        name for name in (*_COLUMN_NAMES, *_TEXT_COLUMNS, "behind_low") if name not in table
    ]:
        raise InputError(
            f"{path.name}: expected a faithfulness evaluation, found no column {', '.join(missing_columns)}: run "
            "`speechmix faithfulness` "
            "again"
        )
    table[number_columns] = table[number_columns].apply(pd.to_numeric, errors="coerce")
    return table.assign(better=table["better"] == "True")


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.2f}"
    return str(value).replace("_", " ")


FAITHFULNESS = PageSection(
    "Which measure is faithful on these clips?",
    _faithfulness_items,
    lambda content: (content.folder / FILE).is_file(),
)
