"""Page section with the explanations of a run (`score_clips(explain=N)`).

In: a `Study`, folder or clips with the sound. Out: a part of the page, or none: a `WhyCard` for
each clip, which the script of explanations draws when it is opened; where no script runs, it is
plain text.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar

from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_wav
from ...reporting.pages.html_page import Item
from ...reporting.pages.page_sections import PageContent, PageSection
from ...reporting.pages.study_clips import MAX_PAGE_BYTES, find_audible_clip
from ...reporting.pages.study_results import Study
from ...runs.results.clip_result_files import Owner
from .kind import stored_explanations

_INTRODUCTION = (
    "The cards explain the words that trained models wrote. They cover the first clips of the run, "
    "and clips whose transcript lacks the target. If a clip has a foil (the other spelling of the "
    "target), the comparison of target and foil comes first. Each measure in the cards gives every "
    "source a score, the attribution of this source. It says how much the source contributes to the "
    "word. A source is removed by replacing it with a fill. This is repeated for each fill. The effect "
    "of removal (occlusion) is the fall of the word's log probability, in nats. If a word is compared "
    "with another, it is the fall of the difference between both. It is the median over the fills, "
    "with its range."
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
