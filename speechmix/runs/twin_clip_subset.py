"""Choose the clips that further random twins are run on.

In: the clips of a run. Out: some of them, whole pairs, sentences and words
(`evaluation.statistics.groups`) and evenly over sides, templates and controls, so that fewer clips
answer the same question. Speakers are no reason to leave clips together: some of each are wanted.
The first random twin of a model is run on all clips, as the trained model is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..evaluation.statistics.even_subset import choose_evenly
from ..evaluation.statistics.groups import SPEAKER_COLUMNS, assign_groups, build_item_table
from ..inputs.clips.clip import Clip

CLIPS_BY_LAYER = 48  # in which ablation silences the cue layer by layer
# Columns of a manifest by which clips are put in order, so that each kind has its part.
_KINDS = ("control", "side", "template")


def choose_twin_clips(clips: Sequence[Clip], most: int) -> list[Clip]:
    """At most `most` or so of the clips that have a cue and a target, whole groups of them; in the
    order in which they came.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> few = choose_twin_clips(bundled.clips(), 24)
    >>> len(few), len({clip.meta["pair"] for clip in few})
    (24, 12)
    """
    eligible_clips = [
        clip for clip in clips if None not in (clip.cue_request, clip.target_request)
    ] or list(clips)
    if len(eligible_clips) <= most:
        return eligible_clips
    table = build_item_table(eligible_clips)
    table["group"], _ = assign_groups(table.drop(columns=[*SPEAKER_COLUMNS], errors="ignore"))
    kinds = [name for name in _KINDS if name in table]
    groups = list(
        dict.fromkeys((table.sort_values(kinds, kind="stable") if kinds else table)["group"])
    )
    count = max(round(most * len(groups) / len(eligible_clips)), 1)
    names = set(table[table["group"].isin(choose_evenly(groups, count))]["clip"])
    return [clip for clip in eligible_clips if clip.name in names]
