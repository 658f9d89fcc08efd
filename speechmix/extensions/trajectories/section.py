"""Page section with the trajectory of a training, if the run is one.

In: the tables of the run and ``trajectory.json``. Out: sentences about onsets, curves, heat maps, and a
slider over the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...evaluation.statistics.groups import choose_evenly
from ...reporting.pages.html_page import Item, Picture, PictureSeries, page_svg
from ...reporting.pages.page_sections import PageContent, PageSection
from ...reporting.plots.figure_style import png_bytes
from .trajectory_figure import trajectory_frames, trajectory_heat_map, trajectory_panel
from .trajectory_runs import CHECKPOINTS_FILE, Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_FRAMES = 24  # of a slider
_INTRODUCTION = (
    "Contribution says how much of the target's state comes from the cue. Need says what the margin of "
    "the target over its foil loses when the cue's values are zeroed. The onset is the first "
    "checkpoint from which on a value stays above a quarter of its final level, the mean of the last three "
    "checkpoints. It is claimed only of a rise that is larger than other clips, and the wandering of "
    "weights, produce: 95 % together over all whole stacks. Layers are tested in a stack that rises."
)
_CURVES = (
    "Whole stacks over training. Bands: 95 % intervals over groups of clips. Grey: where one more "
    "untrained twin lies with 95 %. Dotted: onsets."
)
_FRAMES = "The first training layer by layer: move the slider to another step. The thin line is the first step."


def _trajectory_items(content: PageContent) -> list[Item]:
    result = Trajectory.open(content.folder)
    curves, onsets = result.curves, result.onsets
    items: list[Item] = [_INTRODUCTION, *result.summary.splitlines()]
    for quantity in ("right", "need", "contribution"):
        if quantity in set(curves["quantity"]):
            panel = trajectory_panel(curves, quantity=quantity, onsets=onsets)
            items.append(Picture(_panel_svg(panel), _CURVES))
    training = curves["training"].iloc[0]
    layered = curves[(curves["training"] == training) & (curves["layer"] >= 0)]
    layered = layered[layered["quantity"].isin(["contribution", "need", "probe"])]
    for quantity, stack in layered[["quantity", "stack"]].drop_duplicates().itertuples(index=False):
        panel = trajectory_heat_map(layered, quantity=quantity, stack=stack)
        title = stack.replace("cross", "cross-attention")  # of a probe, with its position
        caption = f"{training}: {quantity} in {title}, by layer and step."
        items.append(Picture(_panel_svg(panel), caption))
    layered = layered[layered["quantity"] != "probe"]
    steps = choose_evenly(sorted(layered["step"].unique()), _MAX_FRAMES)
    frames = list(trajectory_frames(layered[layered["step"].isin(steps)], training))
    images = [png_bytes(figure) for _, figure in frames]
    items.append(PictureSeries(images, [f"step {step}" for step, _ in frames], _FRAMES))
    return items


def _panel_svg(panel: Axes) -> bytes:
    figure = panel.get_figure(root=True)
    return b"" if figure is None else page_svg(figure)


TRAJECTORY = PageSection(
    "Over the steps of training",
    _trajectory_items,
    lambda content: (content.folder / CHECKPOINTS_FILE).is_file(),
)
