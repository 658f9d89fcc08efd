"""Task of a probe: labels, groups and words of its items.

In: clips or sentences, and what to read off their states: a column of the manifest (`meta`), or a
function. Out: a `ProbeTask`, which keeps the items that have a label, with their groups
(`statistics.groups`) and the word types of the control task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    describe_groups,
    list_columns,
    target_words,
)
from .positions import Position

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

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
