"""Draw a reliability diagram: how often words with some probability of being right are right.

In: a `WordCalibration`. Out: an Axes. After DeGroot & Fienberg 1983; the area of a dot says how many words it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from ...reporting.plots.figure_style import LABEL_SIZE, LINE_COLORS, TICK_SIZE, style_curve_axis

if TYPE_CHECKING:
    from .calibration import WordCalibration

_SIZE = 3.2  # inches of a side
_AREA = 400.0  # points squared of a dot that holds all words


def reliability_diagram(calibration: WordCalibration, *, ax: Axes | None = None) -> Axes:
    """Draw predicted probability against the share of words of which it is true, on held-out clips.

    Parameters
    ----------
    calibration : WordCalibration
        From `speechmix.calibrate`.
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
        Dots on the diagonal are well calibrated.
    """
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(
            figsize=(_SIZE, _SIZE), layout="constrained", facecolor="white"
        ).subplots()
    quality = calibration.quality
    predicted, actual, counts = zip(*quality["bins"], strict=True)
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    ax.plot(predicted, actual, color=LINE_COLORS[5], linewidth=0.8)
    areas = [_AREA * count / sum(counts) + 6 for count in counts]
    ax.scatter(predicted, actual, s=areas, color=LINE_COLORS[5], alpha=0.8, linewidths=0)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    ax.set_xlabel("predicted probability: word is right", size=LABEL_SIZE)
    ax.set_ylabel("share of words that are right", size=LABEL_SIZE)
    ax.set_title(
        f"{sum(counts)} words, calibration error {quality['calibration_error']:.3f}",
        size=LABEL_SIZE,
    )
    ax.tick_params(labelsize=TICK_SIZE)
    style_curve_axis(ax)
    return ax
