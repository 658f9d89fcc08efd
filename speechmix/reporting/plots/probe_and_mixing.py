"""What a probe finds in each layer, above what each layer mixes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...errors import InputError
from ...mixing.maps.measure_facts import measure_label
from . import panels
from .cue_curves import layer_curves
from .panels import LABEL_SIZE, NARROW, TITLE_SIZE
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
    """Draw what is read above what is mixed, for each stack: where the cue comes in, the label
    should become readable.

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
    drawn = select_probes(probes, value, None)
    check_panels(drawn, None)
    mixing = contributions[
        (contributions["measure"] == measure) & contributions["contribution"].notna()
    ]
    read_at = {
        stack: "decoder" if stack == "cross" else stack for stack in mixing["stack"].unique()
    }
    pairs = [(read, stack) for stack, read in read_at.items() if read in set(drawn["stack"])]
    if not pairs:
        raise InputError(f"no stack has both probes and contributions by {measure!r}")
    colors = probe_colors(drawn, None)
    mixing = mixing[mixing["model"].isin(colors)]
    handles = probe_handles(drawn, None, colors)
    figure, axes = _paired_axes(len(pairs), legend_height(handles, narrow), narrow)
    for (above, below), (read, stack) in zip(axes, pairs, strict=True):
        draw_probes(above, drawn[drawn["stack"] == read], value=value, colors=colors)
        above.set_title(
            f"{read}: {'read' if value == 'accuracy' else value}", size=TITLE_SIZE, parse_math=False
        )
        layer_curves(mixing[mixing["stack"] == stack], ax=below, x="depth", colors=colors)
        below.set_title(
            f"{'cross-attention' if stack == 'cross' else stack}: mixed",
            size=TITLE_SIZE,
            parse_math=False,
        )
        below.set(ylabel="")
    for above, below in axes if narrow else axes[:1]:
        below.set_ylim(bottom=0)  # once all is drawn: the others share it
        above.set_ylabel(PROBE_LABELS[value], size=LABEL_SIZE)
        below.set_ylabel(f"{measure_label(measure)} (%)", size=LABEL_SIZE, parse_math=False)
    add_probe_legend(figure, handles, narrow)
    return figure


def _paired_axes(count: int, legend: float, narrow: bool) -> tuple[Figure, np.ndarray]:
    """Figure with two panels for each of some stacks, side by side or all below each other; panels
    [stack, 2]."""
    if narrow:
        figure = panels.new_figure(NARROW, 3.8 * count + legend)
        return figure, figure.subplots(2 * count, 1, sharex=True).reshape(count, 2)
    figure = panels.new_figure(max(2.9 * count + 0.5, 4.4), 4.3 + legend)
    return figure, figure.subplots(2, count, sharex="col", sharey="row", squeeze=False).T
