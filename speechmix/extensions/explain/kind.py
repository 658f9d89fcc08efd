"""Result kind "explanations": explanations of the words a model wrote for a clip.

In: a trained model that spells or classifies, and a clip with words. Out: what `speechmix.explain`
found, as the page shows it; or the reason why there is none.

Page section with the explanations of a run.

The section with the explanations of a run (`score_clips(explain=N)`).

In: a `Study`, folder or clips with the sound. Out: a part of the page, or none: a `WhyCard` for
each clip, which the script of explanations draws when it is opened; where no script runs, it is
plain text.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from ...adapters.generation.greedy_generation import transcribe
from ...adapters.model import Model
from ...errors import InputError, SpeechmixError, StorageError
from ...files.json_files import Json, JsonObject
from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_wav
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...mixing.maps.measure_registry import MEASURE_FACTS
from ...reporting.pages.html_page import Item
from ...reporting.pages.page_sections import PageContent, PageSection
from ...reporting.pages.study_clips import MAX_PAGE_BYTES, find_audible_clip
from ...reporting.pages.study_results import Study
from ...runs.kinds.result_kind import Result, ResultItem, ResultKind, stored_contents, version_entry
from ...runs.progress import OutOfMemory
from ...runs.results.clip_result_files import Owner, Part
from .explain import explain
from .page import explanation_view

if TYPE_CHECKING:
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
    stored = item.stored.get("transcripts")
    return str(stored[0]["transcript"]) if stored else transcribe(item.model, item.clip)


def _misses_target(clip: Clip, transcript: str) -> bool:
    target = normalize_transcript((clip.words or ())[clip.target or 0].text)
    return f" {target} " not in f" {normalize_transcript(transcript)} "


def _explain_clip(model: Model, clip: Clip, request: Mapping[str, Json]) -> JsonObject:
    """What the page shows of an explanation, without the sound; or the reason why there is none."""
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


_INTRODUCTION = (
    "The cards explain the words that trained models wrote. They cover the first clips of the run, "
    "and clips whose transcript lacks the target. If a clip has a foil (the other spelling of the "
    "target), the comparison of target and foil comes first. Each measure in the cards gives every "
    "source a score, the attribution of this source. It says how much the source contributes to the "
    "word. A source is removed by replacing it with a fill. This is repeated for each fill. The effect "
    "of removal (occlusion) is the fall of the "
    "word's log probability, in nats. It is the median over the fills, with its range."
)
_MAX_BYTES = int(0.3 * MAX_PAGE_BYTES)  # of all that is shown here


@dataclass(frozen=True)
class WhyCard:
    """Card with the explanations of what models wrote about a clip.

    Parameters
    ----------
    name, heading : str
    text : str
        The same as plain text.
    data : dict
        Views by model, and the sound (WAV, base64; "" for none), as the page's script takes them.
    """

    kind: ClassVar[str] = "why"
    name: str
    heading: str
    text: str
    data: dict[str, object]
    why: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", f"why-{safe_name(self.name)}")


def _explanation_items(content: PageContent) -> list[Item]:
    """Return the cards of the clips that were explained, in the order of the run."""
    study = content.study
    stored_results = list(stored_explanations(content.run.parts))
    if not stored_results:
        return []
    by_clip: dict[str, list[tuple[Owner, dict[str, Any]]]] = defaultdict(list)
    reasons = []
    for owner, name, stored in stored_results:
        if "view" in stored:
            by_clip[name].append((owner, stored))
        else:
            reasons.append(f"{name}, {owner.label}: {stored['reason']}")
    clips_by_name = {clip.name: clip for clip in content.clips}
    cards, page_bytes = list[WhyCard](), 0
    for name in study.run.clips["clip"]:
        if name not in by_clip:
            continue
        encoded_sound = _encode_sound(study, name, clips_by_name.get(name), content.audio)
        card = _make_card(name, by_clip[name], encoded_sound)
        page_bytes += len(encoded_sound) + sum(
            len(str(stored["view"])) for _, stored in by_clip[name]
        )
        if cards and page_bytes > _MAX_BYTES:
            reasons.append(
                f"{len(by_clip) - len(cards)} more are not shown, to keep the page small enough "
                "for e-mail."
            )
            break
        cards.append(card)
    return [_INTRODUCTION, *cards, *reasons]


def _encode_sound(
    study: Study, name: str, clip_in_memory: Clip | None, audio: str | PathLike[str] | None
) -> str:
    """Encode the sound of a clip as base64; "" if it cannot be read."""
    clip = find_audible_clip(study.run, name, {}, clip_in_memory, audio)
    return "" if clip is None else base64.b64encode(encode_wav(clip)).decode("ascii")


def _make_card(
    name: str, explanations: Sequence[tuple[Owner, Mapping[str, Any]]], sound: str
) -> WhyCard:
    """Build the card of one clip."""
    transcripts = "; ".join(
        dict.fromkeys(str(content["view"]["text"]) for _, content in explanations)
    )
    text = "\n\n".join(str(content["text"]) for _, content in explanations)
    views = [{"model": owner.label, "view": content["view"]} for owner, content in explanations]
    return WhyCard(name, f"{name}: {transcripts}", text, {"views": views, "sound": sound})


EXPLANATIONS = PageSection("Why did the model write this?", _explanation_items)
