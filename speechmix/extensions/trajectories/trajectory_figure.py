"""Draw trajectories: curves over steps, heat maps of steps by layers, one frame for each step.

In: `Trajectory.curves` and `Trajectory.onsets` (`speechmix.trajectory`). Checkpoints are at equal
distances, because their steps often grow by a factor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.whole_files import whole_file
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    TICK_SIZE,
    LineStyle,
    new_figure,
    style_curve_axis,
)
from ...reporting.plots.map_cells import add_color_bar, draw_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUE_LABELS = {
    "contribution": "cue contribution (0 to 1)",
    "need": "margin lost without the cue (nats)",
    "other_word": "margin lost without another word (nats)",
    "margin": "margin of the target (nats)",
    "right": "share of clips spelled right",
    "error_rate": "character error rate",
    "probe": "accuracy of the probe",
}
_DASHES = ("-", "--", "-.", ":")
_WHOLE = -1  # layer of a whole stack
_FRAMES_PER_SECOND = 4


def trajectory_panel(
    curves: pd.DataFrame,
    *,
    quantity: str = "need",
    stack: str | None = None,
    onsets: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity over training steps, a line for each training and stack.

    Parameters
    ----------
    curves : DataFrame
        Of a `Trajectory`; whole stacks are drawn.
    quantity : str
        contribution, need, other_word, margin, right, error_rate.
    stack : str, optional
        Only this one.
    onsets : DataFrame, optional
        Of the same; a vertical line at each claimed onset.
    ax : Axes, optional

    Returns
    -------
    Axes
        Bands: 95 % intervals over groups of clips. Grey: where one more untrained twin lies
        with 95 %.

    Raises
    ------
    InputError
        If there is no such quantity, or none of whole stacks.
    """
    rows = _select(curves, quantity, stack)
    rows = rows[rows["layer"] == _WHOLE]
    if rows.empty:
        raise InputError(f"{quantity} was measured by layer alone: draw it by trajectory_heat_map")
    steps = sorted(rows["step"].unique())
    ax = new_figure(4.2, 2.8).subplots() if ax is None else ax
    stacks, trainings = (list(rows[name].unique()) for name in ("stack", "training"))
    for key, line in rows.groupby(["stack", "training"], sort=False):
        color = LINE_COLORS[stacks.index(key[0]) % len(LINE_COLORS)]
        style: LineStyle = {
            "color": color,
            "linestyle": _DASHES[trainings.index(key[1]) % len(_DASHES)],
        }
        parts = [
            str(name)
            for name, values in zip(key, (stacks, trainings), strict=True)
            if len(values) > 1
        ]
        places = _places(steps, line["step"])
        ax.plot(places, line["value"], marker="o", markersize=2.5, label=", ".join(parts), **style)
        ax.fill_between(places, line["low"], line["high"], color=color, alpha=0.15, linewidth=0)
        if line["twin_low"].notna().all():
            ax.fill_between(places, line["twin_low"], line["twin_high"], color="0.5", alpha=0.25)
        for place in _places(steps, _claimed(onsets, quantity, key)):
            ax.axvline(place, color=color, linewidth=0.8, linestyle=":")
    ax.set_ylabel(VALUE_LABELS.get(quantity, quantity), size=LABEL_SIZE)
    style_curve_axis(ax)
    _label_steps(ax, steps)
    if len(ax.lines) > 1:
        ax.legend(fontsize=TICK_SIZE, frameon=False)
    return ax


def trajectory_heat_map(
    curves: pd.DataFrame,
    *,
    quantity: str = "contribution",
    stack: str,
    training: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity by layer (downwards) and step (to the right) in one stack.

    Parameters
    ----------
    curves, quantity, stack, ax
        As for `trajectory_panel`.
    training : str, optional
        By default the first.

    Raises
    ------
    InputError
        If there is no such quantity, stack or training, or it was not measured by layer.
    """
    rows = _select(curves, quantity, stack)
    training = rows["training"].iloc[0] if training is None else training
    rows = rows[(rows["training"] == training) & (rows["layer"] != _WHOLE)]
    if rows.empty:
        raise InputError(f"no {quantity} by layer of {training!r} in the {stack}")
    values = rows.pivot_table(index="layer", columns="step", values="value")
    cells = np.ma.masked_invalid(values.to_numpy(float))
    height = 0.25 * len(values) + 0.4
    ax = new_figure(0.2 * values.shape[1] + 2.4, height + 0.8).subplots() if ax is None else ax
    limits = (min(0.0, float(cells.min())), max(float(cells.max()), 1e-9))
    image = draw_cells(ax, cells, limits=limits)
    ax.set_aspect("auto")
    ax.set_yticks(np.arange(len(values)) + 0.5, list(map(str, values.index)), size=TICK_SIZE)
    ax.set_ylabel(f"{stack} layer", size=LABEL_SIZE)
    _label_steps(ax, sorted(rows["step"].unique()), shift=0.5)
    label = VALUE_LABELS.get(quantity, quantity).replace(" (", "\n(")
    add_color_bar(ax.figure, image, ax, values=[cells], label=label, inches=max(height, 1.4))
    return ax


def trajectory_frames(curves: pd.DataFrame, training: str) -> Iterator[tuple[int, Figure]]:
    """Yield a figure for each step of a training: contribution and need by layer.

    The axes are the same in all of them, so that figures can follow each other. The thin line is the
    first step.
    """
    rows = curves[(curves["training"] == training) & (curves["layer"] != _WHOLE)]
    quantities = [name for name in ("contribution", "need") if name in set(rows["quantity"])]
    rows = rows[rows["quantity"].isin(quantities)]
    stacks, steps = list(rows["stack"].unique()), sorted(rows["step"].unique())
    grouped = rows.groupby(["quantity", "stack", "step"])
    for step in steps:
        figure = new_figure(2.1 * len(stacks) + 0.8, 1.6 * len(quantities) + 0.5)
        axes = figure.subplots(len(quantities), len(stacks), squeeze=False, sharey="row")
        for row, quantity in zip(axes, quantities, strict=True):
            top = rows.loc[rows["quantity"] == quantity, ["value", "high"]].max().max()
            low = rows.loc[rows["quantity"] == quantity, ["value", "low"]].min().min()
            for ax, stack in zip(row, stacks, strict=True):
                if (quantity, stack, step) not in grouped.groups:
                    ax.set_axis_off()
                    continue
                start, now = (grouped.get_group((quantity, stack, s)) for s in (steps[0], step))
                ax.plot(start["layer"], start["value"], color="0.6", linewidth=0.7)
                ax.plot(now["layer"], now["value"], color=LINE_COLORS[1], marker="o", markersize=4)
                ax.fill_between(now["layer"], now["low"], now["high"], color="0.7", alpha=0.4)
                ax.set_ylim(min(0, low), 1.05 * top)
                ax.set_xticks(now["layer"])
                ax.set_title(stack, size=LABEL_SIZE)
                ax.tick_params(labelsize=TICK_SIZE)
            row[0].set_ylabel(VALUE_LABELS[quantity].replace(" (", "\n("), size=LABEL_SIZE)
        figure.supxlabel("layer (counted from 0)", size=LABEL_SIZE)
        figure.suptitle(f"{training}, step {step}", size=LABEL_SIZE, parse_math=False)
        yield int(step), figure


def animate_trajectory(
    curves: pd.DataFrame, path: str | PathLike[str], *, training: str | None = None
) -> Path:
    """Write the frames of a trajectory as an animation for talks.

    Parameters
    ----------
    curves : DataFrame
        Of a `Trajectory`.
    path : path
        ``.gif``, or ``.mp4`` where ffmpeg is installed.
    training : str, optional
        By default the first.

    Raises
    ------
    InputError
        For another ending, or without ffmpeg.
    """
    from matplotlib.animation import FFMpegWriter, PillowWriter

    path = Path(path)
    writers: dict[str, Any] = {".gif": PillowWriter, ".mp4": FFMpegWriter}
    if path.suffix not in writers:
        raise InputError(f"expected a file ending in .gif or .mp4, found {path.name}")
    if not writers[path.suffix].isAvailable():
        raise InputError(f"{path.name} needs ffmpeg, which is not installed: write a .gif")
    training = curves["training"].iloc[0] if training is None else training
    writer = writers[path.suffix](fps=_FRAMES_PER_SECOND)
    frames = [figure for _, figure in trajectory_frames(curves, training)]
    with whole_file(path) as unfinished:
        named = unfinished.with_suffix(path.suffix)  # writers read the format from the name
        with writer.saving(frames[0], str(named), dpi=150):
            for writer.fig in frames:
                writer.grab_frame()
        named.replace(unfinished)
    return path


def _select(curves: pd.DataFrame, quantity: str, stack: str | None) -> pd.DataFrame:
    rows = curves[curves["quantity"] == quantity]
    rows = rows if stack is None else rows[rows["stack"] == stack]
    if rows.empty:
        raise InputError(
            f"no {quantity!r} {'' if stack is None else f'in the {stack} '}in this trajectory: it has "
            f"{', '.join(curves['quantity'].unique())}"
        )
    return rows


def _claimed(onsets: pd.DataFrame | None, quantity: str, key: Hashable) -> pd.Series:
    """Return the steps of the claimed onsets of a whole stack in a training."""
    if onsets is None:
        return pd.Series(dtype=float)
    rows = onsets[onsets["claim"] & (onsets["quantity"] == quantity) & (onsets["layer"] == _WHOLE)]
    is_line = [pair == key for pair in zip(rows["stack"], rows["training"], strict=True)]
    return rows.loc[is_line, "onset"]


def _places(steps: list[int], values: pd.Series) -> list[int]:
    return [steps.index(value) for value in values if value in steps]


def _label_steps(ax: Axes, steps: list[int], *, shift: float = 0.0) -> None:
    """Label about eight checkpoints with their steps."""
    every = -(-len(steps) // 8)
    places = range(0, len(steps), every)
    labels = [str(steps[place]) for place in places]
    ax.set_xticks([place + shift for place in places], labels, size=TICK_SIZE)
    ax.set_xlabel("training step (checkpoints at equal distances)", size=LABEL_SIZE)
