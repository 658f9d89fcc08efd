"""How items belong together: whose sound takes the place of an item's own, and which items are one group."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import (
    SPEAKER_COLUMNS,
    assign_groups,
    assign_item_groups,
    build_item_table,
    connect_clips,
    describe_groups,
)
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
    listening_items = [
        item if isinstance(item, ListeningItem) else ListeningItem.from_clip(item) for item in items
    ]
    refuse_duplicate_names([item.clip for item in listening_items])
    for name, count in Counter(item.name for item in listening_items).items():
        if count > 1:
            raise InputError(
                f"two items are called {name!r}: give each recording a name of its own"
            )
    if skipped is None:
        return listening_items
    readable = []
    for item in listening_items:
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
    sounds = [item.clip.audio_hash for item in ring]  # each file is read once
    pairs = [item.clip.meta.get("pair", "") for item in ring]
    by_pair = defaultdict[str, list[int]](list)
    for index, pair in enumerate(pairs):
        by_pair[pair].append(index)
    count, donors = len(ring), dict[str, Clip]()
    for index, item in enumerate(ring):
        steps = range(1, min(count, _MAX_CANDIDATES + 1))
        near = dict.fromkeys((index + step) % count for step in steps)
        near |= dict.fromkeys(by_pair[pairs[index]] if pairs[index] else ())
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


def group_items(items: Sequence[ListeningItem], group: str | None = None) -> dict[str, str]:
    """Return the group of each item by name: items of one speaker, or else those that share a recording, a pair or a
    transcript; or of one value of a column `group` of the items."""
    table, _ = _assign_groups(items, group)
    return dict(zip(table["clip"], table["group"], strict=True))


def describe_listening_groups(
    items: Sequence[ListeningItem], group: str | None, names: Iterable[str]
) -> str:
    """Say how many groups and speakers the items of these names are of."""
    table, ties = _assign_groups(items, group)
    return describe_groups(table, ties, names=names, noun="item")


def _assign_groups(items: Sequence[ListeningItem], group: str | None) -> tuple[pd.DataFrame, str]:
    """Return a table of the items with their groups, and what ties them."""
    clips = [item.clip for item in items]
    if group is not None:
        table = build_item_table(clips)
        groups, ties = assign_item_groups(table, clips, group)
        return table.assign(group=groups), ties
    names = pd.Series([item.name for item in items])
    shared = {
        "sound": [clip.audio_hash for clip in clips],
        "pair": [clip.meta.get("pair") or "" for clip in clips],
        "text": [" ".join((clip.text or "").casefold().split()) for clip in clips],
    }
    parts = connect_clips(names, [pd.Series(labels, dtype=object) for labels in shared.values()])
    columns = {name: [clip.meta.get(name, "") for clip in clips] for name in SPEAKER_COLUMNS}
    first = names.groupby(parts).transform("first")
    table = pd.DataFrame({"clip": names, "pair": first, **columns})
    groups, ties = assign_groups(table)
    return table.assign(group=groups), ties.replace("the pair", "the recording, pair or transcript")
