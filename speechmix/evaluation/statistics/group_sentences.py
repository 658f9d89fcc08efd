"""How many groups and speakers a result rests on, and what its intervals do not cover, in a sentence.

In: clips with their groups (`groups.assign_groups`). Out: the sentence of every summary and page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from .groups import assign_item_groups, build_item_table, find_speakers, list_ties

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence


def describe_groups(
    clips: pd.DataFrame, ties: str, *, names: Iterable[str] | None = None, noun: str = "clip"
) -> str:
    """Say in a sentence how many groups and speakers there are, and what intervals do not cover.

    Clips and ties are those of `assign_groups`, with its groups in the column group. `names` are
    the clips that were used, by default all.
    """
    if names is not None:
        clips = clips[clips["clip"].astype(str).isin([str(name) for name in names])]
    count, speakers = len(clips), find_speakers(clips)
    text = _format_count(count, noun)
    if ties:
        same = ties.replace("the ", "same ")
        text += f" in {_format_count(clips['group'].nunique(), 'group')} ({same})"
    elif count > 1:
        text += ", each a group"
    if speakers is None:
        text += ", speakers unknown"
    else:
        text += f", {_format_count(speakers[speakers != ''].nunique(), 'speaker')}"
        if unknown := int((speakers == "").sum()):
            text += f" and {_format_count(unknown, noun)} without one (counted as one speaker)"
    limits = _list_limits(clips, speakers)
    return f"{text}: no statement about other {' or '.join(limits)}." if limits else f"{text}."


def describe_item_groups(
    items: Sequence[Clip | Sentence],
    group: str | None = None,
    *,
    names: Iterable[str] | None = None,
    noun: str = "clip",
) -> str:
    """Say of clips or sentences what `describe_groups` says; arguments as there and for
    `assign_item_groups`."""
    table = build_item_table(items)
    groups, ties = assign_item_groups(table, items, group)
    return describe_groups(table.assign(group=groups), ties, names=names, noun=noun)


def list_missing_speakers(table: pd.DataFrame, columns: Sequence[str], formula: str) -> list[str]:
    """Say that a model of a table leaves speakers out, who are neither a column of its groups nor a
    term of its formula; nothing if they are."""
    speakers = find_speakers(table)
    if speakers is None or speakers.name in columns or str(speakers.name) in formula:
        return []
    count = speakers.nunique()
    if count == 1:
        return ["1 speaker: no statement about other speakers"]
    if count >= max(table[name].nunique() for name in columns):
        return []
    return [
        f"clips of one {speakers.name} are not independent, and the groups leave these {count} out: "
        f"give groups={[*columns, speakers.name]}"
    ]


def _list_limits(clips: pd.DataFrame, speakers: pd.Series | None) -> list[str]:
    """List of what there are others that the intervals do not cover: there is one value, or most
    clips have a value that is in several groups."""
    factors = {"speakers": speakers} if speakers is not None else {}
    if clips["group"].nunique() > 1:
        factors |= {f"{tie.removeprefix('the ')}s": x for tie, x in list_ties(clips).items()}
    limits = []
    for name, labels in factors.items():
        present = labels[labels != ""]
        group_counts = clips["group"][present.index].groupby(present).transform("nunique")
        shared_count = len(present) if present.nunique() == 1 else int((group_counts > 1).sum())
        if 2 * shared_count > len(clips):
            limits.append(name)
    return limits


def _format_count(count: int, noun: str) -> str:
    plural = "continua" if noun == "continuum" else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
