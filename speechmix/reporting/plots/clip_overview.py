"""Draw one clip with its maps: the sound with its words, maps in some layers, and the cue's
contribution.

In: a `Clip` and its maps. Out: a Figure: waveform and spectrogram with the words on top, a row of
word-by-word maps for each measure and stack below, and, where cue and target are known, the cue
contribution over layers at the bottom, that of untrained twins as a thin line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure, SubFigure

from ...inputs.clips.clip import Clip
from ...mixing.maps.mixing_map import MixingMap
from .clip_curves import MeasureAndStack, clip_curve_table, draw_clip_curves
from .clip_map_rows import draw_map_rows, make_map_rows, map_rows_height
from .figure_style import (
    LINE_PITCH,
    TITLE_SIZE,
    model_title,
    new_figure,
    shorten_text,
)
from .sound_panels import draw_sound, sound_height

_DrawFunction = Callable[[SubFigure], None]

_MAX_ROWS_HEIGHT = 7.5  # inches, of all rows of maps without their labels
_MAX_COLUMNS_WIDTH = 9.6  # inches, of all columns of maps


def clip_figure(
    clip: Clip,
    maps: Mapping[MeasureAndStack, MixingMap],
    *,
    layers: Sequence[int] | None = None,
    contributions: Mapping[MeasureAndStack, np.ndarray] | None = None,
    twins: Sequence[Mapping[MeasureAndStack, MixingMap]] = (),
) -> Figure:
    """Draw a clip with its maps.

    Silence and padding are left out before rows become shares, as in the cue contribution, so that
    the outlined cells and the curves show the same numbers (and padding, which can hold nearly all
    of a row, does not bleach the words).

    Parameters
    ----------
    clip : Clip
    maps : mapping of (measure, stack) to MixingMap
        As `speechmix.mix` returns it; may be empty.
    layers : sequence of int, optional
        Counted from 0. By default the same in all stacks: first, middle and last, and, if cue and
        target are known, the one of each stack in which the cue contribution by Value Zeroing
        peaks, which its title says. Stacks that do not have the same layers have a choice of their
        own.
    contributions : mapping of (measure, stack) to ndarray [L], optional
        Cue contribution, 0 to 1, in each layer of the map. By default computed from the maps if
        both words are known: of the deciding row where there is one, else of the target rows; the
        panel's title says which.
    twins : sequence of such mappings
        Maps of the same clip in untrained models, whose cue contribution is drawn as a thin line
        beside each curve.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a map does not have one of the layers, or the audio cannot be read.

    Examples
    --------
    >>> from speechmix.inputs.words.spans import Span
    >>> clip = Clip.from_array(np.zeros(8000), 16_000, words=[("les", 0, 0.2), ("livres", 0.2, 0.5)], cue=0, target=1)
    >>> units = (Span(0, 10, "les", word=0), Span(10, 25, "livres", word=1))
    >>> trained, twin = (MixingMap(np.array([[[3.0, 1.0], [x, 1.0]]]), units, units, "value_zeroing", "encoder", (0,))
    ...                  for x in (3.0, 1.0))
    >>> key = ("value_zeroing", "encoder")
    >>> figure = clip_figure(clip, {key: trained}, twins=[{key: twin}])
    >>> [line.get_ydata().tolist() for line in figure.axes[-1].lines]
    [[75.0], [50.0]]
    """
    row_names: dict[str, str] = {}
    if contributions is None:
        contributions, row_names = clip_curve_table(clip, maps)
    rows = make_map_rows(
        {key: _without_pauses(mixing_map) for key, mixing_map in maps.items()},
        layers,
        contributions,
    )
    n_columns = max((len(row.layers) for row in rows), default=0)
    sources = max((len(row.map.sources) for row in rows), default=0)
    targets = max((len(row.map.targets) for row in rows), default=0)
    panel_width = min(max(LINE_PITCH * sources, 1.5), 2.4, _MAX_COLUMNS_WIDTH / max(n_columns, 1))
    # Many rows get lower, so that the figure stays about twice as tall as wide.
    height = max(
        min(max(LINE_PITCH * targets, 1.4), 2.4, _MAX_ROWS_HEIGHT / max(len(rows), 1)),
        0.8,
    )
    width = max(7.5, n_columns * (panel_width + 0.12) + 2.0)
    figure_parts: list[tuple[float, _DrawFunction]] = [
        (
            sound_height(clip, width - 1.5),
            lambda subfigure: draw_sound(subfigure, clip, width - 1.5),
        )
    ]
    if rows:
        figure_parts.append(
            (
                map_rows_height(rows, panel_width, height),
                lambda subfigure: draw_map_rows(subfigure, rows, clip, panel_width, height),
            )
        )
    if contributions:
        twin_contributions = [clip_curve_table(clip, maps_of_twin)[0] for maps_of_twin in twins]
        key_order = list(dict.fromkeys([row.key for row in rows] + list(contributions)))
        contributions = {key: contributions[key] for key in key_order if key in contributions}
        figure_parts.append(
            (
                1.9,
                lambda subfigure: draw_clip_curves(
                    subfigure, maps, contributions, twin_contributions, row_names
                ),
            )
        )
    heights = [inches for inches, _ in figure_parts]
    figure = new_figure(width, sum(heights) + 0.2)
    models = {
        model_title(row.map.provenance): None for row in rows if row.map.provenance.get("model")
    }
    title = " · ".join([shorten_text(clip.name, 60), *models])
    figure.suptitle(title, size=TITLE_SIZE, parse_math=False)
    subfigures = figure.subfigures(len(figure_parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for subfigure, (_, draw) in zip(subfigures, figure_parts, strict=True):
        draw(subfigure)
    return figure


def _without_pauses(mixing_map: MixingMap) -> MixingMap:
    words = mixing_map.without("silence", "padding")
    return words if words.scores.size else mixing_map
