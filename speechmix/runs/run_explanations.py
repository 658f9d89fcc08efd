"""Explanations of a run: why did its trained models write the words of some clips? Kept with the
run's other results.

In: a trained model that spells, and a clip with words, while a run scores it. Out: a row of kind
`EXPLANATIONS` beside the clip's scores (``results/<model>/``): what `speechmix.explain` found, as
the page shows it. Like everything of a run it is found again if model, clip and question are still
the same; shards and workers keep those of their own clips.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ..errors import InputError, SpeechmixError, StorageError
from ..evaluation.transcript_accuracy import plain
from ..explanations.explain import explain
from ..explanations.page_data import view_of
from ..files.cache_keys import digest
from ..files.timing import phase
from ..inputs.clips.clip import Clip
from ..mixing.maps.measure_registry import FACTS
from .out_of_memory import OutOfMemory, memory_errors_named
from .results.part_files import Owner, Part
from .results.result_store import Key, Results
from .revisions import revision_entry

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..explanations.explanation import Explanation

EXPLANATIONS = "explanations"  # kind of result
_AGAINST = ("foil", "reference", "runner_up")
_MISSED_AMONG = 10  # times as many clips are looked through for targets that the transcript lacks


@dataclass(frozen=True)
class ToExplain:
    """Of which clips a run explains what its trained models write.

    Parameters
    ----------
    always : frozenset of str
    if_missed : frozenset of str
        Those that are explained where the transcript lacks the target.
    """

    always: frozenset[str] = frozenset()
    if_missed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, clips: Sequence[Clip], count: int) -> ToExplain:
        """The first clips of a run; and of ten times as many those whose target is missed. The same
        whatever the shard.

        Raises
        ------
        InputError
            If the count is none.
        """
        if type(count) is not int or count < 0:
            raise InputError(f"expected explain as a number of clips, 0 for none, found {count!r}")
        first = frozenset(clip.name for clip in clips[:count])
        asked = (clip.name for clip in clips[: _MISSED_AMONG * count] if clip.target is not None)
        return cls(first, frozenset(asked) - first)

    def __contains__(self, clip: Clip) -> bool:
        return clip.name in self.always or clip.name in self.if_missed


def keep_explanation(
    results: Results, model: Model, clip: Clip, to_explain: ToExplain, transcript: Callable[[], str]
) -> Key:
    """Keep why a model wrote its words of a clip, unless it is there already; or that there is
    nothing to explain, and why."""
    always = clip.name in to_explain.always
    asked = {
        "weights": model.fingerprint,
        "dtype": str(model.state_dtype),
        **clip.ingredients,
        "against": _AGAINST,
    }
    asked |= {"always": always, "revision": 1, **revision_entry(EXPLANATIONS, FACTS)}
    key = Key(clip.name, EXPLANATIONS, digest(asked))
    if key not in results:
        with phase(EXPLANATIONS), memory_errors_named():
            content = (
                _explained(model, clip) if always or _misses_target(clip, transcript()) else {}
            )
        results.put(key, content=json.dumps(content, ensure_ascii=False, separators=(",", ":")))
    return key


def _misses_target(clip: Clip, transcript: str) -> bool:
    target = plain((clip.words or ())[clip.target or 0].text)
    return f" {target} " not in f" {plain(transcript)} "


def _explained(model: Model, clip: Clip) -> dict[str, Any]:
    """What the page shows of an explanation, without the sound; or the reason why there is none."""
    try:
        explanation = explain(model, clip, against=_AGAINST)
    except (StorageError, OutOfMemory):
        raise
    except SpeechmixError as error:
        return {"reason": str(error)}
    view = {**view_of(explanation, sound=False), "start": first_shown(explanation)}
    return {"text": str(explanation), "view": view}


def first_shown(explanation: Explanation) -> int:
    """Place of the choice that a study asks about: the target against its foil, or what stands for
    it, else the first."""
    choices, clip = explanation.choices, explanation.clip
    target = None if clip is None or clip.target is None else (clip.words or ())[clip.target].text

    def rank(place: int) -> int:
        choice = choices[place]
        said = None if choice.error is None else explanation.errors[choice.error].said
        return [choice.against == "foil", target is not None and said == target, True].index(True)

    return min(range(len(choices)), key=rank)


def stored_explanations(parts: Sequence[Part]) -> Iterator[tuple[Owner, str, dict[str, Any]]]:
    """Model, clip and content of all explanations in parts of a run: text and view, or the reason
    why there is none.

    Raises
    ------
    InputError
        If a part is damaged.
    """
    for part in parts:
        rows = part.read(("clip", "kind", "content"))
        for row in rows.filter(pc.equal(rows["kind"], EXPLANATIONS)).to_pylist():
            content = json.loads(row["content"])
            if content:
                yield part.owner, row["clip"], content
