"""Draw and write the figures of a run page, with captions and files (PNG, PDF).

In: a `Study`, or its table. Out: figures by name, and their files (PNG, PDF) with captions as parts
of the page.

Draw Figures 1, 2 and 4 of Mohebbi et al. 2023 beside the numbers of a run.

In: a table of contributions of one's own. Out: figures by name, and their captions. Contributions
are drawn on one scale with the published ones, of all tokens of the target as those are; of the
deciding token alone only on request, and then the title says so. Accuracies of probes are on a
scale of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from ...evaluation.cue_contribution import ROW_NAMES
from ...evaluation.statistics.grouped_means import select_cells
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...files.whole_files import whole_file
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ..plots.computed_curves import CueCurves, cue_curves
from ..plots.cue_curves import cue_figure, draw_cue_figure, layer_curves
from ..plots.cue_heat_maps import (
    compute_difference_cells,
    compute_mean_cells,
    cue_heat_map,
    draw_cell_panels,
)
from ..plots.cue_tables import (
    AS_PUBLISHED_ROWS,
    clip_group_means,
    describe_target_rows,
    matching_published_contributions,
    ordered_values,
    published_probing,
    published_sources,
    select_cue_rows,
)
from ..plots.distributions import compute_spreads, draw_spreads
from ..plots.figure_style import (
    LINE_COLORS,
    NARROW_WIDTH,
    TITLE_SIZE,
    add_legend,
    fix_layout,
    legend_line,
    new_figure,
    png_bytes,
    write_figure,
)
from ..plots.need_figure import compute_need_panels, draw_need
from .cue_need_sentences import drops_by_layer
from .html_page import Item, Part, Picture, page_svg, side_suffixes
from .page_sections import PageContent
from .study_results import Study
from .study_tables import CELL_COLUMNS, PARTS, drop_control_clips
from .table_format import PART_PHRASES

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


_MAX_PARTS = 8
_DRAWN_COLUMNS = ("side", *CELL_COLUMNS, *PARTS)  # that a figure may need
DrawFunction = Callable[..., "Figure"]  # narrow=
_STRIPS_NOTE = (
    " Strips: the mixing strength of each layer of the trained model. Points of layers with a mixing "
    f"strength below {STRENGTH_FLOOR:g} are grey: their contributions mean little."
)
_CAPTIONS = {
    "cue_contribution": "Contribution of the cue over layers.",
    "cue_heat_map": "Contribution of the cue in %. Rows are layers; columns are measures. Each panel "
    "shows one stack of a trained or an untrained model.",
    "cue_difference": "Trained minus untrained, in percentage points. White is no difference. Nothing is "
    "concluded from single layers.",
    "cue_distribution": "Contribution of the cue in single clips. A mean can hide that some clips "
    "have a large contribution and others none.",
}
_NEED_CAPTION = (
    " The margin is log p(target) − log p(other spelling). Margin lost: how much the margin falls if "
    "the cue is ablated in that layer alone. It is a mean over groups of related clips, with a 95 % "
    "confidence interval."
)


@dataclass(frozen=True, eq=False)
class DrawnSide:
    """What the figures of one side of the cue draw."""

    rows: pd.DataFrame  # `select_cue_rows`
    means: pd.DataFrame  # `clip_group_means` of the rows
    curves: CueCurves  # by measure and stack


def compute_drawn_sides(table: pd.DataFrame) -> dict[str, DrawnSide]:
    """Compute what the figures of each side draw, without control clips.

    The table comes from `study_table`.
    """
    drawn_sides: dict[str, DrawnSide] = {}
    if table.empty:
        return drawn_sides
    columns = [name for name in _DRAWN_COLUMNS if name in table]
    is_drawn = table["contribution"].notna() & (table["control"] != "yes")
    for side in table["side"][is_drawn].unique():
        rows = select_cue_rows(select_cells(table, columns, is_drawn & (table["side"] == side)))
        means = clip_group_means(rows)
        stacks, values = ordered_values(rows, "stack"), ordered_values(rows, "measure")
        curves = cue_curves(rows, stacks=stacks, values=values, means=means)
        drawn_sides[str(side)] = DrawnSide(rows, means, curves)
    return drawn_sides


def _side_figures(drawn_side: DrawnSide) -> dict[str, DrawFunction]:
    """Return a function that draws each figure of a side, by name.

    What they show is computed once for wide and narrow ones alike; each is drawn when it is called.
    """
    rows, means = drawn_side.rows, drawn_side.means
    axis = "depth" if _max_depth_count(rows) > 1 else "layer"
    drawings: dict[str, DrawFunction] = {
        "cue_contribution": partial(draw_cue_figure, drawn_side.curves, x=axis),
        "cue_heat_map": partial(draw_cell_panels, compute_mean_cells(rows, means)),
    }
    if {"trained", "random"} <= set(rows["init"].unique()):
        difference_cells = compute_difference_cells(rows, means)
        drawings["cue_difference"] = partial(draw_cell_panels, difference_cells)
    drawings["cue_distribution"] = partial(draw_spreads, compute_spreads(rows, means))
    has_measure = rows["measure"] == leading_measure(rows["measure"].unique())
    for name in [name for name in PARTS if name in rows]:
        is_drawn = has_measure & rows[name].ne("")
        if is_drawn.any() and 1 < rows[name][is_drawn].nunique() <= _MAX_PARTS:
            part_rows = select_cells(rows, list(rows), is_drawn)
            stacks, values = ordered_values(part_rows, "stack"), ordered_values(part_rows, name)
            curves = cue_curves(part_rows, stacks=stacks, values=values, rows=name)
            drawings[f"by_{name}"] = partial(draw_cue_figure, curves, x=axis)
    return drawings


class FigureSections:
    """Sections with the figures of each side of the cue, and with the published ones beside."""

    def parts(self, content: PageContent) -> list[Part]:
        """Draw the figures, write them into the run's folder, and return them with captions."""
        return _study_figure_parts(content.study, published=content.published)


def _study_figure_parts(study: Study, *, published: bool | str) -> list[Part]:
    """Return a part with figures for each side, and one with the published figures if requested."""
    items_by_title: dict[str, list[Item]] = {}
    suffixes = side_suffixes(study.drawn_sides)
    for side, drawn_side in study.drawn_sides.items():
        title = "Figures" if side == "all" else f"Figures: {side} cue"
        for name, draw in _side_figures(drawn_side).items():
            picture = write_page_figure(
                study,
                f"{name}{suffixes[side]}",
                draw(narrow=False),
                _figure_caption(name, drawn_side.rows),
                narrow=draw(narrow=True),
            )
            items_by_title.setdefault(title, []).append(picture)
    if published and items_by_title:
        items_by_title[PUBLISHED_TITLE] = _published_items(study, published_target_rows(published))
    return list(items_by_title.items())


def _published_items(study: Study, target_rows: str) -> list[Item]:
    """Draw the published figures beside the run's numbers, and say how they are known."""
    table = study.table_as_published if target_rows == AS_PUBLISHED_ROWS else study.table
    table = drop_control_clips(table[table["contribution"].notna()])
    first_note, *other_notes = published_notes(study.run.description.get("options", {}))
    wide_figures, narrow_figures = (
        published_figures(table, target_rows=target_rows, narrow=narrow) for narrow in (False, True)
    )
    pictures = [
        write_page_figure(
            study,
            name,
            figure,
            published_caption(name, table),
            narrow=narrow_figures[name],
        )
        for name, figure in wide_figures.items()
    ]
    return [first_note, *pictures, *other_notes]


def draw_need_figures(study: Study) -> list[Picture]:
    """Draw contribution above need, a figure for each side; contribution alone without ablation by
    layer."""
    if study.layers is None:
        return []
    drops_of_layers = drops_by_layer(study.ablations)
    pictures: list[Picture] = []
    studied_measures = study.table["measure"][study.table["control"] != "yes"].unique()
    measure = leading_measure(sorted(studied_measures))
    suffixes = side_suffixes(study.drawn_sides)
    for side, drawn_side in study.drawn_sides.items():
        rows, curves = drawn_side.rows, drawn_side.curves
        side_drops = drops_of_layers[drops_of_layers["side"] == side]
        need_panels = compute_need_panels(rows, side_drops, measure=measure, curves=curves)
        figure, narrow_figure = (draw_need(need_panels, narrow=narrow) for narrow in (False, True))
        name = f"contribution_and_need{suffixes[side]}"
        side_text = "" if side == "all" else f"{side.capitalize()} cue. "
        caption = f"{side_text}Contribution of the cue in each layer.{_curves_note(rows)}"
        caption += _NEED_CAPTION if len(side_drops) else ""
        pictures.append(write_page_figure(study, name, figure, caption, narrow=narrow_figure))
    return pictures


def write_page_figure(
    study: Study, name: str, figure: Figure, caption: str, *, narrow: Figure | None = None
) -> Picture:
    """Write a figure as PNG and PDF beside the page; return it as a picture, with a narrow form."""
    for drawn_figure in (figure, *([] if narrow is None else [narrow])):
        fix_layout(drawn_figure)
    with whole_file(study.run.folder.page_file_path(name, "png")) as unfinished:
        unfinished.write_bytes(png_bytes(figure))
    write_figure(figure, study.run.folder.page_file_path(name, "pdf"))
    return Picture(page_svg(figure), caption, b"" if narrow is None else page_svg(narrow))


def _figure_caption(name: str, rows: pd.DataFrame) -> str:
    if name.startswith("by_"):
        column = name.removeprefix("by_").split("_")[0]
        measure = measure_label(leading_measure(rows["measure"].unique()))
        caption = f"Contribution of the cue by {PART_PHRASES[column]}. Measure: {measure}."
        return caption + _curves_note(rows)
    caption = next(caption for start, caption in _CAPTIONS.items() if name.startswith(start))
    return caption + (_curves_note(rows) if name.startswith("cue_contribution") else "")


def _curves_note(table: pd.DataFrame) -> str:
    """Explain lines and bands of curves and the strips below, as far as the table has them."""
    inits, is_twin = table["init"].unique(), table["init"] == "random"
    has_intervals = "trained" in inits and table["group"].nunique() >= FEWEST_GROUPS
    has_twin_band = table.loc[is_twin, "seed"].nunique() > 1
    note = ""
    if "trained" in inits:
        note += " Solid: trained models"
        note += ", with a confidence interval of the mean over groups" * has_intervals + "."
    if "random" in inits:
        note += " Dashed: untrained twins"
        note += "; a band shows where one more untrained model is expected" * has_twin_band + "."
    if has_intervals or has_twin_band:
        note += " Each band holds in 95 % of studies for all layers of its curve together."
    has_strips = "mixing_strength" in table and table["mixing_strength"].notna().any()
    return note + (_STRIPS_NOTE if has_strips else "")


def _max_depth_count(table: pd.DataFrame) -> int:
    """Count the different depths of the models in a stack; if more than one, layers do not
    compare."""
    last_layers = (
        table.groupby(["stack", "model"], observed=True)
        .layer.max()
        .groupby("stack", observed=True)
        .nunique()
    )
    return int(last_layers.max())
