"""The figures of the page of a run: which are drawn for which table, their captions and files.

In: a `Study`, or its table. Out: figures by name, and their files (PNG, PDF) with captions as parts
of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...evaluation.statistics.grouped_means import select_cells
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...files.whole_files import whole_file
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ..plots import panels
from ..plots.cell_panels import difference_cells, mean_cells
from ..plots.computed_curves import cue_curves
from ..plots.cue_curves import draw_cue_figure
from ..plots.cue_heat_maps import draw_cell_panels
from ..plots.cue_tables import ordered_values, select_cue_rows
from ..plots.curve_tables import unit_means
from ..plots.distributions import compute_spreads, draw_spreads
from ..plots.need_figure import draw_need, need_panels
from ..plots.published_figures import ALL_ROWS
from . import published_section as published_part
from .cue_need_tables import drops_by_layer
from .html_page import Item, Part, Picture
from .page_figures import page_svg, side_suffixes
from .page_sections import PageContent
from .study_results import Study
from .study_tables import PARTS, without_control

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PARTS = 8
# Columns that a figure may need.
_DRAWN = (
    "side",
    "model",
    "init",
    "seed",
    "clip",
    "group",
    "stack",
    "measure",
    "rows",
    "layer",
    "depth",
    "contribution",
    "mixing_strength",
    *PARTS,
)
Drawing = Callable[..., "Figure"]  # narrow=
_BANDS = (
    "Bands: of a trained model the 95 % interval of its mean over groups of clips (none below "
    f"{FEWEST_GROUPS} groups); of "
    "untrained twins from the lowest to the highest (none for one twin)."
)
_STRIPS = (
    " Strips: how far each layer of the trained model moves the target, as a share of its length "
    "(mixing strength); below "
    f"{STRENGTH_FLOOR:g} a layer moves next to nothing, and its points are grey."
)
_CAPTIONS = {
    "cue_contribution": "Cue contribution over layers; trained models solid, untrained twins "
    f"dashed. {_BANDS}",
    "cue_heat_map": "Cue contribution (%), layers downwards, measures to the right; untrained twin "
    "beside trained model.",
    "cue_difference": "Trained - untrained in percentage points; white is no difference. Bold: "
    "claimed (see In which layers).",
    "cue_distribution": "How single clips are spread: a mean can hide that some clips have all and "
    "others nothing.",
}

_CONTRIBUTION_CAPTION = (
    "Cue contribution in each layer (solid: trained; dashed: untrained, with the band from the "
    "lowest to the highest untrained "
    "twin)"
)
_NEED_CAPTION = (
    ", and what the decision loses when the cue's values are zeroed in that layer alone (bars: 95 "
    "% interval of the mean over "
    "groups)"
)


def _drawings(table: pd.DataFrame, layers: pd.DataFrame | None) -> dict[tuple[str, str], Drawing]:
    """Curves, heat map, difference, distribution and panels by template, number and cue: by side of
    the cue and figure.

    What they show is computed once for wide and narrow ones alike; each is drawn when it is called.

    Parameters
    ----------
    table : DataFrame
        From `study_table`.
    layers : DataFrame or None
        From `layer_statistics`: which differences are claimed, and in bold.
    """
    drawings: dict[tuple[str, str], Drawing] = {}
    is_drawn = (
        table["contribution"].notna() & (table["control"] != "yes")
        if len(table)
        else np.array([], dtype=bool)
    )
    for side in table["side"][is_drawn].unique() if len(table) else ():
        part = select_cells(
            table, [name for name in _DRAWN if name in table], is_drawn & (table["side"] == side)
        )
        drawings |= {
            (side, name): draw
            for name, draw in _drawings_of_side(part, _claimed(layers, side)).items()
        }
    return drawings


def _drawings_of_side(part: pd.DataFrame, claimed: pd.DataFrame | None) -> dict[str, Drawing]:
    axis = "depth" if _depths(part) > 1 else "layer"
    drawings = _drawings_of_all_clips(part, claimed, axis)
    measure = leading_measure(part["measure"].unique())
    for name in PARTS:
        labelled = part[name].ne("") if name in part else pd.Series(dtype=bool)
        if labelled.any() and 1 < part[name][labelled].nunique() <= _MOST_PARTS:
            rows = select_cue_rows(select_cells(part, list(part), labelled), measures=[measure])
            stacks, values = ordered_values(rows, "stack"), ordered_values(rows, name)
            curves = cue_curves(rows, stacks=stacks, values=values, rows=name)
            drawings[f"by_{name}"] = partial(draw_cue_figure, curves, x=axis)
    return drawings


def _drawings_of_all_clips(
    part: pd.DataFrame, claimed: pd.DataFrame | None, axis: str
) -> dict[str, Drawing]:
    rows = select_cue_rows(part)
    means = unit_means(rows)
    curves = cue_curves(
        rows,
        stacks=ordered_values(rows, "stack"),
        values=ordered_values(rows, "measure"),
        means=means,
    )
    drawings: dict[str, Drawing] = {
        "cue_contribution": partial(draw_cue_figure, curves, x=axis),
        "cue_heat_map": partial(draw_cell_panels, mean_cells(rows, means)),
    }
    if {"trained", "random"} <= set(part["init"].unique()):
        drawings["cue_difference"] = partial(
            draw_cell_panels, difference_cells(rows, means, claims=claimed)
        )
    return {**drawings, "cue_distribution": partial(draw_spreads, compute_spreads(rows, means))}


def _claimed(layers: pd.DataFrame | None, side: Hashable) -> pd.DataFrame | None:
    """Rows of a side of which something is claimed."""
    if layers is None or "claim" not in layers:
        return None
    return layers[(layers.side == side) & (layers.claim != "")]


class FigureSections:
    """The figures of the page, a part for each side of the cue, and the published ones beside."""

    def parts(self, content: PageContent) -> list[Part]:
        """Draw the figures, write them into the run's folder, and return them with captions."""
        return _study_pictures(content.study, published=content.published)


def _study_pictures(study: Study, *, published: bool | str) -> list[Part]:
    """A part for each side, and one with the published figures if they are to be drawn."""
    parts: dict[str, list[Item]] = {}
    drawings = _drawings(study.table, study.layers)
    suffixes = side_suffixes(side for side, _ in drawings)
    for (side, name), draw in drawings.items():
        title = "Figures" if side == "all" else f"Figures: {side} cue"
        file = f"{name}{suffixes[str(side)]}"
        picture = write_page_figure(
            study, file, draw(narrow=False), _caption(name, study.table), narrow=draw(narrow=True)
        )
        parts.setdefault(title, []).append(picture)
    if published and parts:
        parts[published_part.TITLE] = _beside_published(
            study, published_part.requested_rows(published)
        )
    return list(parts.items())


def _beside_published(study: Study, target_rows: str) -> list[Item]:
    """The published figures with one's own numbers beside, and how they are known."""
    table = study.table_as_published if target_rows == ALL_ROWS else study.table
    table = without_control(table[table["contribution"].notna()])
    first, *others = published_part.published_notes(study.run.description.get("options", {}))
    drawn, small = (
        published_part.published_figures(table, target_rows=target_rows, narrow=narrow)
        for narrow in (False, True)
    )
    pictures = [
        write_page_figure(
            study, name, figure, published_part.published_caption(name, table), narrow=small[name]
        )
        for name, figure in drawn.items()
    ]
    return [first, *pictures, *others]


def need_pictures(study: Study) -> list[Picture]:
    """Contribution above need, a figure for each side; contribution alone where nothing was ablated
    layer by layer."""
    if study.layers is None:
        return []
    drops = drops_by_layer(study.ablations)
    table, is_studied = study.table, study.table["control"] != "yes"
    pictures: list[Picture] = []
    measure = leading_measure(sorted(table["measure"][is_studied].unique()))
    is_drawn = is_studied & table["contribution"].notna()
    sides = table["side"][is_drawn].unique()
    suffixes = side_suffixes(sides)
    for side in sides:
        lost = drops[drops["side"] == side]
        part = select_cells(
            table, [name for name in _DRAWN if name in table], is_drawn & (table["side"] == side)
        )
        panels_of_side = need_panels(part, lost, measure=measure)
        figure, small = (draw_need(panels_of_side, narrow=narrow) for narrow in (False, True))
        name = f"contribution_and_need{suffixes[str(side)]}"
        of_side = "" if side == "all" else f"{str(side).capitalize()} cue. "
        caption = (
            f"{of_side}{_CONTRIBUTION_CAPTION}{_NEED_CAPTION if len(lost) else ''}.{_strips(part)}"
        )
        pictures.append(write_page_figure(study, name, figure, caption, narrow=small))
    return pictures


def write_page_figure(
    study: Study, name: str, figure: Figure, caption: str, *, narrow: Figure | None = None
) -> Picture:
    """A figure as PNG and PDF beside the page, and as a picture for it, with one for small
    screens."""
    with whole_file(study.run.folder.beside_page(name, "png")) as unfinished:
        unfinished.write_bytes(panels.png_bytes(figure))
    figure.set_layout_engine("none")  # laid out by now
    panels.write_figure(figure, study.run.folder.beside_page(name, "pdf"))
    return Picture(page_svg(figure), caption, b"" if narrow is None else page_svg(narrow))


def _caption(name: str, table: pd.DataFrame) -> str:
    if name.startswith("by_"):
        what = name.removeprefix("by_").split("_")[0]
        caption = (
            f"Cue contribution by {what}; one measure, trained models solid, untrained twins "
            f"dashed. {_BANDS}"
        )
        return caption + _strips(table)
    caption = next(caption for start, caption in _CAPTIONS.items() if name.startswith(start))
    return caption + (_strips(table) if name.startswith("cue_contribution") else "")


def _strips(table: pd.DataFrame) -> str:
    """What the strips below curves are, where there are some."""
    return _STRIPS if "mixing_strength" in table and table["mixing_strength"].notna().any() else ""


def _depths(table: pd.DataFrame) -> int:
    """How many different depths the models have in the same stack: more than one, and layers do not
    compare."""
    last = (
        table.groupby(["stack", "model"], observed=True)
        .layer.max()
        .groupby("stack", observed=True)
        .nunique()
    )
    return int(last.max())
