"""Draw the accuracy of a probe in each layer above the cue's contribution."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...errors import InputError
from ...mixing.maps.measure_registry import measure_label
from ...reporting.plots.cue_curves import layer_curves
from ...reporting.plots.figure_style import LABEL_SIZE, NARROW_WIDTH, TITLE_SIZE, new_figure
from .probe_curves import (
    PROBE_LABELS,
    add_probe_legend,
    check_panels,
    draw_probes,
    legend_height,
    probe_colors,
    probe_handles,
    select_probes,
)


def probe_and_mixing(
    probes: pd.DataFrame,
    contributions: pd.DataFrame,
    *,
    measure: str = "value_zeroing",
    value: str = "accuracy",
    narrow: bool = False,
) -> Figure:
    """Draw the accuracy of probes above the cue's contribution, for each stack.

    Parameters
    ----------
    probes : DataFrame
        Of one position, label and part.
    contributions : DataFrame
        Cue contributions of the same models, as for `cue_figure`.
    measure : str
    value : {"accuracy", "compression"}
    narrow : bool
        Stacks below each other: as wide as a column of a paper, or a phone.

    Returns
    -------
    Figure
        A column for each stack of the contributions whose states were probed; cross-attention
        stands below the decoder, whose layers it is in. The x axis is the same above and below.

    Raises
    ------
    InputError
        As `probe_figure`; and if no stack has both.
    """
    probe_rows = select_probes(probes, value, None)
    check_panels(probe_rows, None)
    mixing = contributions[
        (contributions["measure"] == measure) & contributions["contribution"].notna()
    ]
    probed_stack = {
        stack: "decoder" if stack == "cross" else stack for stack in mixing["stack"].unique()
    }
    stack_pairs = [
        (probed, stack)
        for stack, probed in probed_stack.items()
        if probed in set(probe_rows["stack"])
    ]
    if not stack_pairs:
        raise InputError(f"no stack has both probes and contributions by {measure!r}")
    colors = probe_colors(probe_rows, None)
    mixing = mixing[mixing["model"].isin(colors)]
    handles = probe_handles(probe_rows, None, colors)
    figure, axes = _paired_axes(len(stack_pairs), legend_height(handles, narrow), narrow)
    for (probe_axes, mixing_axes), (probed, stack) in zip(axes, stack_pairs, strict=True):
        draw_probes(
            probe_axes, probe_rows[probe_rows["stack"] == probed], value=value, colors=colors
        )
        probe_axes.set_title(
            f"{probed}: {'probed' if value == 'accuracy' else value}",
            size=TITLE_SIZE,
            parse_math=False,
        )
        layer_curves(mixing[mixing["stack"] == stack], ax=mixing_axes, x="depth", colors=colors)
        mixing_axes.set_title(
            f"{'cross-attention' if stack == 'cross' else stack}: mixed",
            size=TITLE_SIZE,
            parse_math=False,
        )
        mixing_axes.set(ylabel="")
    for probe_axes, mixing_axes in axes if narrow else axes[:1]:
        mixing_axes.set_ylim(bottom=0)  # once all is drawn: the others share it
        probe_axes.set_ylabel(PROBE_LABELS[value], size=LABEL_SIZE)
        mixing_axes.set_ylabel(f"{measure_label(measure)} (%)", size=LABEL_SIZE, parse_math=False)
    add_probe_legend(figure, handles, narrow)
    return figure


def _paired_axes(stack_count: int, legend_inches: float, narrow: bool) -> tuple[Figure, np.ndarray]:
    """Make a figure with two panels for each stack; return it with the axes [stack, 2]."""
    if narrow:
        figure = new_figure(NARROW_WIDTH, 3.8 * stack_count + legend_inches)
        return figure, figure.subplots(2 * stack_count, 1, sharex=True).reshape(stack_count, 2)
    figure = new_figure(max(2.9 * stack_count + 0.5, 4.4), 4.3 + legend_inches)
    return figure, figure.subplots(2, stack_count, sharex="col", sharey="row", squeeze=False).T
