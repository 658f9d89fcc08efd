"""Maps of the measures that are evaluated on one item."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...interventions.decision import Decision
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.measures.token_objectives import check_maps_reach_label
from ...mixing.passes.mix import mix_one
from .perturbations import split_fills_from_name

if TYPE_CHECKING:
    from ...mixing.maps.map_set import Maps


Note = dict[str, str]


def maps_by_measure(
    decision: Decision, measures: Sequence[str]
) -> tuple[dict[str, Maps], list[Note]]:
    """Compute the maps of an item by measure, and notes of the measures that fail.

    Of measures that have none there are none, nor of one that reads one position where the margin
    is read at several.
    """
    has_one_position = bool(decision.objective.details.keys() & {"position", "row"})
    measures = [
        name for name in measures if measure_facts(split_fills_from_name(name)[0]).gives_maps
    ]
    measures = [
        name for name in measures if has_one_position or not measure_facts(name).at_one_position
    ]
    if not measures:
        return {}, []
    with suppress(SpeechmixError):
        all_maps = _mix_measures(decision, measures)
        return dict.fromkeys(measures, all_maps), []
    maps, notes = {}, []
    for name in measures:
        try:
            maps[name] = _mix_measures(decision, [name])
        except SpeechmixError as error:
            notes.append({"what": name, "reason": str(error)})
    return maps, notes


def _mix_measures(decision: Decision, measures: Sequence[str]) -> Maps:
    if decision.item is None:
        raise InputError("prepared inputs have no words to rank: give clips or sentences")
    if any(measure_facts(name).scope == "layer" for name in measures):
        check_maps_reach_label(decision.model)
    units, objective = decision.units, decision.objective
    return mix_one(
        decision.model, decision.item, measures=measures, units=units, objective=objective
    )
