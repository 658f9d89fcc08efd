"""Page and figure of a `ModelDifference`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ...files.whole_files import write_text
from ...reporting.pages.html_page import (
    FirstScreen,
    Part,
    SortableTable,
    TermList,
    render_page,
    sortable_numbers,
)
from ...reporting.plots.figure_style import CUE_COLOR, LABEL_SIZE, TICK_SIZE, new_figure

if TYPE_CHECKING:
    from .difference import ModelDifference

_TERMS = {
    "changed": "whether the weights of this part differ",
    "margin_A, margin_B": "log-probability of A's token minus that of B's token, in each model (nats)",
    "spelling": "whether both words differ in capitals or punctuation alone",
    "effect": "how far A's token gains on B's (nats) when one part of B alone gets A's weights; a mean over changed words",
    "first_layer": "with A's states patched into B behind this part, and behind any later one, the word is A's",
    "layer": "the part whose exchange alone has the largest effect on the word",
    "turns_back, parts_alone": "whether this exchange alone makes the word A's again, and how many parts do so alone",
    "turned": "changed words that are A's again when this part alone gets A's weights",
    "head": "the head of this layer with the largest effect; rest: all of the layer but its attention heads",
    "divergence": "how far the Kullback-Leibler divergence of B's output from A's falls with this part (nats for each token)",
    "local_error": "difference of both layers' outputs on the same input, A's states, relative to what A's layer adds",
    "state_error": "difference of the states behind the layer in both models' own runs, relative to A's states",
    "[low, high]": "95 % interval, by a bootstrap over groups of clips; none with fewer than five groups",
}


def write_difference_page(difference: ModelDifference, path: Path) -> Path:
    """Write one HTML page that needs no other file."""
    figure = new_figure(4.0, 1.0 + 0.19 * len(difference.groups))  # fits a phone
    difference_panel(difference, ax=figure.subplots())
    transcripts = pd.DataFrame(
        [
            {"clip": d.name, "A": d.text_a, "B": d.text_b, "changed words": d.changed_count}
            for d in difference.decisions
        ]
    )
    names = {"A": difference.model_a, "B": difference.model_b, **difference.provenance}
    parts: list[Part] = [
        ("Which part of the model", [figure, sortable_numbers(difference.layers)]),
        (
            "Changed words",
            [sortable_numbers(difference.changes)] if len(difference.changes) else [],
        ),
        ("Transcripts", [SortableTable(transcripts)]),
        ("What the columns mean", [TermList(_TERMS)]),
        ("Models", [TermList(names)]),
    ]
    first = FirstScreen(
        answer=difference.findings,
        warnings=[
            f"{name} is left out: {reason.removeprefix(f'{name}: ')}"
            for name, reason in difference.skipped
        ],
    )
    title = f"{difference.model_a} and {difference.model_b}: what changed"
    write_text(path, render_page(title, [part for part in parts if part[1]], first=first))
    return path


def difference_panel(difference: ModelDifference, *, ax: Axes | None = None) -> Axes:
    """Draw the effect of each part of a model, with its interval."""
    table = difference.layers
    if ax is None:
        ax = new_figure(6, 0.8 + 0.24 * len(table)).subplots()
    has_words = table["effect"].notna().any()
    name, limits = ("effect", "") if has_words else ("divergence", "divergence_")
    places, values = np.arange(len(table)), table[name].fillna(0.0)
    errors = [
        (values - table[f"{limits}low"]).clip(lower=0),
        (table[f"{limits}high"] - values).clip(lower=0),
    ]
    ax.barh(places, values, color=CUE_COLOR, xerr=np.nan_to_num(errors), error_kw={"lw": 0.8})
    ax.set_yticks(places, table["part"], fontsize=TICK_SIZE)
    ax.invert_yaxis()
    ax.axvline(0, color="black", lw=0.6)
    ax.set_xlabel(
        "gain of A's words with A's weights\nin this part alone (nats)"
        if has_words
        else "fall of the divergence from A\n(nats for each token)",
        fontsize=LABEL_SIZE,
    )
    return ax
