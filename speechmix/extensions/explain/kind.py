"""Result kind "explanations": explanations of the words a model wrote for a clip.

In: a trained model that spells or classifies, and a clip with words. Out: what `speechmix.explain`
found, as the page shows it; or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError, StorageError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...mixing.maps.measure_registry import MEASURE_FACTS
from ...runs.kinds.result_kind import Result, ResultItem, ResultKind, stored_contents, version_entry
from ...runs.progress import OutOfMemory
from ...runs.results.clip_result_files import Owner, Part

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .explanation import Explanation

_DEFAULT_CONTRASTS = ("foil", "reference", "runner_up")
_MAX_MISSED_TARGETS = (
    10  # times as many clips are looked through for targets that the transcript lacks
)


@dataclass(frozen=True)
class ToExplain:
    """Of which clips a run explains what its trained models generate.

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
        """Choose the first clips of a run; and of ten times as many those whose target is missed.

        Raises
        ------
        InputError
            If the count is none.
        """
        if type(count) is not int or count < 0:
            raise InputError(f"expected explain as a number of clips, 0 for none, found {count!r}")
        first = frozenset(clip.name for clip in clips[:count])
        candidates = (
            clip.name for clip in clips[: _MAX_MISSED_TARGETS * count] if clip.target is not None
        )
        return cls(first, frozenset(candidates) - first)

    def described(self) -> list[str]:
        """Return what a run's hash has of it."""
        return sorted(self.always)

    def __contains__(self, clip: Clip) -> bool:
        return clip.name in self.always or clip.name in self.if_missed


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    model, clip = item.model, item.clip
    answers = model.can_transcribe or model.has_label_head
    if model.init != "trained" or not answers or not clip.words:
        return None
    to_explain = item.options.get("to_explain")
    if to_explain is not None and clip not in to_explain:
        return None
    measures = version_entry(1, MEASURE_FACTS)
    always = _is_always(item)
    request = item.options.get("request", {})
    # A label that the model gives is compared with the true one.
    true_label = {"label": clip.meta.get("label")} if model.has_label_head else {}
    return {
        **item.ingredients,
        **true_label,
        "against": _DEFAULT_CONTRASTS,
        "always": always,
        **measures,
        **request,
    }


def _compute(item: ResultItem) -> Result:
    model, clip = item.model, item.clip
    has_text = not model.has_label_head
    if _is_always(item) or (has_text and _misses_target(clip, _find_transcript(item))):
        return Result(_explain_clip(model, clip, item.options.get("request", {})))
    return Result({})


def _is_always(item: ResultItem) -> bool:
    """Whether the clip is explained whatever its transcript; every clip is where none are chosen."""
    to_explain: ToExplain | None = item.options.get("to_explain")
    return to_explain is None or item.clip.name in to_explain.always


def _find_transcript(item: ResultItem) -> str:
    """What the model generates of the clip: as the run stores it, or generated now."""
    from ...adapters.generation.greedy_generation import transcribe

    stored = item.stored.get("transcripts")
    return str(stored[0]["transcript"]) if stored else transcribe(item.model, item.clip)


def _misses_target(clip: Clip, transcript: str) -> bool:
    target = normalize_transcript((clip.words or ())[clip.target or 0].text)
    return f" {target} " not in f" {normalize_transcript(transcript)} "


def _explain_clip(model: Model, clip: Clip, request: Mapping[str, Json]) -> JsonObject:
    """What the page shows of an explanation, without the sound; or the reason why there is none."""
    from .explain import explain
    from .page import explanation_view

    try:
        explanation = explain(model, clip, **{"against": _DEFAULT_CONTRASTS, **request})
    except (StorageError, OutOfMemory):
        raise
    except SpeechmixError as error:
        return {"reason": str(error)}
    view = {**explanation_view(explanation, sound=False), "start": find_first_shown(explanation)}
    return {"text": explanation.details(), "view": view}


# Version 2: several fills, shares specific to a word, other default measures; 3: names of the view;
# 4: alternatives of earlier words, errors as runs.
def _choose_options(clips: Sequence[Clip], count: int) -> dict[str, object]:
    return {"to_explain": ToExplain.of(clips, count)}


EXPLANATIONS_KIND = ResultKind(
    "explanations", _compute, version=4, cache_key=_cache_key, choose_options=_choose_options
)


def find_first_shown(explanation: Explanation) -> int:
    """Index of the choice that a study is about: the target against its foil or what replaces it, else the first."""
    choices, clip = explanation.choices, explanation.clip
    target = None if clip is None or clip.target is None else (clip.words or ())[clip.target].text

    def rank(index: int) -> int:
        choice = choices[index]
        reference_text = None if choice.error is None else explanation.errors[choice.error].said
        is_target = target is not None and reference_text == target
        return [choice.against == "foil", is_target, True].index(True)

    return min(range(len(choices)), key=rank)


def stored_explanations(parts: Sequence[Part]) -> Iterator[tuple[Owner, str, JsonObject]]:
    """Model, clip and content of all explanations in parts of a run: text and view, or why there is none.

    Each is given once, though several parts may hold it.

    Raises
    ------
    InputError
        If a part is damaged.
    """
    return stored_contents(parts, EXPLANATIONS_KIND.name)
