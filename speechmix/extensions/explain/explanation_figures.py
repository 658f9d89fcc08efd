"""Draw explanations: the attributions of each generated word, and the effects of removal.

In: an `Explanation` of `speechmix.explain`. Out: a Figure, nothing written. Written words go
downwards and sources to the right; the colours are those of coloured tokens: blue speaks for the
word, red against it, each row by its own largest number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from ...inputs.audio.spectrograms import waveform_envelope
from ...mixing.maps.measure_registry import measure_label
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LETTER_WIDTH,
    TICK_SIZE,
    TITLE_SIZE,
    choose_spaced,
    new_figure,
    shorten_text,
    wrap_text,
)
from ...reporting.plots.token_figure import NEGATIVE_COLOR, POSITIVE_COLOR

if TYPE_CHECKING:
    from .explanation_numbers import ExplanationNumbers
    from .word_attributions import Attribution

_MAX_OPACITY = 0.7  # of full colour, as in coloured tokens
_COLOR_MAP = LinearSegmentedColormap.from_list(
    "for and against",
    [
        1 - _MAX_OPACITY * (1 - np.array(to_rgb(color)))
        for color in (NEGATIVE_COLOR, "white", POSITIVE_COLOR)
    ],
)
_MAX_NUMBERS = 400  # cells, above which numbers are too small to read
_MAX_SOURCES = 24  # bars of one word
_WAVE_HEIGHT = 0.75  # inches of a waveform that is coloured by frame
_WAVE_MARGIN = 1.2  # inches beside it


def explained_text(
    explanation: ExplanationNumbers, *, measure: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the attributions of all generated words by one measure.

    Parameters
    ----------
    explanation : ExplanationNumbers
    measure : str, optional
        The first by default.
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
        Errors and contrasts stand where they stand among the choices; what stands behind a word is
        left white.
    """
    attribution = (
        explanation.attributions[measure]
        if measure
        else next(iter(explanation.attributions.values()))
    )
    values = np.ma.masked_invalid(attribution.values)
    row_maxima = np.maximum(np.abs(values).max(axis=1, keepdims=True).filled(0), 1e-300)
    rows, columns = values.shape
    width = max(0.5 * columns + 2.6, 4.5)
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(
            figsize=(width, max(0.26 * rows, 0.8) + 1.7), layout="constrained", facecolor="white"
        ).subplots()
    ax.pcolormesh(
        values / row_maxima, cmap=_COLOR_MAP, vmin=-1, vmax=1, edgecolors="0.85", linewidth=0.4
    )
    ax.invert_yaxis()
    if values.size <= _MAX_NUMBERS:
        for (row, column), value in np.ndenumerate(values.filled(np.nan)):
            if np.isfinite(value):
                ax.text(
                    column + 0.5,
                    row + 0.5,
                    _format_number(value, attribution.of),
                    ha="center",
                    va="center",
                    size=TICK_SIZE - 1,
                )
    names = [
        f"{shorten_text(choice.name, 30)}  p {choice.probability:.2g}"
        for choice in explanation.choices
    ]
    ax.set_yticks(np.arange(rows) + 0.5, names, size=TICK_SIZE, parse_math=False)
    labels = [shorten_text(source.label, 14) for source in explanation.sources]
    ax.set_xticks(np.arange(columns) + 0.5, labels, size=TICK_SIZE, rotation=90, parse_math=False)
    _label_sides(ax, explanation)
    kind_text = "parts of the" if attribution.of in ("log-probability", "logit") else "as a"
    title = (
        f"{shorten_text(explanation.item, 40)}: {measure_label(attribution.measure)}, {kind_text} "
        f"{attribution.of}"
    )
    ax.set_title(wrap_text(title, width), size=TITLE_SIZE, parse_math=False)
    return ax


def explained_word(explanation: ExplanationNumbers, choice_index: int) -> Figure:
    """Draw one generated word: bars for each measure, the effect of removing each source, and the
    waveform by frame.

    Parameters
    ----------
    explanation : ExplanationNumbers
    choice_index : int
        Among its choices (`Explanation.choice`).

    Returns
    -------
    Figure
        The last panel has the median over fills and a line from the lowest to the highest. Below
        the bars there is a waveform for each measure that tells frames apart, coloured by what each
        frame gives.
    """
    choice = explanation.choices[choice_index]
    has_attribution = [
        np.isfinite(attribution.values[choice_index])
        for attribution in explanation.attributions.values()
    ]
    has_effect = np.isfinite(explanation.probability_without[choice_index])
    source_indices = np.flatnonzero(np.any([*has_attribution, has_effect], axis=0))[-_MAX_SOURCES:]
    panel_count = len(explanation.attributions) + 1
    frame_attributions = [
        attribution
        for attribution in explanation.attributions.values()
        if attribution.by_frame is not None
    ]
    bars_height, waves_height = (
        max(0.24 * len(source_indices), 0.7) + 1.5,
        _WAVE_HEIGHT * len(frame_attributions),
    )
    figure = new_figure(
        max(1.9 * panel_count + 1.5, 5.0 if frame_attributions else 0.0), bars_height + waves_height
    )
    subfigures = figure.subfigures(
        1 + bool(frame_attributions),
        1,
        squeeze=False,
        height_ratios=[bars_height, *([waves_height] if frame_attributions else [])],
    )[:, 0]
    axes = subfigures[0].subplots(1, panel_count, squeeze=False, sharey=True)[0]
    heights = np.arange(len(source_indices))
    for ax, (name, attribution) in zip(axes, explanation.attributions.items(), strict=False):
        values = attribution.values[choice_index, source_indices]
        ax.barh(
            heights,
            np.nan_to_num(values),
            color=[
                POSITIVE_COLOR if value >= 0 else NEGATIVE_COLOR for value in np.nan_to_num(values)
            ],
        )
        ax.axvline(0, color="0.4", linewidth=0.6)
        ax.set_title(measure_label(name), size=LABEL_SIZE)
        ax.set_xlabel(attribution.unit, size=TICK_SIZE)
    effect_axes, (low, high) = axes[-1], explanation.drop_range
    effect_axes.hlines(
        heights,
        low[choice_index, source_indices],
        high[choice_index, source_indices],
        color="0.5",
        linewidth=1.2,
    )
    effect_axes.plot(
        explanation.drops[choice_index, source_indices], heights, "o", color="0.2", markersize=4
    )
    effect_axes.axvline(0, color="0.4", linewidth=0.6)
    effect_axes.set_title("effect of removal", size=LABEL_SIZE)
    effect_axes.set_xlabel("nats lost, range over fills", size=TICK_SIZE)
    labels = [
        shorten_text(explanation.source_name(choice_index, index), 24)
        for index in source_indices.tolist()
    ]
    axes[0].set_yticks(heights, labels, size=TICK_SIZE, parse_math=False)
    axes[0].invert_yaxis()
    for ax in axes:
        ax.tick_params(labelsize=TICK_SIZE, length=2)
    title = (
        f"{shorten_text(explanation.item, 40)}: why {choice.name!r} (probability "
        f"{choice.probability:.2g})"
    )
    figure.suptitle(wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False)
    if frame_attributions and explanation.clip is not None:
        wave_axes = subfigures[1].subplots(len(frame_attributions), 1, squeeze=False, sharex=True)[
            :, 0
        ]
        for ax, attribution in zip(wave_axes, frame_attributions, strict=True):
            _draw_colored_waveform(ax, explanation, attribution, choice_index)
        wave_axes[-1].set_xlabel("seconds", size=TICK_SIZE)
    return figure


def _draw_colored_waveform(
    ax: Axes, explanation: ExplanationNumbers, attribution: Attribution, choice_index: int
) -> None:
    """Draw the waveform, coloured by the attribution of each frame, with the words."""
    if attribution.by_frame is None or explanation.clip is None:
        return
    samples = explanation.clip.audio(16_000)
    times, low, high = waveform_envelope(samples, 16_000)
    values, edges = (
        attribution.by_frame.values[choice_index],
        [*explanation.frames[:, 0], explanation.frames[-1, 1]],
    )
    shades = values / max(np.abs(values).max(initial=0.0), 1e-300)
    max_amplitude = 1.05 * max(float(np.abs(samples).max(initial=0.0)), 1e-6)
    ax.pcolormesh(
        edges,
        [-max_amplitude, max_amplitude],
        shades[None],
        cmap=_COLOR_MAP,
        vmin=-1,
        vmax=1,
        rasterized=True,
    )
    ax.fill_between(times, low, high, color="0.25", linewidth=0.3)
    ax.set(xlim=(0, explanation.clip.duration), ylim=(-max_amplitude, max_amplitude), yticks=[])
    ax.set_ylabel(
        measure_label(attribution.measure), size=TICK_SIZE, rotation=0, ha="right", va="center"
    )
    ax.tick_params(labelsize=TICK_SIZE, length=2)
    labels: list[tuple[float, str, float]] = []  # centre, text, how much the source gives
    for index, source in enumerate(explanation.sources):
        size = float(np.nan_to_num(abs(attribution.values[choice_index, index])))
        for onset, offset in source.times or ((source.onset, source.offset),):
            if onset is None or offset is None:
                continue
            ax.vlines([onset, offset], -max_amplitude, max_amplitude, color="0.4", linewidth=0.5)
            labels.append(((onset + offset) / 2, shorten_text(source.label, 14), size))
    _label_above(ax, labels, explanation.clip.duration, max_amplitude)


def _label_above(
    ax: Axes, labels: Sequence[tuple[float, str, float]], duration: float, top: float
) -> None:
    """Write labels above a waveform; where there is no room for all, those of the largest sources."""
    if not labels:
        return
    centres, texts, sizes = zip(*labels, strict=True)
    inches = ax.figure.get_window_extent().width / ax.figure.dpi - _WAVE_MARGIN
    gap = (max(map(len, texts)) + 1) * LETTER_WIDTH * duration / inches
    by_size = np.argsort(sizes, kind="stable")[::-1].tolist()
    for index in choose_spaced(centres, gap, preferred=by_size):
        ax.text(
            centres[index],
            top,
            texts[index],
            ha="center",
            va="bottom",
            size=TICK_SIZE,
            parse_math=False,
        )


def _label_sides(ax: Axes, explanation: ExplanationNumbers) -> None:
    """Label the sides of the input above the columns, with lines between them."""
    side_titles = {
        "sound": "words of the audio",
        "padding": "behind it",
        "read": "words of the text",
        "asked": "words of the prompt",
        "written": "text before",
    }
    sides = [source.side for source in explanation.sources]
    for side in dict.fromkeys(sides):
        first_column, count = sides.index(side), sides.count(side)
        ax.text(
            first_column + count / 2,
            -0.25,
            side_titles[side],
            ha="center",
            va="bottom",
            size=LABEL_SIZE,
        )
        if first_column:
            ax.axvline(first_column, color="0.2", linewidth=1.2)


def _format_number(value: float, quantity: str) -> str:
    return f"{100 * value:.0f}" if quantity == "share" else f"{value:.2g}"
