"""Which clips of a run belong together, and which are copies of one another."""

from __future__ import annotations

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import assign_groups


def grouped_clips(clips: pd.DataFrame, *, group: str | None = None) -> pd.DataFrame:
    """Clip table with the group of each clip, and `content`, the first clip of the same sound;
    `attrs["ties"]`: what ties clips.

    Parameters
    ----------
    clips : DataFrame
    group : str, optional
        Column that says which clips are drawn as one; by default what `assign_groups` finds.

    Raises
    ------
    InputError
        If there is no such column, or two that may be meant.
    """
    groups, ties = (
        assign_groups(clips) if group is None else (clips[_column(clips, group)].astype(str), group)
    )
    clips = clips.assign(group=groups, content=_contents(clips))
    clips.attrs["ties"] = ties
    return clips


def _contents(clips: pd.DataFrame) -> pd.Series:
    """For each clip the first one of the same sound and words: a copy is no further evidence."""
    columns = [name for name in ("sound", "text", "cue", "target", "foil", "side") if name in clips]
    if "sound" not in columns:
        return clips["clip"]
    first = clips.groupby(columns, sort=False, dropna=False)["clip"].transform("first")
    return first.where(clips["sound"].fillna("").ne(""), clips["clip"])


def _column(clips: pd.DataFrame, name: str) -> str:
    """Column of the clip table that a user means, who knows it as the manifest calls it."""
    renamed = f"manifest_{name}"
    if name in clips and renamed in clips:
        raise InputError(
            f"{name!r} is a column of the run and one of the manifest: for the manifest's say "
            f"{renamed!r}"
        )
    if name not in clips and renamed not in clips:
        raise InputError(
            f"no column {name!r} in the table of clips; it has {', '.join(map(str, clips.columns))}"
        )
    return name if name in clips else renamed
