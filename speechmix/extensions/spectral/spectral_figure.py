"""Draw which cells of time x frequency band a decision rests on: colours on the spectrogram, formants over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ...errors import InputError
from ...inputs.audio.spectrograms import track_formants
from ...reporting.plots.clip_overview import draw_spectrogram
from ...reporting.plots.figure_style import (
    CELL_COLOR,
    LABEL_SIZE,
    TICK_SIZE,
    new_figure,
    shorten_text,
    wrap_text,
)
from ...reporting.plots.map_cells import DIFFERENCE_COLORS

if TYPE_CHECKING:
    from .spectral_explanation import SpectralExplanation

_MAX_LABELS = 24


def spectral_figure(result: SpectralExplanation, *, ax: Axes | None = None) -> Axes:
    """Draw the Shapley values of cells (mean over fills) on the spectrogram of the clip.

    Parameters
    ----------
    result : SpectralExplanation
    ax : Axes, optional

    Returns
    -------
    Axes
        Red cells support the target, blue ones oppose it. A frame marks leading cells; dots are the formants F1 to F4.
    """
    ax = new_figure(7.2, 3.8).subplots() if ax is None else ax
    samples, scores, edges = result.clip.audio(), result.scores, np.asarray(result.edges)
    draw_spectrogram(None, ax, samples, result.clip.duration)
    limit = max(float(np.abs(scores).max()), 1e-9)
    colors: dict[str, Any] = {
        "cmap": DIFFERENCE_COLORS,
        "vmin": -limit,
        "vmax": limit,
        "alpha": 0.45,
    }
    for index, time in enumerate(result.times):
        for start, end in time.intervals:
            cells = ax.pcolormesh([start, end], edges, scores[index][:, None], **colors)
            ax.vlines([start, end], 0, edges[-1], color="0.3", linewidth=0.6)
            for band in [band for leading, band in result.leading_cells if leading == index]:
                frame = Rectangle((start, edges[band]), end - start, edges[band + 1] - edges[band])
                frame.set(fill=False, edgecolor=CELL_COLOR, linewidth=2, zorder=4)
                ax.add_patch(frame)
    _draw_formants(ax, result, samples)
    bar = ax.figure.colorbar(cells, ax=ax, pad=0.02, fraction=0.06)
    bar.set_label("Shapley value (nats)", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    if len(result.times) <= _MAX_LABELS:
        top = ax.secondary_xaxis("top")
        middles = [(time.start + time.end) / 2 for time in result.times]
        labels = [shorten_text(time.text) for time in result.times]
        top.set_xticks(middles, labels, size=TICK_SIZE, parse_math=False)
        top.tick_params(length=0)
    ax.set_title(wrap_text(result.summary, 6.5), size=LABEL_SIZE, parse_math=False)
    return ax


def _draw_formants(ax: Axes, result: SpectralExplanation, samples: np.ndarray) -> None:
    try:
        seconds, formants = track_formants(samples, 16_000)
    except InputError:  # the sound is too short to have any
        return
    words = result.clip.spoken_words or result.times  # noise between words has no formants
    spoken = [(seconds >= word.start) & (seconds <= word.end) for word in words]
    formants[~np.any(spoken, axis=0)] = np.nan
    ax.plot(seconds, formants[:, :4], ".", color="black", markersize=2.2, zorder=3)
