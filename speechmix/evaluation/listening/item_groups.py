"""How items belong together: whose sound takes the place of an item's own, and which items are one group."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.clips.clip_names import refuse_duplicate_names
from .items import ListeningItem

_MAX_CANDIDATES = 200  # items that are looked at to find another sound


def check_items(
    items: Sequence[ListeningItem | Clip], skipped: list[tuple[str, str]] | None = None
) -> list[ListeningItem]:
    """Return items with distinct names; clips are read by `ListeningItem.from_clip`.

    Parameters
    ----------
    items : sequence of ListeningItem or Clip
    skipped : list, optional
        Gets name and reason of items whose recording cannot be read; by default recordings are not read.

    Raises
    ------
    InputError
        If there is none, or two share a name.
    """
    if not items:
        raise InputError("no items: give at least one question about a recording")
    found = [
        item if isinstance(item, ListeningItem) else ListeningItem.from_clip(item) for item in items
    ]
    refuse_duplicate_names([item.clip for item in found])
    names = [item.name for item in found]
    for name in names if len(set(names)) < len(names) else ():
        if names.count(name) > 1:
            raise InputError(
                f"two items are called {name!r}: give each recording a name of its own"
            )
    if skipped is None:
        return found
    readable = []
    for item in found:
        try:
            readable += [item] if item.clip.audio_hash else []
        except SpeechmixError as error:
            skipped.append((item.name, str(error)))
    return readable


def no_item_error(skipped: Sequence[tuple[str, str]]) -> InputError:
    """Return the error for items of which none can be used, with the first reasons."""
    reasons = [f"{name}: {reason.removeprefix(f'{name}: ')}" for name, reason in skipped[:3]]
    return InputError(f"no item can be used: {'; '.join(reasons)}")


def choose_donors(items: Sequence[ListeningItem]) -> dict[str, Clip]:
    """Choose for each item another one, whose sound takes the place of its own.

    A recording of its own is required. Preferred are another answer, the same options and the same pair. The order of
    the items does not matter.

    Returns
    -------
    dict of str to Clip
        By name of the item; without items whose recording all others share.
    """
    ring = sorted(items, key=lambda item: hashlib.sha256(item.name.encode()).digest())
    by_pair: dict[str, list[int]] = {}
    for index, item in enumerate(ring):
        if item.clip.meta.get("pair"):
            by_pair.setdefault(item.clip.meta["pair"], []).append(index)
    sounds = [item.clip.audio_hash for item in ring]  # each file is read once
    count, donors = len(ring), dict[str, Clip]()
    for index, item in enumerate(ring):
        steps = range(1, min(count, _MAX_CANDIDATES + 1))
        near = dict.fromkeys((index + step) % count for step in steps)
        near |= dict.fromkeys(by_pair.get(item.clip.meta.get("pair", ""), ()))
        others = [other for other in near if sounds[other] != sounds[index]]
        if others:
            best = min(others, key=lambda other: _mismatches(item, ring[other]))
            donors[item.name] = ring[best].clip
    return donors


def _mismatches(item: ListeningItem, other: ListeningItem) -> tuple[bool, bool, bool, bool]:
    pair = item.clip.meta.get("pair")
    return (
        other.answer.casefold() == item.answer.casefold(),
        bool(item.options) and other.answer not in item.options,
        not pair or other.clip.meta.get("pair") != pair,
        other.kind != item.kind,
    )


def group_items(items: Sequence[ListeningItem]) -> dict[str, str]:
    """Return the group of each item by name: items that share a recording, a pair or a transcript are one group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels: dict[tuple[str, str], int] = {}
    rows, columns = [], []
    for index, item in enumerate(items):
        for tie, value in _ties(item).items():
            if value:
                rows.append(index)
                columns.append(len(items) + labels.setdefault((tie, value), len(labels)))
    size = len(items) + len(labels)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    numbers = connected_components(graph, directed=False)[1][: len(items)]
    first: dict[int, str] = {}
    return {
        item.name: first.setdefault(int(number), item.name)
        for item, number in zip(items, numbers, strict=True)
    }


def _ties(item: ListeningItem) -> Mapping[str, str]:
    clip = item.clip
    return {
        "sound": clip.audio_hash,
        "pair": clip.meta.get("pair", ""),
        "text": " ".join((clip.text or "").casefold().split()),
    }
