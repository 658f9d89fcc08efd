"""Revisions of what a run keeps: raised by one when the same input gives another result from now
on, as after a correction.

In: a kind of result, or measures. Out: entries for the hash that a stored result is known by; none
for a first revision. A measure's own revision is in `speechmix.mixing.maps.measure_registry`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..mixing.maps.measure_registry import revision_of

REVISIONS = {
    "contributions": 1,  # cue contributions and their baselines, from maps
    "ablation": 1,
    "transcripts": 1,
    "states": 1,
    "speech_ablation": 1,
    "explanations": 2,  # several fills, what is specific to a word, other default measures
    "trials": 2,  # faithfulness evaluation; 2: layers are composed by their mixing strength
}


def revision_entry(kind: str, measures: Iterable[str] = ()) -> dict[str, object]:
    """Return what a result's hash has besides its request: nothing while all are first revisions.

    Parameters
    ----------
    kind : str
        One of `REVISIONS`.
    measures : iterable of str
        Measures that the result is made with, where they are not in its hash already.

    Examples
    --------
    >>> revision_entry("ablation", ["attention"])
    {}
    """
    revised = {name: revision for name in measures if (revision := revision_of(name)) > 1}
    entries: dict[str, object] = {"revision": REVISIONS[kind]} if REVISIONS[kind] > 1 else {}
    return entries | ({"measure_revisions": revised} if revised else {})
