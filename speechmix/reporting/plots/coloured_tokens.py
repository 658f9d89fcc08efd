"""Show a map as coloured tokens: choose a target, and see what each source contributes to it.

In: one layer of a `MixingMap`. Out: `ColouredTokens`, which a notebook shows (rows are chosen by
mouse or arrow keys, without any script), which prints as bars in a terminal, and which writes a
page of its own. Colour is the share of the row, on one scale for all rows of the layer; the number
stands below each token, so that nothing is said by colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...files.whole_files import whole_file
from ...inputs.words.cue_and_target import cue_words, number_repeated
from ...inputs.words.spans import Span
from ...mixing.maps.composition import encoder_source_count
from ...mixing.maps.mixing_map import MixingMap
from . import map_cells
from .figure_style import fed_text, map_subtitle, model_title

_MAX_CELLS = 60_000
_BAR_LENGTH = 24  # characters of a whole bar
POSITIVE_COLOR, NEGATIVE_COLOR = "#0072b2", "#d55e00"  # of positive shares and of negative ones
_DECODER_HEADING = "text before it"
_DARKEST = 0.7  # of full colour, so that black and white letters can both be read on it

_STYLE = """
.smx { font: 15px/1.5 system-ui, sans-serif; color: inherit; max-width: 60rem; margin: 0 }
.smx p { margin: .3rem 0; opacity: .8; font-size: 13px; overflow-wrap: anywhere }
.smx .rows { display: flex; flex-wrap: wrap; gap: .2rem .3rem; align-items: baseline }
.smx input { position: absolute; opacity: 0; width: 1px; height: 1px; margin: 0 }
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
.smx .own { display: block; margin: .3rem .3rem 0; font-size: 13px; opacity: .8 }
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
class ColouredTokens:
    """One layer of a map, shown row by row.

    Parameters
    ----------
    mixing_map : MixingMap
    shares : ndarray [W_t, W_s]
        In percent of each row; NaN where a row has none.
    layer : int
        Counted from 0.
    row : int
        The row that is shown first.
    """

    mixing_map: MixingMap
    shares: np.ndarray
    layer: int
    row: int

    @property
    def caption(self) -> str:
        """Measure, layer and model, and who wrote the text that the decoder was fed."""
        provenance = self.mixing_map.provenance
        phrases = [f"{map_subtitle(self.mixing_map)}, layer {self.layer}"]
        phrases += [model_title(provenance)] if provenance.get("model") else []
        return " · ".join([*phrases, fed_text(provenance)]).removesuffix(" · ")

    def __str__(self) -> str:
        """The row that is shown first, as bars; plain text."""
        shares, sources = np.nan_to_num(self.shares[self.row]), self.mixing_map.sources
        largest_share = max(self._full_color_share, 1e-12)
        target_label = _number_words(self.mixing_map.targets)[self.row]
        lines = [self.caption, f"row {self.row}, {target_label!r}, gets contributions from"]
        labels = _number_words(sources)
        label_width = max(map(len, labels))
        for source_index, (source, share) in enumerate(zip(sources, shares, strict=True)):
            if self._starts_decoder_tokens(source_index):
                lines.append(f"  {_DECODER_HEADING}:")
            bar = "█" * round(min(abs(share) / largest_share, 1.0) * _BAR_LENGTH)
            lines.append(
                f"  {labels[source_index]:<{label_width}}  {share:6.1f} %  {bar}{self._role_text(source)}".rstrip()
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            self._row_html(index, target) for index, target in enumerate(self.mixing_map.targets)
        )
        return (
            f'<form class="smx"><style>{_STYLE}</style><p>{html.escape(self.caption)}</p>'
            f'<p>{self._legend_text}</p><div class="rows">{rows}</div></form>'
        )

    def save(self, path: str | Path) -> Path:
        """Write a page that needs no other file; light or dark as the reader has it."""
        page = _PAGE_TEMPLATE.format(title=html.escape(self.caption), body=self._repr_html_())
        with whole_file(Path(path)) as part_path:
            part_path.write_text(page, encoding="utf-8")
        return Path(path)

    @property
    def _full_color_share(self) -> float:
        """Share that has the fullest colour; rows with a single source do not bleach all others."""
        limits = map_cells.color_limits([np.ma.masked_invalid(self.shares)])
        return max(abs(limit) for limit in limits)

    def _row_html(self, index: int, target: Span) -> str:
        checked = " checked" if index == self.row else ""
        choice = f'<input type="radio" name="row"{checked}>{self._label_html(target)}'
        tokens = "".join(
            self._token_html(source_index, source, share)
            for source_index, (source, share) in enumerate(
                zip(self.mixing_map.sources, np.nan_to_num(self.shares[index]), strict=True)
            )
        )
        return (
            f'<label{self._class_attribute(target)}>{choice}</label><div class="row">{tokens}</div>'
        )

    def _token_html(self, source_index: int, source: Span, share: float) -> str:
        color = _css_color(share / max(self._full_color_share, 1e-12))
        heading = (
            f'<span class="own">{_DECODER_HEADING}:</span>'
            if self._starts_decoder_tokens(source_index)
            else ""
        )
        return (
            f'{heading}<span class="t" style="background: {color}" '
            f'title="{html.escape(source.label)}: {share:.2f} %">'
            f"<span{self._class_attribute(source)}>{self._label_html(source)}</span><small>{share:.0f}</small></span>"
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
        return f"Choose a target; below it are the shares of its sources in %{role_legend}."

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
    ('rgba(0, 114, 178, 0.700)', 'rgba(213, 94, 0, 0.350)')
    """
    red, green, blue = bytes.fromhex((POSITIVE_COLOR if share >= 0 else NEGATIVE_COLOR)[1:])
    return f"rgba({red}, {green}, {blue}, {_DARKEST * min(abs(share), 1.0):.3f})"


def coloured_tokens(
    mixing_map: MixingMap, *, layer: int | None = None, row: int | str | None = None
) -> ColouredTokens:
    """Show what each source gives to the rows of one layer, as coloured tokens.

    Parameters
    ----------
    mixing_map : MixingMap
        Raw or after steps; heads are normalised first and averaged after.
    layer : int, optional
        Counted from 0; the last by default (`MixingMap.mean_layers` makes one of all).
    row : int or str, optional
        The row to begin with, by its place or its label; by default the target's last, or the last
        that is no marker.

    Raises
    ------
    InputError
        For a layer or row that there is not, and for maps of more than 60,000 cells.

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
    if not 0 < mixing_map.scores[0].size <= _MAX_CELLS:
        raise InputError(
            f"{mixing_map!r}: coloured tokens are for 1 to {_MAX_CELLS:,} cells; pool it "
            "(.pooled), or use .plot()"
        )
    layer = mixing_map.layers[-1] if layer is None else layer
    mixing_map.layer(layer)  # raises if there is none
    shares = map_cells.displayed_shares(mixing_map)[mixing_map.layers.index(layer)].filled(np.nan)
    return ColouredTokens(mixing_map, shares, layer, _find_row(mixing_map, row))


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
        unit_rows = [i for i, unit in enumerate(targets) if unit.kind in ("word", "token", "frame")]
        return (target_rows or unit_rows or [len(targets) - 1])[-1]
    row_indices = (
        [row]
        if isinstance(row, int)
        else [i for i, unit in enumerate(targets) if unit.label == row]
    )
    if len(row_indices) != 1 or not 0 <= row_indices[0] < len(targets):
        listed_rows = ", ".join(f"{i} {unit.label!r}" for i, unit in enumerate(targets[:40]))
        raise InputError(f"row={row!r} should be one of the rows: {listed_rows}")
    return row_indices[0]
