"""Write labelled intervals by tier as a file: TextGrid for Praat, .eaf for ELAN, or a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.text_files import write_csv
from ...files.whole_files import whole_file
from ...inputs.formats.elan_writer import write_elan
from ...inputs.formats.textgrid import write_tiers
from ...inputs.words.timed_words import Word

TIER_SUFFIXES = (".textgrid", ".eaf", ".csv")


def write_tier_file(
    path: Path,
    tiers: Mapping[str, Sequence[Word]],
    duration: float,
    *,
    audio: str | Path | None = None,
) -> None:
    """Write tiers in the format that the file's ending names: .TextGrid, .eaf or .csv, else an
    InputError."""
    extension = path.suffix.lower()
    if extension not in TIER_SUFFIXES:
        raise InputError(
            f"{path}: expected a file ending in .TextGrid (Praat), .eaf (ELAN) or .csv, found "
            f"{path.suffix!r}"
        )
    if extension == ".csv":
        rows = [
            {"tier": tier, "start": start, "end": end, "label": interval.text}
            for tier, intervals in tiers.items()
            for interval in intervals
            for start, end in interval.intervals
        ]
        write_csv(pd.DataFrame(rows), path)
        return
    with whole_file(path) as temporary_path:
        if extension == ".eaf":
            write_elan(temporary_path, tiers, duration, audio=audio)
        else:
            write_tiers(temporary_path, tiers, duration)
