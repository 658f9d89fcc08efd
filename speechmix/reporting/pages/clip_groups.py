"""Group the clips of a run that belong together, and find copies of one recording."""

from __future__ import annotations

import pandas as pd

from ...evaluation.statistics.groups import assign_groups


def add_clip_groups(clips: pd.DataFrame, *, group: str | None = None) -> pd.DataFrame:
    """Add to a clip table the group of each clip, and `content`, the first clip with the same
    sound.

    `attrs["ties"]` says what the clips of a group share. `group` is the column that says which
    clips are drawn as one; by default `assign_groups` finds them. InputError if there is no such
    column, or two that may be meant.
    """
    groups, ties = assign_groups(clips, group)
    clips = clips.assign(group=groups, content=_first_copies(clips))
    clips.attrs["ties"] = ties
    return clips


def _first_copies(clips: pd.DataFrame) -> pd.Series:
    """Return for each clip the first clip with the same sound and words: a copy adds no
    evidence."""
    columns = [name for name in ("sound", "text", "cue", "target", "foil", "side") if name in clips]
    if "sound" not in columns:
        return clips["clip"]
    first = clips.groupby(columns, sort=False, dropna=False)["clip"].transform("first")
    return first.where(clips["sound"].fillna("").ne(""), clips["clip"])
