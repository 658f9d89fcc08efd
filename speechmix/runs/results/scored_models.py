"""Which models a run scored, with which weights and how many clips; and their maps, clip by clip.

In: a run that is open. Out: a `ScoredModel` for each model and twin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import SpeechmixError
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Owner, Part
from .open_run import StoredRun


@dataclass(frozen=True)
class ScoredModel:
    """A model of a run.

    `weights` is the fingerprint, "" where it was not recorded; `clips` are the names of the clips
    that were scored.
    """

    name: str
    init: str
    seed: int | None
    weights: str
    clips: Sequence[str]
    _maps_of: Callable[[str], Mapping[tuple[str, str], MixingMap]]

    def maps(self, clip: str) -> Mapping[tuple[str, str], MixingMap]:
        """Maps of a clip by (measure, stack): those that can be read; none of a further twin, of
        which none are kept."""
        with suppress(SpeechmixError):
            return self._maps_of(clip)
        return {}


def scored_models(run: StoredRun) -> list[ScoredModel]:
    """Return the models of a run, trained ones before their twins."""
    return sorted(
        _list_part_models(run),
        key=lambda model: (model.name, model.init != "trained", model.seed or 0),
    )


def _list_part_models(run: StoredRun) -> list[ScoredModel]:
    by_owner: dict[Owner, list[Part]] = defaultdict(list)
    for part in run.parts:
        if part.owner.name is not None:
            by_owner[part.owner].append(part)
    return [_make_scored_model(run, owner, parts) for owner, parts in by_owner.items()]


def _make_scored_model(run: StoredRun, owner: Owner, parts: Sequence[Part]) -> ScoredModel:
    measures = pa.array(run.description.get("options", {}).get("measures", ()), pa.string())
    part_by_clip: dict[str, Part] = {}
    for part in parts:
        rows = part.read(("clip", "kind"))
        scored = rows.filter(pc.is_in(rows["kind"], value_set=measures))
        part_by_clip |= dict.fromkeys(scored["clip"].to_pylist(), part)
    return ScoredModel(
        owner.name or "",
        owner.init or "",
        owner.seed,
        owner.weights or "",
        list(part_by_clip),
        lambda clip: (
            run.read_part_maps(part_by_clip[clip], clip)
            if part_by_clip[clip].scores or part_by_clip[clip].maps
            else {}
        ),
    )
