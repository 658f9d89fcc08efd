"""What an agreement run found, as files and as text: accuracy first, then the tables, drawn beside
the published ones.

In: cue alignment and decisions of every sentence (`extensions.agreement.cue_alignment`,
`task_accuracy`). Out: CSV files, a figure for each metric, and the same as text.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...files.text_files import write_csv
from ...reporting.plots.figure_style import write_figure
from .cue_alignment import SHARE_METRICS, mean_alignment
from .cue_alignment_table import alignment_figure, alignment_text
from .task_accuracy import item_accuracy

_GROUP_COLUMNS = ["paradigm", "number"]


def write_agreement(
    table: pd.DataFrame,
    decisions: pd.DataFrame,
    folder: Path,
    *,
    published: pd.DataFrame | None = None,
    note: str = "",
) -> str:
    """Write the tables and figures of a run into its folder, and return them as text.

    Parameters
    ----------
    table : DataFrame
        Rows of `cue_alignment`, with item, paradigm, number, model, init, seed, stack, measure.
    decisions : DataFrame
        Columns item, paradigm, number, model, init, seed, margin (nats), right.
    folder : Path
        Gets accuracy.csv, cue_alignment.csv, decisions.csv, means.csv, means_by_paradigm.csv, and
        <metric>.png and .svg.
    published : DataFrame, optional
        From `published_alignment`.
    note : str
        Where the sentences come from; stands under each figure.

    Returns
    -------
    str
        Accuracy by paradigm and number, then a table of layers and measures for each metric and
        model.
    """
    write_csv(table, folder / "cue_alignment.csv")
    write_csv(decisions, folder / "decisions.csv")
    accuracy, group_accuracy = (
        item_accuracy(decisions),
        item_accuracy(decisions, by=["model", "init", *_GROUP_COLUMNS]),
    )
    accuracy_rows = pd.concat([accuracy.assign(paradigm="all", number="all"), group_accuracy])
    write_csv(
        accuracy_rows[["model", "init", *_GROUP_COLUMNS, "accuracy", "low", "high", "items"]],
        folder / "accuracy.csv",
    )
    means = mean_alignment(table).merge(accuracy[["model", "init", "accuracy"]], how="left")
    write_csv(means, folder / "means.csv")
    write_csv(
        mean_alignment(table, by=["paradigm", "model", "init", "stack", "measure", "layer"]),
        folder / "means_by_paradigm.csv",
    )
    texts = [_accuracy_text(group_accuracy)]
    for metric in means["metric"].unique():
        if metric not in SHARE_METRICS:
            figure = alignment_figure(means, metric=metric, published=published, note=note)
            for suffix in ("png", "svg"):
                write_figure(figure, folder / f"{metric}.{suffix}", dpi=150)
        for (name, init), group_means in means[means["metric"] == metric].groupby(
            ["model", "init"], sort=False
        ):
            title = f"{metric.replace('_', ' ')}, {name} ({init}), {group_means['items'].max():,} sentences"
            title += (
                ""
                if group_means["chance"].isna().all()
                else f", chance {group_means['chance'].mean():.3f}"
            )
            texts.append(f"{title}\n{alignment_text(group_means, metric=metric)}")
    return "\n\n".join(texts)


def _accuracy_text(accuracy: pd.DataFrame) -> str:
    """Return accuracy by paradigm and number as text: a model that always writes one number is
    found out here.

    Examples
    --------
    >>> accuracy = pd.DataFrame({"paradigm": "anaphor", "number": ["plural", "singular"], "model": "m", "init": "trained",
    ...                        "accuracy": [0.05, 0.96]})
    >>> print(_accuracy_text(accuracy))
    init     trained
    number    plural singular
    paradigm
    anaphor      5 %     96 %
    """
    formatted = accuracy.assign(
        formatted=[f"{100 * share:.0f} %" for share in accuracy["accuracy"]]
    )
    columns = formatted.pivot(
        index="paradigm", columns=["init", "number"], values="formatted"
    ).fillna("")
    init_order = list(dict.fromkeys(accuracy["init"]))
    text = columns.reindex(
        columns=sorted(columns, key=lambda column: (init_order.index(column[0]), column[1]))
    ).to_string()
    return "\n".join(line.rstrip() for line in text.splitlines())
