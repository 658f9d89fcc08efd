"""Task of a probe of words, phones or frames: a label or value of each unit of each clip.

In: clips, and the states of their units by models. Out: a `ProbeTask` whose items are the units, and the
states of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ..encoding.unit_features import unit_features
from ..states.unit_states import UnitStates, unit_states
from .task import ItemStates, ProbeTask

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence


def read_unit_tasks(
    models: Iterator[Model],
    items: Sequence[Clip | Sentence],
    label: str | Callable[[Any], object],
    *,
    level: str,
    table: pd.DataFrame | None = None,
    by: str | None = None,
    group: str | None = None,
    **reading: Any,
) -> tuple[ProbeTask, Iterator[tuple[Model, list[ItemStates | str]]]]:
    """Return the task of the units of the first model, and the states of each model's units.

    Parameters
    ----------
    models, items, label, level, table, by
        As for `probe`; a function gets a row of `UnitStates.units`.
    group, **reading
        As for `unit_states`.

    Raises
    ------
    InputError
        If no unit has the label, or the frames of two models differ.
    """
    first, options = next(models), {**reading, "level": level, "group": group}
    first_states = unit_states(first, items, **options)
    units = join_units(first_states)
    if callable(label):
        values = [label(row) for row in units.itertuples(index=False)]
    else:
        values = unit_features(units, items, [label], level=level, table=table)[label].tolist()
    name = label if isinstance(label, str) else getattr(label, "__name__", "label")
    task = _make_task(units, items, name, values, level, group, by)

    def read() -> Iterator[tuple[Model, list[ItemStates | str]]]:
        yield first, _states_of_units(task, first_states)
        for model in models:
            states_by_stack = unit_states(model, items, **options)
            if level == "frame" and len(join_units(states_by_stack)) != len(units):
                raise InputError(
                    f"{first.name} and {model.name} have frames of different length: probe them one "
                    "at a time"
                )
            yield model, _states_of_units(task, states_by_stack)

    return task, read()


def join_units(by_stack: Mapping[str, UnitStates]) -> pd.DataFrame:
    """Return the units of all stacks, each once."""
    tables = [states.units for states in by_stack.values()]
    return pd.concat(tables).drop_duplicates(["clip", "index"]).reset_index(drop=True)


def _make_task(
    units: pd.DataFrame,
    items: Sequence[Clip | Sentence],
    name: str,
    values: Sequence[Any],
    level: str,
    group: str | None,
    by: str | None,
) -> ProbeTask:
    """Make the task of units; those without a label or value are left out."""
    cells = pd.Series(values, dtype=object)
    labels = cells.where(cells.notna(), "").astype(str).str.strip().to_numpy(str)
    names = _name_units(units)
    has_label = labels != ""
    if not has_label.any():
        raise InputError(f"no {level} has a value of {name!r}")
    clips = build_item_table(items)
    groups, ties = assign_item_groups(clips, items, group)
    rows = pd.Index(clips["clip"]).get_indexer(pd.Index(units["clip"]))
    if by is not None and by not in clips:
        raise InputError(f"no item has a column {by!r} to part by")
    parts = ["all"] * len(clips) if by is None else clips[by].fillna("").replace("", "all")
    counts = units.groupby("clip")["index"].transform("max") + 1
    types = units["label"].str.casefold()  # of the control task; of a frame its word
    if level == "frame":
        words = [[word.text.casefold() for word in item.words or ()] for item in items]
        places = zip(rows, units["word"].fillna(-1), strict=True)
        types = pd.Series(["" if word < 0 else words[row][word] for row, word in places])
    return ProbeTask(
        name,
        tuple(items[row] for row in rows[has_label]),
        tuple(names[has_label]),
        labels[has_label],
        units["group"].to_numpy(str)[has_label],
        types.to_numpy(str)[has_label],
        np.asarray(parts, dtype=str)[rows][has_label],
        ties,
        tuple(names[~has_label]),
        np.column_stack([rows, units["index"], counts])[has_label],
        describe_groups(clips.assign(group=groups), ties, names=units["clip"][has_label]),
    )


def _name_units(units: pd.DataFrame) -> pd.Series:
    return units["clip"] + "[" + units["index"].astype(str) + "]"


def _states_of_units(task: ProbeTask, by_stack: Mapping[str, UnitStates]) -> list[ItemStates | str]:
    """Return the states of each of the task's units, under the name of the level."""
    states_by_unit: dict[str, dict[tuple[str, str | int], np.ndarray]] = {
        name: {} for name in task.names
    }
    for stack, of_stack in by_stack.items():
        for name, vectors in zip(_name_units(of_stack.units), of_stack.values, strict=True):
            if name in states_by_unit:
                states_by_unit[name][stack, of_stack.level] = vectors
    return [
        ItemStates(states, {}) if states else "has no states" for states in states_by_unit.values()
    ]
