"""Draw lines of coloured tokens, one line for each measure, in the order of the text.

In: headings, tokens, and shares by measure. Out: a figure. A text that is wider than the figure goes on
below.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .figure_style import LABEL_SIZE, TICK_SIZE, new_figure

POSITIVE_COLOR, NEGATIVE_COLOR = "#0072b2", "#d55e00"  # of positive shares and of negative ones
DARKEST = 0.7  # of full colour, so that black and white letters can both be read on it
_FIGURE_WIDTH, _MIN_FIGURE_WIDTH = 9.0, 5.5  # inches
_LINE_HEIGHT, _TITLE_HEIGHT = 0.44, 0.5
_HEADING_LETTER, _LETTER, _PADDING, _GAP = 0.065, 0.08, 0.14, 0.04  # inches
_HEADING_LETTERS = 18  # in a line
_TITLE_LETTERS = 12  # in an inch
_MIN_LETTERS = 3  # room for the number


def draw_token_lines(
    headings: Sequence[str],
    labels: Sequence[str],
    shares: np.ndarray,
    color_shares: np.ndarray,
    *,
    title: str,
) -> Figure:
    """Draw shares [measures, sources] in percent, coloured by `color_shares`, -1 to 1."""
    heading_lines = [textwrap.wrap(heading, _HEADING_LETTERS) for heading in headings]
    margin = (
        _HEADING_LETTER * max(len(line) for lines in heading_lines for line in lines) + _PADDING
    )
    wrapped = list(_wrap(labels, _FIGURE_WIDTH - margin))
    text_width = max(left + token_width for line in wrapped for _, left, token_width in line)
    width, height = (
        max(margin + text_width, _MIN_FIGURE_WIDTH),
        _LINE_HEIGHT * len(headings) * len(wrapped),
    )
    figure = new_figure(width, height + _TITLE_HEIGHT)
    ax = figure.subplots()
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    ax.set_title(
        "\n".join(textwrap.wrap(title, round(_TITLE_LETTERS * width))), size=LABEL_SIZE, loc="left"
    )
    for measure, lines in enumerate(heading_lines):
        top = _LINE_HEIGHT * measure * len(wrapped)
        ax.text(_PADDING / 2, top + _LINE_HEIGHT / 2, "\n".join(lines), size=TICK_SIZE, va="center")
        for line, tokens in enumerate(wrapped):
            for index, left, token_width in tokens:
                box = (margin + left, top + line * _LINE_HEIGHT + _GAP / 2)
                ax.add_patch(
                    FancyBboxPatch(
                        box, token_width, _LINE_HEIGHT - _GAP, linewidth=0,
                        boxstyle="round,pad=0,rounding_size=0.06",
                        facecolor=_blend(float(color_shares[measure, index])),
                    )
                )  # fmt: skip
                centre = box[0] + token_width / 2
                ax.text(
                    centre, box[1] + 0.13, labels[index], size=LABEL_SIZE, ha="center", va="center"
                )
                number = f"{shares[measure, index] + 0.0:.0f}"
                ax.text(centre, box[1] + 0.29, number, size=TICK_SIZE - 1, ha="center", va="center")
    return figure


def _wrap(labels: Sequence[str], width: float) -> Iterator[list[tuple[int, float, float]]]:
    """Yield lines of (index of the token, left edge, width), in inches."""
    line: list[tuple[int, float, float]] = []
    left = 0.0
    for index, label in enumerate(labels):
        token_width = _LETTER * max(len(label), _MIN_LETTERS) + _PADDING
        if line and left + token_width > width:
            yield line
            line, left = [], 0.0
        line.append((index, left, token_width))
        left += token_width + _GAP
    yield line


def _blend(share: float) -> tuple[float, float, float]:
    """Return the colour of a value from -1 to 1 on white: blue if positive, red if negative."""
    strength = DARKEST * min(abs(share), 1.0)
    red, green, blue = (
        1 - strength + strength * channel
        for channel in to_rgb(POSITIVE_COLOR if share >= 0 else NEGATIVE_COLOR)
    )
    return red, green, blue
