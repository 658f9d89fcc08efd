"""Test whether results change when word boundaries move by 20 ms.

Aligners and annotators differ by about that much. In: clips, whose cue and target are moved,
widened and narrowed (their neighbours give way); and a table of cue contributions of all variants.
Out: trained - untrained for each variant, over whole stacks, so that nothing but the times differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd

from ..errors import InputError
from .statistics.random_twin_comparison import compare_with_twins, whole_stack

if TYPE_CHECKING:
    from ..inputs.clips.clip import Clip
    from ..inputs.words.timed_words import Word

SHIFT_SECONDS = 0.02  # seconds
AS_ALIGNED = "as aligned"
# What is added to (start, end) of cue and target, in shifts.
VARIANTS = {
    AS_ALIGNED: (0, 0),
    "earlier": (-1, -1),
    "later": (1, 1),
    "wider": (-1, 1),
    "narrower": (1, -1),
}
_MIN_WORD_SECONDS = 0.005  # seconds that a narrowed word keeps


def move_word_boundaries(clip: Clip, variant: str, *, shift: float = SHIFT_SECONDS) -> Clip:
    """Return the clip with the edges of its cue and target moved by `shift` seconds.

    Variants: "as aligned", "earlier", "later", "wider" and "narrower". InputError if the clip has
    no cue or target to move, or a word in pieces.
    """
    if variant not in VARIANTS:
        raise InputError(f"variant should be one of {list(VARIANTS)}, found {variant!r}")
    if clip.words is None or clip.cue is None or clip.target is None:
        raise InputError(
            f"{clip.name}: moving word boundaries needs words with times, a cue and a target"
        )
    start_shift, end_shift = (sign * shift for sign in VARIANTS[variant])
    if any(word.pieces for word in clip.words):
        raise InputError(
            f"{clip.name}: which of its boundaries should move is not defined for a word in pieces"
        )
    words = list(clip.words)
    moved_indices = sorted((*clip.cue_words, clip.target))
    for index in moved_indices:
        words[index] = _move_word(words[index], start_shift, end_shift, clip.duration)
    for first, second in pairwise(moved_indices):
        if (
            words[first].end > words[second].start
        ):  # widened into each other: they keep the edge they had
            edge = (clip.words[first].end + clip.words[second].start) / 2
            edge = min(max(edge, words[first].start), words[second].end)
            words[first], words[second] = (
                replace(words[first], end=edge),
                replace(words[second], start=edge),
            )
    for index in set(range(len(words))) - set(moved_indices):
        earliest = max((words[i].end for i in moved_indices if i < index), default=0.0)
        latest = min((words[i].start for i in moved_indices if i > index), default=clip.duration)
        # What now belongs to another word is cut off; a word that is covered keeps no time,
        # so that the clip leaves it out of its words.
        start, end = (
            min(max(time, earliest), latest) for time in (words[index].start, words[index].end)
        )
        words[index] = replace(words[index], start=start, end=end)
    return clip.with_words(words, alignment=clip.alignment, tiers={})


def _move_word(word: Word, start_shift: float, end_shift: float, duration: float) -> Word:
    start, end = max(word.start + start_shift, 0.0), min(word.end + end_shift, duration)
    if end - start < _MIN_WORD_SECONDS:  # a word shorter than what is taken off: its middle
        midpoint = min(max((word.start + word.end + start_shift + end_shift) / 2, 0.0), duration)
        half = min(_MIN_WORD_SECONDS, word.end - word.start) / 2
        start, end = max(midpoint - half, 0.0), min(midpoint + half, duration)
    return replace(word, start=start, end=end)


def boundary_sensitivity(
    table: pd.DataFrame, *, by: Sequence[str], group: str = "clip"
) -> pd.DataFrame:
    """Compare trained and untrained models over whole stacks, for each variant of the boundaries.

    Parameters
    ----------
    table : DataFrame
        Cue contributions with a column `boundaries`, one of `VARIANTS`; else as for
        `compare_with_twins`.
    by : sequence of str
        E.g. ("model", "stack", "measure").
    group : str

    Returns
    -------
    DataFrame
        As `compare_with_twins` of each variant, with `highest`: the layer with the largest
        difference in that variant.
    """
    names = [
        *by,
        "boundaries",
        "layer",
        "init",
        "seed",
        "clip",
        group,
        "contribution",
        "mixing_strength",
    ]
    table = table[[name for name in dict.fromkeys(names) if name in table]]
    stacks = whole_stack(table)
    result = pd.concat(
        [
            compare_with_twins(rows, by=[*by, "boundaries"], group=group)
            for _, rows in stacks.groupby("boundaries", sort=False, observed=True)
        ],
        ignore_index=True,
    )
    means = (
        table.groupby([*by, "boundaries", "layer", "init"], sort=False, observed=True)
        .contribution.mean()
        .unstack("init")
    )
    differences = (
        means["trained"] - means["random"] if len(means.columns) == 2 else means.iloc[:, 0]
    )
    highest_layers = (
        differences.dropna()
        .groupby(level=[*by, "boundaries"], sort=False, observed=True)
        .idxmax()
        .map(lambda key: key[-1])
    )
    return result.merge(
        highest_layers.rename("highest").reset_index(), on=[*by, "boundaries"], how="left"
    )


def summarize_stability(sensitivity: pd.DataFrame, *, by: Sequence[str]) -> pd.DataFrame:
    """Summarize whether a difference has the same sign and significance in all variants.

    The columns are those of `by`, smallest and largest difference over the variants, holds,
    same_layer. The table is empty where there is no interval: with one twin, or too few groups.
    """
    known_rows = sensitivity[sensitivity["low"].notna()]
    if known_rows.empty:
        return pd.DataFrame(columns=[*by, "smallest", "largest", "holds", "same_layer"])
    signed_rows = known_rows.assign(
        sign=(known_rows["low"] > 0).astype(int) - (known_rows["high"] < 0).astype(int)
    )
    grouped = signed_rows.groupby(list(by), sort=False)
    result = grouped.difference.agg(smallest="min", largest="max")
    result["holds"] = grouped["sign"].nunique() == 1
    result["same_layer"] = grouped["highest"].nunique() == 1
    return result.reset_index()
