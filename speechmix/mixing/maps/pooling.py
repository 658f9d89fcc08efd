"""Pool a finished map's units into larger ones: frames or sub-words into words, or into spans that
are given.

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
    """Put units together: those inside each span given, or runs of units of one word (others stay
    as they are).

    Of a word in pieces, as the provenance says, all its units of one kind are one, wherever they
    are.

    Returns
    -------
    list of (Span, list of int)
        Each new unit and the indices of the old ones in it.

    Raises
    ------
    InputError
        If a span holds no unit, or a unit lies across its edge.
    """
    if spans is None:
        members = _of_each_word(units, provenance.get("in_pieces", ()))
        return [(_joined([units[i] for i in inside], provenance), inside) for inside in members]
    groups = []
    for index, asked in enumerate(spans):
        span = asked if isinstance(asked, Span) else Span.from_ranges(parse_span_request(asked))
        positions = set(span.positions)
        inside = [i for i, unit in enumerate(units) if not positions.isdisjoint(unit.positions)]
        across = [units[i] for i in inside if not positions.issuperset(units[i].positions)]
        if not inside or across:
            why = f"{across[0]} lies across its edge" if across else "no unit of the map lies in it"
            ranges = " and ".join(f"[{start}, {stop})" for start, stop in span.ranges)
            raise InputError(f"span {index}, {ranges}: {why}; spans should be made of whole units")
        groups.append(
            (asked if isinstance(asked, Span) else _named(span, [units[i] for i in inside]), inside)
        )
    return groups


def _of_each_word(units: Sequence[Span], in_pieces: Collection[int]) -> list[list[int]]:
    """Indices of the units of each word, in the order of their first."""
    runs = groupby(
        range(len(units)), key=lambda i: (units[i].word, i if units[i].word is None else -1)
    )
    members: list[list[int]] = []
    begun: dict[
        tuple[int, str], list[int]
    ] = {}  # units of words in pieces, by their kind: a word may be heard and written
    for (word, _), run in runs:
        inside = list(run)
        if word is not None and word in in_pieces:
            earlier = begun.setdefault((word, units[inside[0]].kind), inside)
            if earlier is not inside:
                earlier += inside
                continue
        members.append(inside)
    return members


def _named(span: Span, units: list[Span]) -> Span:
    """A span that is asked for by its positions alone, called by the units in it."""
    joined = replace(_joined(units, {}), kind="word")
    return replace(joined, pieces=span.pieces, times=_times_of(units)) if span.pieces else joined


def _times_of(units: list[Span]) -> tuple[tuple[float, float], ...]:
    return tuple(interval for unit in units for interval in unit.intervals)


def _joined(units: list[Span], provenance: Mapping[str, Json]) -> Span:
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
    whole = Span(first.start, last.stop, label, "word", first.word, first.onset, last.offset)
    if first.word not in provenance.get("in_pieces", ()):
        return whole
    return replace(
        whole,
        pieces=tuple(places for unit in units for places in unit.ranges),
        times=_times_of(units),
    )


def pooled(
    mixing_map: ScoreMap, spans: Sequence[SpanRequest] | None, *, sources: str, side: str
) -> JsonObject:
    """Pool one side of a map ("targets", "sources") or "both"; return the fields of the map that
    change."""
    scores, rows, columns = mixing_map.scores, mixing_map.targets, mixing_map.sources
    strength = mixing_map.mixing_strength
    if side != "sources":
        groups = group_units(rows, spans, mixing_map.provenance)
        scores = pool(scores.swapaxes(-1, -2), rows, groups, "mean").swapaxes(-1, -2)
        strength = None if strength is None else pool(strength, rows, groups, "mean")
        rows = tuple(span for span, _ in groups)
    if side != "targets":
        groups = group_units(columns, spans, mixing_map.provenance)
        scores = pool(scores, columns, groups, sources)
        columns = tuple(span for span, _ in groups)
    return {"scores": scores, "targets": rows, "sources": columns, "mixing_strength": strength}


def pool(
    scores: np.ndarray, units: Sequence[Span], groups: list[tuple[Span, list[int]]], how: str
) -> np.ndarray:
    """Pool the last axis [..., U] into groups [..., G]: mean over positions, or sum over units."""
    if how not in POOLING_METHODS:
        raise InputError(f"pooling of a finished map is one of {POOLING_METHODS}, found {how!r}")
    weights = np.zeros((len(units), len(groups)), dtype=scores.dtype)
    for column, (_, members) in enumerate(groups):
        lengths = np.array([len(units[i]) for i in members])
        weights[members, column] = lengths / lengths.sum() if how == "mean" else 1
    return scores @ weights
