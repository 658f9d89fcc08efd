"""Show maps as coloured tokens: choose a target and a layer, and see what each source contributes.

In: a `MixingMap`, or maps of several measures. Out: `ColouredTokens`, a line of tokens for each
measure, which a notebook shows (rows and layers are chosen by mouse or arrow keys, without any
script), which prints in a terminal, and which writes a page or draws a figure. Colour is the share of
the row, on one scale for all rows of a measure and layer; the number stands below each token, so that
nothing is said by colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.whole_files import whole_file
from ...inputs.words.cue_and_target import cue_words, number_repeated
from ...inputs.words.spans import Span
from ...mixing.maps.composition import encoder_source_count
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from . import map_cells
from .figure_style import fed_text, map_subtitle, model_title
from .token_figure import DARKEST, NEGATIVE_COLOR, POSITIVE_COLOR, draw_token_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CELLS = 60_000
_MASK_LABELS = ("[mask]", "<mask>")
_BAR_LENGTH = 24  # characters of a whole bar
_DECODER_HEADING = "text before it"

_STYLE = """
.smx { font: 15px/1.5 system-ui, sans-serif; color: inherit; max-width: 60rem; margin: 0 }
.smx p { margin: .3rem 0; opacity: .8; font-size: 13px; overflow-wrap: anywhere }
.smx .rows { display: flex; flex-wrap: wrap; gap: .2rem .3rem; align-items: baseline }
.smx input { position: absolute; opacity: 0; width: 1px; height: 1px; margin: 0 }
.smx .layers { display: flex; flex-wrap: wrap; gap: .2rem .3rem; align-items: baseline; margin: 0 0 .5rem }
.smx .layers span { font-size: 13px; opacity: .8 }
.smx .layer { display: none }
.smx label { order: 0; cursor: pointer; padding: .05rem .35rem; border-radius: .3rem }
.smx label { position: relative; border: 1px solid rgba(128, 128, 128, .55) }
.smx .special { opacity: .7; font-style: italic }
.smx label:has(:checked) { outline: 2px solid currentColor; opacity: 1 }
.smx label:has(:focus-visible) { outline: 3px solid #0072b2; outline-offset: 2px }
.smx .row { order: 1; display: none; flex: 0 0 100%; margin: .5rem 0 0 }
.smx label:has(:checked) + .row { display: block }
.smx .t { display: inline-block; text-align: center; padding: .05rem .3rem; margin: .1rem; border-radius: .3rem }
.smx .t small { display: block; font-size: 11px; opacity: .85; font-variant-numeric: tabular-nums }
.smx .cue { text-decoration: underline 2px } .smx .target { text-decoration: underline double 2px }
.smx i { font-style: normal }
.smx .own { display: block; margin: .5rem .3rem 0; font-size: 13px; font-weight: normal; opacity: .8 }
""".strip()
_PAGE_TEMPLATE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
    'content="width=device-width, '
    'initial-scale=1"><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'\">"
    "<title>{title}</title><style>:root {{ color-scheme: light dark }} body {{ margin: 1rem "
    "}}</style></head>"
    "<body>{body}</body></html>"
)


@dataclass(frozen=True)
class TokenLine:
    """The shares of one measure.

    Parameters
    ----------
    heading : str
    mixing_map : MixingMap
    shares : ndarray [L, W_t, W_s]
        In percent of each row; NaN where a row has none.
    """

    heading: str
    mixing_map: MixingMap
    shares: np.ndarray

    def row(self, layer_index: int, row: int) -> np.ndarray:
        """Shares of one row; those of the only row where a measure explains one output."""
        shares = self.shares[layer_index]
        row_shares: np.ndarray = np.nan_to_num(shares[row if len(shares) > 1 else 0])
        return row_shares

    def full_color_share(self, layer_index: int) -> float:
        """Share that has the fullest colour; rows with a single source do not bleach all others."""
        limits = map_cells.color_limits([np.ma.masked_invalid(self.shares[layer_index])])
        return max(*(abs(limit) for limit in limits), 1e-12)


@dataclass(frozen=True, repr=False)
class ColouredTokens:
    """Layers of one or several maps, shown row by row.

    Parameters
    ----------
    lines : tuple of TokenLine
        Maps with the same sources; the first one has all targets.
    layers : tuple of int
        Counted from 0; those that can be chosen.
    layer : int
        The layer that is shown first.
    row : int
        The row that is shown first.
    """

    lines: tuple[TokenLine, ...]
    layers: tuple[int, ...]
    layer: int
    row: int

    @property
    def mixing_map(self) -> MixingMap:
        """The first map, whose targets and sources are shown."""
        return self.lines[0].mixing_map

    @property
    def caption(self) -> str:
        """Measure, layer and model, and who wrote the text that the decoder was fed."""
        return self._describe(f", layer {self.layer}")

    def _describe(self, layer_text: str) -> str:
        provenance, count = self.mixing_map.provenance, len(self.lines)
        subject = (
            map_subtitle(self.mixing_map)
            if count == 1
            else map_subtitle(self.mixing_map).replace(
                measure_label(self.mixing_map.measure), f"{count} measures", 1
            )
        )
        phrases = [f"{subject}{layer_text}"]
        phrases += [model_title(provenance)] if provenance.get("model") else []
        return " · ".join([*phrases, fed_text(provenance)]).removesuffix(" · ")

    def __str__(self) -> str:
        """The row that is shown first: bars of one measure, a table of several; plain text."""
        target_label = _number_words(self.mixing_map.targets)[self.row]
        lines = [self.caption, f"row {self.row}, {target_label!r}, gets contributions from"]
        return "\n".join([*lines, *(self._bars() if len(self.lines) == 1 else self._table())])

    __repr__ = __str__

    def _bars(self) -> Iterator[str]:
        line, layer_index = self.lines[0], self.layers.index(self.layer)
        labels = _number_words(self.mixing_map.sources)
        label_width = max(map(len, labels))
        largest_share = line.full_color_share(layer_index)
        shares = line.row(layer_index, self.row)
        for index, (source, share) in enumerate(zip(self.mixing_map.sources, shares, strict=True)):
            if self._starts_decoder_tokens(index):
                yield f"  {_DECODER_HEADING}:"
            bar = "█" * round(min(abs(share) / largest_share, 1.0) * _BAR_LENGTH)
            role = self._role_text(source)
            yield f"  {labels[index]:<{label_width}}  {share:6.1f} %  {bar}{role}".rstrip()

    def _table(self) -> Iterator[str]:
        """A row for each source and a column for each measure."""
        labels = _number_words(self.mixing_map.sources)
        label_width, layer_index = max(map(len, labels)), self.layers.index(self.layer)
        rows = [line.row(layer_index, self.row) for line in self.lines]
        yield f"  {'':<{label_width}}  " + "  ".join(line.heading for line in self.lines)
        for index, source in enumerate(self.mixing_map.sources):
            cells = [
                f"{row[index]:{len(line.heading)}.1f}"
                for line, row in zip(self.lines, rows, strict=True)
            ]
            yield f"  {labels[index]:<{label_width}}  {'  '.join(cells)}{self._role_text(source)}"

    def _repr_html_(self) -> str:
        rows = "".join(
            self._row_html(index, target) for index, target in enumerate(self.mixing_map.targets)
        )
        has_layers = len(self.layers) > 1
        caption = self._describe("" if has_layers else f", layer {self.layer}")
        switch = self._layer_switch() if has_layers else ""
        return (
            f'<form class="smx"><style>{_STYLE}{self._layer_style() if has_layers else ""}</style>'
            f"<p>{html.escape(caption)}</p><p>{self._legend_text}</p>{switch}"
            f'<div class="rows">{rows}</div></form>'
        )

    def save(self, path: str | Path) -> Path:
        """Write a page that needs no other file; light or dark as the reader has it."""
        page = _PAGE_TEMPLATE.format(title=html.escape(self.caption), body=self._repr_html_())
        with whole_file(Path(path)) as part_path:
            part_path.write_text(page, encoding="utf-8")
        return Path(path)

    def plot(self) -> Figure:
        """Draw the row and layer that are shown first: a line of coloured tokens for each measure."""
        layer_index = self.layers.index(self.layer)
        shares = np.stack([line.row(layer_index, self.row) for line in self.lines])
        scales = np.array([line.full_color_share(layer_index) for line in self.lines])
        target_label = _number_words(self.mixing_map.targets)[self.row]
        return draw_token_lines(
            [line.heading for line in self.lines],
            [unit.label or "␣" for unit in self.mixing_map.sources],
            shares,
            shares / scales[:, None],
            title=f"What contributes to {target_label}: {self.caption}",
        )

    def _layer_switch(self) -> str:
        choices = "".join(
            f'<label><input type="radio" name="layer" class="p{layer}"'
            f"{' checked' if layer == self.layer else ''}>{layer}</label>"
            for layer in self.layers
        )
        return f'<div class="layers"><span>Layer</span>{choices}</div>'

    def _layer_style(self) -> str:
        return "".join(
            f"\n.smx:has(.p{layer}:checked) .l{layer} {{ display: block }}" for layer in self.layers
        )

    def _row_html(self, index: int, target: Span) -> str:
        checked = " checked" if index == self.row else ""
        choice = f'<input type="radio" name="row"{checked}>{self._label_html(target)}'
        layer_class = "layer l{}" if len(self.layers) > 1 else "l{}"
        layers = "".join(
            f'<div class="{layer_class.format(layer)}">{self._lines_html(layer_index, index)}</div>'
            for layer_index, layer in enumerate(self.layers)
        )
        return (
            f'<label{self._class_attribute(target)}>{choice}</label><div class="row">{layers}</div>'
        )

    def _lines_html(self, layer_index: int, row: int) -> str:
        lines = []
        for line in self.lines:
            full_color_share = line.full_color_share(layer_index)
            tokens = "".join(
                self._token_html(source_index, share, share / full_color_share)
                for source_index, share in enumerate(line.row(layer_index, row))
            )
            heading = (
                f'<b class="own">{html.escape(line.heading)}</b>' if len(self.lines) > 1 else ""
            )
            lines.append(f"{heading}{tokens}")
        return "".join(lines)

    def _token_html(self, source_index: int, share: float, color_share: float) -> str:
        source = self.mixing_map.sources[source_index]
        heading = (
            f'<span class="own">{_DECODER_HEADING}:</span>'
            if self._starts_decoder_tokens(source_index)
            else ""
        )
        label, class_attribute = self._label_html(source), self._class_attribute(source)
        label = f"<span{class_attribute}>{label}</span>" if class_attribute else label
        return (
            f'{heading}<span class="t" style="background:{_css_color(color_share)}" '
            f'title="{share:.2f} %">{label}<small>{share:.0f}</small></span>'
        )

    def _starts_decoder_tokens(self, source_index: int) -> bool:
        """Whether the decoder's own tokens begin here, behind the encoder's units of a composed
        map."""
        return source_index > 0 and source_index == encoder_source_count(self.mixing_map)

    def _label_html(self, unit: Span) -> str:
        text, role = html.escape(unit.label) or "␣", self._role_text(unit).strip(" ()")
        return f'<i class="{role}">{text}</i>' if role else text

    def _class_attribute(self, unit: Span) -> str:
        return ' class="special"' if unit.kind in ("special", "silence", "padding") else ""

    @property
    def _legend_text(self) -> str:
        units = (*self.mixing_map.targets, *self.mixing_map.sources)
        roles = {self._role_text(unit).strip(" ()") for unit in units} - {""}
        marks = {"cue": "the cue is underlined", "target": "the target twice"}
        role_legend = (
            "; " + ", ".join(marks[role] for role in marks if role in roles) if roles else ""
        )
        scale = " Each measure has its own scale of colours." if len(self.lines) > 1 else ""
        return f"Choose a target; below it are the shares of its sources in %{role_legend}.{scale}"

    def _role_text(self, unit: Span) -> str:
        if unit.word is None:
            return ""
        provenance = self.mixing_map.provenance
        roles = [role for role in ("cue", "target") if unit.word in cue_words(provenance.get(role))]
        return f"  ({roles[0]})" if roles else ""


def _css_color(share: float) -> str:
    """Return the CSS colour of a value from -1 to 1: blue if positive, red if negative.

    Examples
    --------
    >>> _css_color(1.0), _css_color(-0.5)
    ('#0072b2b2', '#d55e0059')
    """
    opacity = int(255 * DARKEST * min(abs(share), 1.0))
    return f"{POSITIVE_COLOR if share >= 0 else NEGATIVE_COLOR}{opacity:02x}"


def coloured_tokens(
    mixing_map: MixingMap, *, layer: int | None = None, row: int | str | None = None
) -> ColouredTokens:
    """Show what each source contributes to the rows of a map, as coloured tokens with a switch for the layer.

    Parameters
    ----------
    mixing_map : MixingMap
        Raw or after steps; heads are normalised first and averaged after.
    layer : int, optional
        The layer to begin with, counted from 0; the last by default (`MixingMap.mean_layers` makes one of
        all). Of a map of more than 60,000 cells, only this layer is shown.
    row : int or str, optional
        The row to begin with, by its place or its label; by default that of the mask, else the target's
        last, or the last that is no marker.

    Raises
    ------
    InputError
        For a layer or row that there is not, and for layers of more than 60,000 cells.

    Examples
    --------
    >>> words = (Span(0, 10, "les"), Span(10, 30, "livres"))
    >>> one = MixingMap(np.array([[[3.0, 1.0], [1.0, 3.0]]]), words, words, "value_zeroing", "encoder", (3,))
    >>> print(coloured_tokens(one, row="livres"))
    value zeroing, encoder, layer 3
    row 1, 'livres', gets contributions from
      les       25.0 %  ████████
      livres    75.0 %  ████████████████████████
    """
    return _arrange_lines([mixing_map], layer, row)


def compare_tokens(
    maps: Mapping[tuple[str, str], MixingMap],
    *,
    stack: str | None = None,
    layer: int | None = None,
    row: int | str | None = None,
    rolled_out: bool = False,
) -> ColouredTokens:
    """Show what each source contributes by all measures, below each other.

    Parameters
    ----------
    maps : Maps
        Of one clip or sentence.
    stack : str, optional
        By default that of the first map. Measures that other stacks have are not shown.
    layer, row
        As in `coloured_tokens`.
    rolled_out : bool
        Roll each map out over layers first (`MixingMap.rollout`). Measures that explain one output
        have no rollout and are left out.

    Raises
    ------
    InputError
        As `coloured_tokens`; and if no map is of that stack, or none can be rolled out.
    """
    stack = next((name for _, name in maps), "") if stack is None else stack
    of_stack = [mixing_map for (_, name), mixing_map in maps.items() if name == stack]
    if not of_stack:
        raise InputError(f"no maps of stack {stack!r}: there are {', '.join(map(repr, maps))}")
    first = next((one for one in of_stack if len(one.targets) > 1), of_stack[0])
    if rolled_out:
        of_stack = [one.rollout() for one in of_stack if len(one.targets) > 1 or one is first]
    labels = [unit.label for unit in first.sources]
    alike = [one for one in of_stack if [unit.label for unit in one.sources] == labels]
    alike.sort(key=lambda one: len(one.targets) != len(first.targets))  # the first has all targets
    return _arrange_lines(alike, layer, row)


def _arrange_lines(
    maps: Sequence[MixingMap], layer: int | None, row: int | str | None
) -> ColouredTokens:
    """Make the lines of maps with the same sources, of all layers or of those that fit on a page."""
    first = maps[0]
    if not 0 < first.scores[0].size <= _MAX_CELLS:
        raise InputError(
            f"{first!r}: coloured tokens are for 1 to {_MAX_CELLS:,} cells; pool it "
            "(.pooled), or use .plot()"
        )
    layer = first.layers[-1] if layer is None else layer
    first.layer(layer)  # raises if there is none
    is_small = sum(one.scores.size for one in maps) <= _MAX_CELLS
    layers = first.layers if is_small else (layer,)
    lines = []
    for one in maps:
        layer_indices = [_nearest_index(one.layers, number) for number in layers]
        shares = map_cells.displayed_shares(one)[layer_indices].filled(np.nan)
        output = f" (of the output {one.targets[0].label!r})" if len(one.targets) == 1 else ""
        lines.append(TokenLine(f"{measure_label(one.measure)}{output}", one, shares))
    return ColouredTokens(tuple(lines), layers, layer, _find_row(first, row))


def _nearest_index(layers: Sequence[int], layer: int) -> int:
    """Index of a layer, or of the last one of a measure that does not have it."""
    return layers.index(layer) if layer in layers else len(layers) - 1


def _number_words(units: Sequence[Span]) -> list[str]:
    """Labels of units; of words that are there several times with their numbers."""
    word_indices = [index for index, unit in enumerate(units) if unit.kind == "word"]
    labels = [unit.label for unit in units]
    numbered = number_repeated([labels[index] for index in word_indices])
    for index, label in zip(word_indices, numbered, strict=True):
        labels[index] = label
    return labels


def _find_row(mixing_map: MixingMap, row: int | str | None) -> int:
    targets = mixing_map.targets
    if row is None:
        target_word = mixing_map.provenance.get("target")
        target_rows = [
            i
            for i, unit in enumerate(targets)
            if target_word is not None and unit.word == target_word
        ]
        mask_rows = [i for i, unit in enumerate(targets) if unit.label.casefold() in _MASK_LABELS]
        unit_rows = [i for i, unit in enumerate(targets) if unit.kind in ("word", "token", "frame")]
        return (mask_rows or target_rows or unit_rows or [len(targets) - 1])[-1]
    row_indices = (
        [row]
        if isinstance(row, int)
        else [i for i, unit in enumerate(targets) if unit.label == row]
    )
    if len(row_indices) != 1 or not 0 <= row_indices[0] < len(targets):
        listed_rows = ", ".join(f"{i} {unit.label!r}" for i, unit in enumerate(targets[:40]))
        raise InputError(f"row={row!r} should be one of the rows: {listed_rows}")
    return row_indices[0]
