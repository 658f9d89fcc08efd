"""Which measure can be believed here? The section with the faithfulness evaluation of a run,
if it has one.

In: ``faithfulness.csv`` in a run's folder, as `speechmix faithfulness --out RUN` writes it. Out: a
part of the page, or none.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...evaluation.faithfulness.leaderboard import is_measure_row
from ...evaluation.faithfulness.leaderboard_sentences import describe_leaderboard
from ...evaluation.faithfulness.results import FILE
from ...files.text_files import read_csv
from .html_page import Item
from .page_sections import PageContent, PageSection

_WHAT = (
    "Faithfulness evaluation: how well each measure ranks the words that the decision needs "
    "(Spearman with the effects of a reference perturbation: 1 the same order, 0 none, -1 the "
    "reverse). Baselines: random scores, words in the order of their length and of their nearness "
    "to the target. The oracle has the effects themselves. over: difference to that baseline; p is "
    "corrected for all ways to rank words, and the largest of three. Knock-out is also the "
    "intervention of Value Zeroing. All perturbations and metrics are in faithfulness.csv."
)
_METRIC, _MOST = "spearman", 8
_TEXTS = (
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
_SHOWN = {
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


def _items(content: PageContent) -> list[Item]:
    """List the leaderboards of a run by rank correlation, each with its sentence."""
    table = _read(content.folder / FILE)
    items: list[Item] = [_WHAT]
    for key, board in table[table["metric"] == _METRIC].groupby(
        ["model", "init", "perturbation"], sort=False
    ):
        model, init, perturbation = map(str, key)
        board = board.reset_index(drop=True)
        measures = is_measure_row(board, perturbation)
        seen = board[(measures & (measures.cumsum() <= _MOST)) | ~measures]
        rounded = seen[list(_SHOWN)].rename(columns=_SHOWN).map(_rounded)
        items += [
            f"{model} ({init}). {describe_leaderboard(board, perturbation=perturbation, metric=_METRIC)}",
            rounded,
        ]
    return items if len(items) > 1 else []


def _read(path: Path) -> pd.DataFrame:
    table = read_csv(path)
    numbers = [str(name) for name in table if name not in _TEXTS]
    if missing := [name for name in (*_SHOWN, *_TEXTS, "behind_low") if name not in table]:
        raise InputError(
            f"{path.name}: expected a faithfulness evaluation, found no column {', '.join(missing)}: run "
            "`speechmix faithfulness` "
            "again"
        )
    table[numbers] = table[numbers].apply(pd.to_numeric, errors="coerce")
    return table.assign(better=table["better"] == "True")


def _rounded(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.2f}"
    return str(value).replace("_", " ")


FAITHFULNESS = PageSection(
    "Which measure can be believed here?",
    _items,
    lambda content: (content.folder / FILE).is_file(),
)
