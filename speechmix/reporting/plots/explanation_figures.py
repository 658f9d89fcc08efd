"""Explanations drawn: what each written word came from, or one word with its attributions and the
effects of removal.

In: an `Explanation` of `speechmix.explain`. Out: a Figure, nothing written. Written words go
downwards and sources to the right; the colours are those of coloured tokens: blue speaks for the
word, red against it, each row by its own largest number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from ...inputs.audio.waveform_envelope import waveform_envelope
from ...mixing.maps.measure_facts import measure_label
from . import panels
from .coloured_tokens import GIVES, TAKES
from .panels import LABEL_SIZE, TICK_SIZE, TITLE_SIZE

if TYPE_CHECKING:
    from ...explanations.attributions import Claim
    from ...explanations.numbers import ExplanationNumbers

_DARKEST = 0.7  # of full colour, as in coloured tokens
_COLORS = LinearSegmentedColormap.from_list(
    "for and against",
    [1 - _DARKEST * (1 - np.array(to_rgb(color))) for color in (TAKES, "white", GIVES)],
)
_MOST_NUMBERS = 400  # cells, above which numbers are too small to read
_MOST_SOURCES = 24  # bars of one word
_WAVE = 0.75  # inches of a waveform that is coloured by frame


def explained_text(explanation: ExplanationNumbers, *, measure: str | None = None) -> Figure:
    """What each written word came from, by one measure.

    Parameters
    ----------
    explanation : ExplanationNumbers
    measure : str, optional
        The first by default.

    Returns
    -------
    Figure
        Errors and contrasts stand where they stand among the choices; what stands behind a word is
        left white.
    """
    claim = explanation.claims[measure] if measure else next(iter(explanation.claims.values()))
    values = np.ma.masked_invalid(claim.values)
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True).filled(0), 1e-300)
    rows, columns = values.shape
    figure = panels.new_figure(max(0.5 * columns + 2.6, 4.5), max(0.26 * rows, 0.8) + 1.7)
    ax = figure.subplots()
    ax.pcolormesh(values / largest, cmap=_COLORS, vmin=-1, vmax=1, edgecolors="0.85", linewidth=0.4)
    ax.invert_yaxis()
    if values.size <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values.filled(np.nan)):
            if np.isfinite(value):
                ax.text(
                    column + 0.5,
                    row + 0.5,
                    _number(value, claim.of),
                    ha="center",
                    va="center",
                    size=TICK_SIZE - 1,
                )
    names = [
        f"{panels.shorten_text(choice.name, 30)}  p {choice.probability:.2g}"
        for choice in explanation.choices
    ]
    ax.set_yticks(np.arange(rows) + 0.5, names, size=TICK_SIZE, parse_math=False)
    labels = [panels.shorten_text(source.label, 14) for source in explanation.sources]
    ax.set_xticks(np.arange(columns) + 0.5, labels, size=TICK_SIZE, rotation=90, parse_math=False)
    _name_sides(ax, explanation)
    kind = "parts of the" if claim.of in ("log-probability", "logit") else "as a"
    title = (
        f"{panels.shorten_text(explanation.item, 40)}: {measure_label(claim.measure)}, {kind} "
        f"{claim.of}"
    )
    figure.suptitle(
        panels.wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False
    )
    return figure


def explained_word(explanation: ExplanationNumbers, place: int) -> Figure:
    """One word: a panel of bars for each measure, what the word loses without each source, and the
    waveform by frame.

    Parameters
    ----------
    explanation : ExplanationNumbers
    place : int
        Among its choices (`Explanation.choice`).

    Returns
    -------
    Figure
        The last panel has the median over fills and a line from the lowest to the highest. Below
        the bars there is a waveform for each measure that tells frames apart, coloured by what each
        frame gives.
    """
    choice = explanation.choices[place]
    known = [np.isfinite(claim.values[place]) for claim in explanation.claims.values()]
    shown = np.isfinite(explanation.probability_without[place])
    kept = np.flatnonzero(np.any([*known, shown], axis=0))[-_MOST_SOURCES:]
    count = len(explanation.claims) + 1
    fine = [claim for claim in explanation.claims.values() if claim.by_frame is not None]
    bars, waves = max(0.24 * len(kept), 0.7) + 1.5, _WAVE * len(fine)
    figure = panels.new_figure(max(1.9 * count + 1.5, 5.0 if fine else 0.0), bars + waves)
    parts = figure.subfigures(
        1 + bool(fine), 1, squeeze=False, height_ratios=[bars, *([waves] if fine else [])]
    )[:, 0]
    axes = parts[0].subplots(1, count, squeeze=False, sharey=True)[0]
    heights = np.arange(len(kept))
    for ax, (name, claim) in zip(axes, explanation.claims.items(), strict=False):
        values = claim.values[place, kept]
        ax.barh(
            heights,
            np.nan_to_num(values),
            color=[GIVES if value >= 0 else TAKES for value in np.nan_to_num(values)],
        )
        ax.axvline(0, color="0.4", linewidth=0.6)
        ax.set_title(measure_label(name), size=LABEL_SIZE)
        ax.set_xlabel(claim.unit, size=TICK_SIZE)
    last, (low, high) = axes[-1], explanation.drop_range
    last.hlines(heights, low[place, kept], high[place, kept], color="0.5", linewidth=1.2)
    last.plot(explanation.drops[place, kept], heights, "o", color="0.2", markersize=4)
    last.axvline(0, color="0.4", linewidth=0.6)
    last.set_title("effect of removal", size=LABEL_SIZE)
    last.set_xlabel("nats lost, range over fills", size=TICK_SIZE)
    labels = [
        panels.shorten_text(explanation.source_name(place, index), 24) for index in kept.tolist()
    ]
    axes[0].set_yticks(heights, labels, size=TICK_SIZE, parse_math=False)
    axes[0].invert_yaxis()
    for ax in axes:
        ax.tick_params(labelsize=TICK_SIZE, length=2)
    title = (
        f"{panels.shorten_text(explanation.item, 40)}: why {choice.name!r} (probability "
        f"{choice.probability:.2g})"
    )
    figure.suptitle(
        panels.wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False
    )
    if fine and explanation.clip is not None:
        strips = parts[1].subplots(len(fine), 1, squeeze=False, sharex=True)[:, 0]
        for ax, claim in zip(strips, fine, strict=True):
            _draw_frames(ax, explanation, claim, place)
        strips[-1].set_xlabel("seconds", size=TICK_SIZE)
    return figure


def _draw_frames(ax: Axes, explanation: ExplanationNumbers, claim: Claim, place: int) -> None:
    """The outline of the sound, each stretch on the colour of what its frame gives, with the
    words."""
    if claim.by_frame is None or explanation.clip is None:
        return
    samples = explanation.clip.audio(16_000)
    times, low, high = waveform_envelope(samples, 16_000)
    values, edges = (
        claim.by_frame.values[place],
        [*explanation.frames[:, 0], explanation.frames[-1, 1]],
    )
    shades = values / max(np.abs(values).max(initial=0.0), 1e-300)
    loudest = 1.05 * max(float(np.abs(samples).max(initial=0.0)), 1e-6)
    ax.pcolormesh(
        edges, [-loudest, loudest], shades[None], cmap=_COLORS, vmin=-1, vmax=1, rasterized=True
    )
    ax.fill_between(times, low, high, color="0.25", linewidth=0.3)
    ax.set(xlim=(0, explanation.clip.duration), ylim=(-loudest, loudest), yticks=[])
    ax.set_ylabel(measure_label(claim.measure), size=TICK_SIZE, rotation=0, ha="right", va="center")
    ax.tick_params(labelsize=TICK_SIZE, length=2)
    for source in explanation.sources:
        for onset, offset in source.times or ((source.onset, source.offset),):
            if onset is None or offset is None:
                continue
            ax.vlines([onset, offset], -loudest, loudest, color="0.4", linewidth=0.5)
            ax.text(
                (onset + offset) / 2,
                loudest,
                panels.shorten_text(source.label, 14),
                ha="center",
                va="bottom",
                size=TICK_SIZE,
                parse_math=False,
            )


def _name_sides(ax: Axes, explanation: ExplanationNumbers) -> None:
    """What the columns are, and a line where the text that was written before begins."""
    names = {
        "sound": "words of the sound",
        "read": "words of the text",
        "asked": "words of the prompt",
        "written": "written before",
    }
    sides = [source.side for source in explanation.sources]
    for side in dict.fromkeys(sides):
        first, count = sides.index(side), sides.count(side)
        ax.text(first + count / 2, -0.25, names[side], ha="center", va="bottom", size=LABEL_SIZE)
        if first:
            ax.axvline(first, color="0.2", linewidth=1.2)


def _number(value: float, of: str) -> str:
    return f"{100 * value:.0f}" if of == "share" else f"{value:.2g}"
