"""Do aligners agree? Word times of the same clips by several methods, side by side.

In: clips with text (those with words are their own reference) and named aligners. Out: one row per
clip, word and method, and a summary: how far the word starts and ends are from the reference, how
often an aligner fails, how long it takes. Without a reference, the median of the other methods
stands in for it, and the summary says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from ..errors import InputError, SpeechmixError
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word

Aligner = Callable[[Clip], tuple[Word, ...]]


def compare_aligners(clips: Iterable[Clip], aligners: Mapping[str, Aligner]) -> pd.DataFrame:
    """Align clips that have text with every aligner, a function of a clip.

    Each aligner returns the same number of words for a clip; an error of this package is recorded.
    The table has the columns clip, method, word (index), text, start, end, score, seconds_taken (of
    the clip, on its first word), reason (of a failure; then word, start and end are missing). A
    clip's own words are the method "reference".
    """
    rows = []
    for clip in clips:
        if clip.words is not None:
            rows += _rows(clip, "reference", clip.words, None)
        for name, aligner in aligners.items():
            begun = time.perf_counter()
            try:
                rows += _rows(clip, name, aligner(clip), time.perf_counter() - begun)
            except SpeechmixError as error:
                rows.append({"clip": clip.name, "method": name, "reason": str(error)})
    columns = ["clip", "method", "word", "text", "start", "end", "score", "seconds_taken", "reason"]
    return pd.DataFrame(rows, columns=columns)


def summarize_aligners(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise a table of `compare_aligners`, one row per method.

    The columns say against what it is measured ("reference", or "others": their median), words,
    failures (clips), median distance of word starts and ends in ms, share of the starts within 20,
    50 and 100 ms in %, median seconds a clip. If no clip was aligned by any method, an InputError
    is raised.
    """
    placed = table[table.reason.isna()]
    if placed.empty:
        raise InputError(
            f"no aligner placed any clip: {'; '.join(table.reason.dropna().unique()[:3])}"
        )
    against = "reference" if (placed.method == "reference").any() else "others"
    result = []
    for method in dict.fromkeys(table.method[table.method != "reference"]):
        truth = placed[
            placed.method == "reference" if against == "reference" else placed.method != method
        ]
        reference = truth.groupby(["clip", "word"])[["start", "end"]].median()
        method_rows = placed[placed.method == method].join(
            reference, on=["clip", "word"], rsuffix="_reference"
        )
        method_rows = method_rows.dropna(subset=["start_reference"])
        starts, ends = (
            1000 * (method_rows[side] - method_rows[f"{side}_reference"]).abs()
            for side in ("start", "end")
        )
        row = {"method": method, "against": against, "words": len(method_rows)}
        row["failures"] = int(table.reason[table.method == method].notna().sum())
        row |= {
            "start_ms": round(float(starts.median()), 1),
            "end_ms": round(float(ends.median()), 1),
        }
        row |= {
            f"within_{ms}_ms": round(100 * float((starts <= ms + 1e-6).mean()), 1)
            for ms in (20, 50, 100)
        }
        row["seconds_a_clip"] = round(float(method_rows.seconds_taken.median()), 3)
        result.append(row)
    return pd.DataFrame(result)


def _rows(
    clip: Clip, method: str, words: Iterable[Word], taken: float | None
) -> list[dict[str, object]]:
    rows = []
    for index, word in enumerate(words):
        row: dict[str, object] = {
            "clip": clip.name,
            "method": method,
            "word": index,
            "text": word.text,
        }
        row |= {"start": word.start, "end": word.end, "score": word.score}
        rows.append({**row, "seconds_taken": (taken if index == 0 else np.nan)})
    return rows
