"""Pool a finished map's units into larger ones: frames or sub-words into words, or into requested
spans.

In: a `MixingMap`. Out: scores averaged over the positions of a target, averaged or summed over
those of a source, and the new units. A word in pieces is one unit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.words.spans import Span, SpanRequest, parse_span_request

if TYPE_CHECKING:
    from .score_map import ScoreMap

POOLING_METHODS = ("mean", "sum")


def group_units(
    units: Sequence[Span], spans: Sequence[SpanRequest] | None, provenance: Mapping[str, Json]
) -> list[tuple[Span, list[int]]]:
    """Group units: those inside each requested span, or runs of units of one word (others stay as
    they are).

    Returns each new unit with the indices of the old ones in it. Of a word in pieces, as the
    provenance says, all its units of one kind are one, wherever they are. An InputError says that a
    span holds no unit, or that a unit lies across its edge.
    """
    if spans is None:
        index_groups = _group_by_word(units, provenance.get("in_pieces", ()))
        return [
            (_join_units([units[i] for i in unit_indices], provenance), unit_indices)
            for unit_indices in index_groups
        ]
    groups = []
    for index, requested_span in enumerate(spans):
        span = (
            requested_span
            if isinstance(requested_span, Span)
            else Span.from_ranges(parse_span_request(requested_span))
        )
        positions = set(span.positions)
        unit_indices = [
            i for i, unit in enumerate(units) if not positions.isdisjoint(unit.positions)
        ]
        crossing_units = [
            units[i] for i in unit_indices if not positions.issuperset(units[i].positions)
        ]
        if not unit_indices or crossing_units:
            reason = (
                f"{crossing_units[0]} lies across its edge"
                if crossing_units
                else "no unit of the map lies in it"
            )
            ranges = " and ".join(f"[{start}, {stop})" for start, stop in span.ranges)
            raise InputError(
                f"span {index}, {ranges}: {reason}; spans should be made of whole units"
            )
        groups.append(
            (
                requested_span
                if isinstance(requested_span, Span)
                else _label_span(span, [units[i] for i in unit_indices]),
                unit_indices,
            )
        )
    return groups


def _group_by_word(units: Sequence[Span], multipart_words: Collection[int]) -> list[list[int]]:
    """Indices of the units of each word, in the order of their first."""
    runs = groupby(
        range(len(units)), key=lambda i: (units[i].word, i if units[i].word is None else -1)
    )
    groups: list[list[int]] = []
    multipart_groups: dict[
        tuple[int, str], list[int]
    ] = {}  # units of words in pieces, by their kind: a word may be heard and written
    for (word, _), word_run in runs:
        unit_indices = list(word_run)
        if word is not None and word in multipart_words:
            previous_indices = multipart_groups.setdefault(
                (word, units[unit_indices[0]].kind), unit_indices
            )
            if previous_indices is not unit_indices:
                previous_indices += unit_indices
                continue
        groups.append(unit_indices)
    return groups


def _label_span(span: Span, units: list[Span]) -> Span:
    """Label a span that is requested by its positions alone with the labels of its units."""
    joined_span = replace(_join_units(units, {}), kind="word")
    return (
        replace(joined_span, pieces=span.pieces, times=_unit_intervals(units))
        if span.pieces
        else joined_span
    )


def _unit_intervals(units: list[Span]) -> tuple[tuple[float, float], ...]:
    return tuple(interval for unit in units for interval in unit.intervals)


def _join_units(units: list[Span], provenance: Mapping[str, Json]) -> Span:
    """One span over several of the same word, labelled with the word where the clip's words are
    known."""
    first, last = units[0], units[-1]
    if first.word is None and len(units) == 1:
        return first
    words = provenance.get("words") or []
    if first.word is not None and first.word < len(words):
        label = words[first.word][0]
    else:
        label = "".join(unit.label.removeprefix("##") for unit in units).strip("Ġ▁ ")
    joined_span = Span(first.start, last.stop, label, "word", first.word, first.onset, last.offset)
    if first.word not in provenance.get("in_pieces", ()):
        return joined_span
    return replace(
        joined_span,
        pieces=tuple(unit_range for unit in units for unit_range in unit.ranges),
        times=_unit_intervals(units),
    )


def pool_map(
    mixing_map: ScoreMap, spans: Sequence[SpanRequest] | None, *, sources: str, side: str
) -> JsonObject:
    """Pool one side of a map ("targets", "sources") or "both"; return the fields of the map that
    change."""
    scores, rows, columns = mixing_map.scores, mixing_map.targets, mixing_map.sources
    strength = mixing_map.mixing_strength
    if side != "sources":
        groups = group_units(rows, spans, mixing_map.provenance)
        scores = pool_scores(scores.swapaxes(-1, -2), rows, groups, "mean").swapaxes(-1, -2)
        strength = None if strength is None else pool_scores(strength, rows, groups, "mean")
        rows = tuple(span for span, _ in groups)
    if side != "targets":
        groups = group_units(columns, spans, mixing_map.provenance)
        scores = pool_scores(scores, columns, groups, sources)
        columns = tuple(span for span, _ in groups)
    return {"scores": scores, "targets": rows, "sources": columns, "mixing_strength": strength}


def pool_scores(
    scores: np.ndarray, units: Sequence[Span], groups: list[tuple[Span, list[int]]], method: str
) -> np.ndarray:
    """Pool the last axis [..., U] into groups [..., G]: mean over positions, or sum over units."""
    if method not in POOLING_METHODS:
        raise InputError(f"pooling of a finished map is one of {POOLING_METHODS}, found {method!r}")
    weights = np.zeros((len(units), len(groups)), dtype=scores.dtype)
    for column, (_, unit_indices) in enumerate(groups):
        lengths = np.array([len(units[i]) for i in unit_indices])
        weights[unit_indices, column] = lengths / lengths.sum() if method == "mean" else 1
    return scores @ weights
