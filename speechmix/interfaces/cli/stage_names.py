"""Find the stage of the French study that a command line names.

In: the words of a command line. Out: the same words; a stage is one command, such as "study align".
`align` and `transcribe` alone are commands for one's recordings, and stages only for the folder of a
study.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_STAGES = ("mine", "align", "transcribe", "select")
_ALSO_FOR_RECORDINGS = ("align", "transcribe")
_ONLY_OF_STAGES = ("--corpus", "--compare", "--adapt", "--no-adapt", "--textgrids")


def join_stage_name(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the name of a stage as one command.

    Examples
    --------
    >>> join_stage_name(["study", "align", "corpus"])
    ['study align', 'corpus']
    >>> join_stage_name(["mine", "clips.tsv", "--out", "corpus"])
    ['study mine', 'clips.tsv', '--out', 'corpus']
    >>> join_stage_name(["align", "a.wav", "--text", "les livres"])
    ['align', 'a.wav', '--text', 'les livres']
    """
    words = list(arguments)
    if words[:1] == ["study"] and len(words) > 1 and words[1] in _STAGES:
        return [f"study {words[1]}", *words[2:]]
    if words and words[0] in _STAGES and _is_about_study(words):
        return [f"study {words[0]}", *words[1:]]
    return words


def _is_about_study(words: Sequence[str]) -> bool:
    if words[0] not in _ALSO_FOR_RECORDINGS:
        return True
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    if not options.isdisjoint(_ONLY_OF_STAGES):
        return True
    from ...studies.french.study_status import is_study

    return any(
        is_study(word)
        for before, word in pairwise(words)
        if before != "--out" and not word.startswith("-")
    )
