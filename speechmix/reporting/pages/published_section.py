"""Draw Figures 1, 2 and 4 of Mohebbi et al. 2023 beside the numbers of a run.

In: a table of contributions of one's own. Out: figures by name, and their captions. Contributions
are drawn on one scale with the published ones, of all tokens of the target as those are; of the
deciding token alone only on request, and then the title says so. Accuracies of probes are on a
scale of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from ...evaluation.cue_contribution import ROW_NAMES
from ..plots.cue_curves import cue_figure, layer_curves
from ..plots.cue_heat_maps import cue_heat_map
from ..plots.cue_tables import describe_target_rows
from ..plots.figure_style import (
    LINE_COLORS,
    NARROW_WIDTH,
    TITLE_SIZE,
    add_legend,
    legend_line,
    new_figure,
)
from ..plots.paper_figure_data import (
    AS_PUBLISHED_ROWS,
    matching_published_contributions,
    published_probing,
    published_sources,
)
from .svg_figures import side_suffixes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED_TITLE = "Comparison with the published figures"
_EVIDENCE = (
    "The published numbers were not printed. They were read off figures, and are only as exact as "
    "stated below. They are means over at most a thousand clips of Common Voice, for trained models "
    "and one untrained twin each. The clips and models of this run are others."
)
_FIGURE_CAPTION = (
    "Dotted, or in whole numbers: published, read off a figure. Trained and untrained models are on "
    "one scale. {rows}."
)
_PROBING_CAPTION = (
    "Figure 4 as published, on its own scale: accuracy of a probe for grammatical number, read off a "
    "figure to 0.5 points. The probe is a logistic regression; folds are not grouped by sentence or "
    "lemma. Bands: only a range could be read."
)


def published_target_rows(published: bool | str) -> str:
    """Return which rows of the target the option ``published`` requests; True means as published.

    Examples
    --------
    >>> published_target_rows(True), published_target_rows("deciding")
    ('target', 'deciding')
    """
    return published if isinstance(published, str) else AS_PUBLISHED_ROWS


def published_figures(
    table: pd.DataFrame, *, target_rows: str = AS_PUBLISHED_ROWS, narrow: bool = False
) -> dict[str, Figure]:
    """Draw curves and heat maps beside the published ones, for each side of the cue, and Figure 4.

    The table comes from `study_table`, with the same `target_rows` ("target" or "deciding").
    `narrow`, for a small screen, puts panels below each other.
    """
    figures: dict[str, Figure] = {}
    suffixes = side_suffixes(table["side"].unique())
    for side, side_rows in table.groupby("side", sort=False, observed=True):
        suffix = suffixes[str(side)]
        if side_rows["contribution"].notna().any() and len(
            matching_published_contributions(side_rows)
        ):
            figures[f"published_contribution{suffix}"] = cue_figure(
                side_rows, x="depth", published=True, target_rows=target_rows, narrow=narrow
            )
            figures[f"published_heat_map{suffix}"] = cue_heat_map(
                side_rows, published=True, target_rows=target_rows, narrow=narrow
            )
    return {**figures, "published_probing": _probing_figure(narrow=narrow)}


def _probing_figure(*, narrow: bool = False) -> Figure:
    """Draw the published Figure 4: probing accuracy over relative depth, encoder and decoder."""
    curves = published_probing()
    figure = new_figure(*((NARROW_WIDTH, 5.2) if narrow else (7.2, 3.4)))
    axes = figure.subplots(*((2, 1) if narrow else (1, 2)), sharey=True)
    colors = dict(zip(curves["model"].unique(), LINE_COLORS, strict=False))
    for ax, (stack, stack_rows) in zip(axes, curves.groupby("stack", sort=False), strict=True):
        layer_curves(
            stack_rows,
            ax=ax,
            x="depth",
            value="accuracy",
            label="accuracy (%)",
            band="none",
            colors=colors,
        )
        ax.set_title(f"probe of grammatical number, {stack} (published)", size=TITLE_SIZE)
    axes[0 if narrow else 1].set(**({"xlabel": ""} if narrow else {"ylabel": ""}))
    handles = [
        legend_line(color=color, label=model.split(",")[0]) for model, color in colors.items()
    ]
    handles += [legend_line(color="0.3", linestyle=":", label="trained")]
    handles += [legend_line(color="0.3", linestyle="--", label="untrained")]
    add_legend(figure, handles, columns=2 if narrow else 4, loc="outside lower center")
    return figure


def published_caption(name: str, table: pd.DataFrame) -> str:
    """Return the caption of a figure with published numbers."""
    if name == "published_probing":
        return _PROBING_CAPTION
    own_rows = describe_target_rows(table) or "the target word"
    comparison = (
        "as published"
        if own_rows == ROW_NAMES[AS_PUBLISHED_ROWS] or not describe_target_rows(table)
        else "published numbers for the target rows, so the two differ"
    )
    return _FIGURE_CAPTION.format(rows=f"Numbers of this run for {own_rows}, {comparison}")


def published_notes(options: Mapping[str, object]) -> list[str]:
    """Say how the published numbers are known, and what differs in a run with these options of
    `mix`."""
    differences = []
    if options.get("heads", "mean") != "each":
        differences.append(
            "heads are averaged before rows are normalised, not after as published (heads='each')"
        )
    if options.get("rounding", "disjoint") != "paper":
        differences.append(
            "a frame at a boundary belongs to one word, not to both as published (rounding='paper')"
        )
    difference_text = (
        f" Differences from the published method: {'; '.join(differences)}." if differences else ""
    )
    return [_EVIDENCE + difference_text, *published_sources()]
