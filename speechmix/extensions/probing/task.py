"""Task of a probe: labels, groups and words of its items.

In: clips or sentences, and what to read off their states: a column of the manifest (`meta`), or a
function. Out: a `ProbeTask`, which keeps the items that have a label, with their groups
(`statistics.groups`) and the word types of the control task.

States to probe: target, cue, words between, deciding position or any word.

In: a model, a clip or sentence, positions by name. Out: one vector for each position and layer, the
mean over its frames or tokens. Where a position is:

    position     encoder, texts               decoder (also of a causal text model)
    target       the target's frames/tokens   positions that *predict* the target's tokens, as in cue contribution
    deciding     not there                    the position that predicts the first token in which target and foil differ
    cue          the cue's frames/tokens      positions that hold the cue's tokens
    between      those of all words strictly between cue and target; in a decoder those that hold them
    word index   those of that word           positions that hold that word's tokens

A masked model is fed its mask for the target, unless asked otherwise: a probe for number of a word
that the model can see reads the spelling. (Mohebbi et al. 2023: mean over frames in the encoder,
over target-predicting rows in the decoder; [MASK] in texts.)

Task of a probe of words, phones or frames: a label or value of each unit of each clip.

In: clips, and the states of their units by models. Out: a `ProbeTask` whose items are the units, and the
states of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from ...adapters.capture.forward_pass import hidden_states, stacks_with_states
from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    describe_groups,
    list_columns,
    target_words,
)
from ...inputs.sentences.sentence import Sentence
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import (
    feeds_decoder,
    is_masked_model,
    make_view,
    replace_target_by_mask,
)
from ..encoding.unit_features import unit_features
from ..states.unit_states import UnitStates, unit_states

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...mixing.passes.item_view import View

Position = str | int
POSITIONS = ("target", "cue", "between", "deciding")


class ItemStates(NamedTuple):
    """States of one item.

    Parameters
    ----------
    states : dict of (stack, position) to ndarray [L + 1, D]
        Entry 0 is the input of the first layer; float32.
    missing_reasons : dict of (stack, position) to str
        Why the item has no such position.
    """

    states: Mapping[tuple[str, Position], np.ndarray]
    missing_reasons: Mapping[tuple[str, Position], str]


def resolve_positions(requested: Position | Sequence[Position]) -> tuple[Position, ...]:
    """Return one position, or several, as a tuple.

    Raises
    ------
    InputError
        If one is neither a name nor an index.
    """
    positions = (
        (requested,) if isinstance(requested, str | int) else tuple(dict.fromkeys(requested))
    )
    invalid = [
        p
        for p in positions
        if p not in POSITIONS and (not isinstance(p, int) or isinstance(p, bool) or p < 0)
    ]
    if invalid or not positions:
        raise InputError(
            f"position should be one of {', '.join(POSITIONS)} or the index of a word, found "
            f"{invalid or requested!r}"
        )
    return positions


def read_item_states(
    model: Model,
    item: Clip | Sentence,
    positions: Sequence[Position],
    *,
    stacks: Sequence[str] | None = None,
    rounding: str = "disjoint",
    mask: bool = True,
) -> ItemStates:
    """Read the states of an item at some positions, in all layers, in one forward pass.

    Parameters
    ----------
    model : Model
    item : Clip or Sentence
    positions : sequence of str or int
        See the table above.
    stacks : sequence of str, optional
        "encoder", "decoder"; by default those that the model has and the item feeds.
    rounding : {"disjoint", "paper"}
        Of words to frames, as in `mix`.
    mask : bool
        False to let a masked model see the target.

    Raises
    ------
    InputError
        If the model does not take the item.
    """
    if mask and isinstance(item, Sentence) and is_masked_model(model):
        item = replace_target_by_mask(item)[0]
    request = MixRequest(rounding=rounding)
    model_stacks = [name for name in stacks_with_states(model) if stacks is None or name in stacks]
    stack_names = [
        name
        for name in model_stacks
        if name == model.capabilities.input_stack or feeds_decoder(model, item, request)
    ]
    if not stack_names:
        raise InputError(
            f"{model.name} has states of its own in {stacks_with_states(model)}; asked for {stacks}"
        )
    view = make_view(model, item, request, tuple(stack_names))
    indices_by_key: dict[tuple[str, Position], list[int]] = {}
    missing_reasons: dict[tuple[str, Position], str] = {}
    for stack in stack_names:
        for position in positions:
            try:
                indices_by_key[stack, position] = _position_indices(view, stack, position)
            except InputError as error:
                missing_reasons[stack, position] = str(error)
    if not indices_by_key:
        return ItemStates({}, missing_reasons)

    def read(stack: str, states: Tensor) -> dict[Position, np.ndarray]:  # [1, T, D]
        stack_indices = {
            position: rows for (name, position), rows in indices_by_key.items() if name == stack
        }
        return {
            position: states[0, rows].mean(dim=0).float().cpu().numpy()
            for position, rows in stack_indices.items()
        }

    entries = hidden_states(model, view.prepared.inputs, read, stacks=stack_names)
    states = {
        (stack, position): np.stack([entry[position] for entry in entries[stack]])
        for stack, position in indices_by_key
    }
    return ItemStates(states, missing_reasons)


def _position_indices(view: View, stack: str, position: Position) -> list[int]:
    """Return the frames or token positions of a named position in a stack.

    Raises
    ------
    InputError
        If the item has none.
    """
    item = view.item
    if position == "deciding":
        row = (
            None
            if stack == "encoder" or view.prepared.tokens is None
            else view.prepared.tokens.deciding_row
        )
        if row is None:
            description = (
                "an encoder"
                if stack == "encoder"
                else "an item without a foil, or whose foil has no other token,"
            )
            raise InputError(f"{description} has no deciding position")
        return [row]
    words = _word_indices(item, position)
    word_positions: dict[int, list[int]] = {}
    for span in view.sources(stack):
        if span.word is not None:
            word_positions.setdefault(span.word, []).extend(span.positions)
    indices = [index for word in words for index in word_positions.get(word, ())]
    if position == "target" and stack == "decoder":
        indices = [
            index - 1 for index in indices if index > 0
        ]  # which predict what the next one holds
    if not indices:
        raise InputError(
            f"no position of the {stack} belongs to {_describe_position_name(position)}"
        )
    return indices


def _word_indices(item: Clip | Sentence | None, position: Position) -> list[int]:
    """Return the indices of the words at a position; none between if cue words lie on both sides of
    the target."""
    if item is None or not item.words:
        raise InputError(
            "prepared inputs, and clips without word times, have no words whose states could be "
            "probed"
        )
    if isinstance(position, int):
        if position >= len(item.words):
            raise InputError(f"there is no word {position}: it has {len(item.words)}")
        return [position]
    cue, target = list(item.cue_words), [item.target] if isinstance(item.target, int) else []
    if not {"target": target, "cue": cue, "between": cue and target}[position]:
        raise InputError(f"{_describe_position_name(position)} is not given")
    if position != "between":
        return target if position == "target" else cue
    between_indices = [
        *range(max(cue) + 1, target[0]),
        *range(target[0] + 1, min(cue)),
    ]  # the cue before the target, or after it
    if not between_indices:
        raise InputError("no word lies between cue and target")
    return between_indices


def _describe_position_name(position: Position) -> str:
    return f"word {position}" if isinstance(position, int) else f"the {position}"


LabelOption = str | Callable[["Clip | Sentence"], object]


@dataclass(frozen=True, eq=False)
class ProbeTask:
    """Items with their labels.

    Parameters
    ----------
    label : str
        What the label is called.
    items : tuple of Clip or Sentence [N]
    names : tuple of str [N]
        Of the items, each its own.
    labels, groups, types, parts : ndarray of str [N]
        Types: the word that each item asks about; the item itself where none is known. Parts: what
        is probed by itself.
    ties : str
        What ties items into groups, in words.
    unlabelled : tuple of str
        Names of items without a label.
    places : ndarray of int [N, 3], optional
        Of units of clips: number of the clip, index of the unit in it, number of its units.
    grouping : str
        How many groups and speakers there are (`statistics.groups.describe_groups`).
    """

    label: str
    items: tuple[Clip | Sentence, ...]
    names: tuple[str, ...]
    labels: np.ndarray
    groups: np.ndarray
    types: np.ndarray
    parts: np.ndarray
    ties: str
    unlabelled: tuple[str, ...] = ()
    places: np.ndarray | None = None
    grouping: str = ""

    @classmethod
    def from_items(
        cls,
        items: Sequence[Clip | Sentence],
        label: LabelOption,
        *,
        group: str | None = None,
        by: str | None = None,
    ) -> ProbeTask:
        """Look labels and groups up.

        Parameters
        ----------
        items : sequence of Clip or Sentence
        label : str or callable
            A key of the items' `meta`, or a function of an item; "" and None are no label.
        group : str, optional
            A key of `meta` that says which items belong together; by default speakers, or pair,
            sentence and target word (`statistics.groups.assign_groups`).
        by : str, optional
            A key of `meta` that parts the items, e.g. "side"; an item without it is of the part
            "all".

        Raises
        ------
        InputError
            If there are no items, or none of them has the label.
        """
        invalid_items = [item for item in items if not hasattr(item, "meta")]
        if invalid_items or not items:
            kind = f"{type(invalid_items[0]).__name__}" if invalid_items else "none"
            raise InputError(
                f"expected clips or sentences with a label in their meta, found {kind}"
            )
        name = label if isinstance(label, str) else getattr(label, "__name__", "label")
        labels = [_read_label(item, label) for item in items]
        table = build_item_table(items)
        if not any(labels):
            raise InputError(
                f"no item has a label {name!r}; columns are {', '.join(list_columns(items)) or 'none'}"
            )
        is_labelled = np.array([text != "" for text in labels])
        unlabelled = tuple(table["clip"][~is_labelled])
        table = table[is_labelled].reset_index(drop=True)
        groups, ties = assign_item_groups(table, items, group)
        if by is not None and by not in table:
            raise InputError(
                f"no item has a column {by!r} to part by; columns are {', '.join(list_columns(items))}"
            )
        parts = (
            pd.Series("all", index=table.index)
            if by is None
            else table[by].fillna("").replace("", "all")
        )
        words = target_words(table)
        return cls(
            name,
            tuple(item for item, has in zip(items, is_labelled, strict=True) if has),
            tuple(table["clip"]),
            np.array([text for text in labels if text]),
            groups.to_numpy(str),
            words.where(words != "", table["clip"]).to_numpy(str),
            parts.to_numpy(str),
            ties,
            unlabelled,
            grouping=describe_groups(table.assign(group=groups), ties, noun="item"),
        )

    def select_part(self, name: str) -> tuple[np.ndarray, ProbeTask]:
        """Return the indices of the items of a part, and the task of these items."""
        indices = np.flatnonzero(self.parts == name)
        selected: dict[str, Any] = {
            name: getattr(self, name)[indices] for name in ("labels", "groups", "types", "parts")
        }
        selected |= {
            name: tuple(getattr(self, name)[index] for index in indices)
            for name in ("items", "names")
        }
        places = None if self.places is None else self.places[indices]
        return indices, replace(self, **selected, unlabelled=(), places=places)

    @property
    def unit_places(self) -> np.ndarray:
        """`places`; an item that is no unit of a clip is the only one of its clip [N, 3]."""
        count = np.arange(len(self.names))
        alone = np.column_stack([count, 0 * count, 0 * count + 1])
        return alone if self.places is None else self.places

    def word_types(self, position: Position) -> np.ndarray:
        """Return the word types of the control task at a position [N]."""
        if position in ("target", "deciding", "between"):
            return self.types
        words = [_position_word(item, position) for item in self.items]
        return np.array(
            [word or item_type for word, item_type in zip(words, self.types, strict=True)]
        )


def _read_label(item: Clip | Sentence, label: LabelOption) -> str:
    value = item.meta.get(label) if isinstance(label, str) else label(item)
    return "" if value is None or value != value else str(value).strip()  # NaN is no value


def _position_word(item: Clip | Sentence, position: Position) -> str:
    words = item.words or ()
    indices = (
        item.cue_words
        if position == "cue"
        else [index for index in (position,) if isinstance(index, int)]
    )
    return " ".join(words[index].text.casefold() for index in indices if index < len(words))


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
