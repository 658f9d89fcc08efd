"""A clip on the page: its sound, picture and words, and its maps as numbers that the page's script
draws and moves over.

In: a `Clip` (None where its audio is gone) and its maps. Out: a `ClipCard`. Where a card would grow
too large for a page that is sent by mail, layers are left out evenly, and the sound last.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_wav
from ...inputs.words.cue_and_target import cue_words
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.timed_words import Word
from ...runs.results.stored_clips import Maps, provenance_of
from ..plots import panels
from ..plots.sound_panels import sound_picture
from .drawn_maps import drawn_maps
from .transcription import WrittenText


class WordPiece(TypedDict):
    """A piece of a word along the sound, in seconds, and the index of the word."""

    text: str
    start: float
    end: float
    word: int


@dataclass(frozen=True)
class ClipCard:
    """What the page shows of a clip; sound and picture are base64."""

    kind: ClassVar[str] = "clip"
    name: str
    heading: str
    text: str | None
    facts: str
    words: list[dict[str, object]]
    ticks: list[dict[str, object]]
    data: dict[str, object]
    sound: str = ""
    picture: str = ""
    silent: str = ""
    language: str | None = None
    written: Sequence[WrittenText] = ()
    anchor: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor", clip_anchor(self.name))

    @property
    def differs(self) -> bool:
        """Whether a model wrote something else than what was said."""
        return any(one.differs for one in self.written)


def clip_anchor(name: str) -> str:
    """Where on the page a clip is."""
    return f"clip-{safe_name(name)}"


def clip_card(
    name: str,
    clip: Clip | None,
    maps: Maps,
    *,
    heading: str,
    facts: str,
    start: Mapping[str, Any],
    seconds: float,
    most_bytes: int,
    written: Sequence[WrittenText] = (),
) -> ClipCard:
    """Put a clip's card together.

    Parameters
    ----------
    name : str
    clip : Clip or None
        None if the audio cannot be found: the card then has words and maps alone.
    maps : dict
        From `runs.results.stored_clips.maps_of_clip`.
    heading, facts : str
    start : mapping
        What to show first: model, stack, measure (names as on the page), layer.
    seconds : float
        Length of the clip.
    most_bytes : int
        About how large the card may be.
    written : sequence of WrittenText
        What models wrote about the clip.
    """
    provenance = provenance_of(maps)
    words = _pieces([Word(*word) for word in provenance.get("words") or ()])
    cue, target = provenance.get("cue"), provenance.get("target")
    sound = picture = ""
    silent = (
        "The audio was not found, so there is nothing to hear. Name its folder with "
        "`speechmix report RUN --audio FOLDER`."
    )
    if clip is not None:
        seconds = clip.duration
        picture = base64.b64encode(sound_picture(clip)).decode("ascii")
        sound = base64.b64encode(encode_wav(clip)).decode("ascii")
        if len(sound) > most_bytes / 2:
            sound, silent = (
                "",
                f"The sound ({seconds:.0f} s) is left out: the page would grow too large to be "
                "sent.",
            )
    drawn = drawn_maps(maps, seconds, start.get("layer"), most_bytes - len(sound) - len(picture))
    data = {
        "maps": drawn,
        "words": words,
        "cue": cue,
        "target": target,
        "seconds": seconds,
        "start": dict(start),
    }
    facts = " · ".join(part for part in (facts, *_fed_texts(maps)) if part)
    return ClipCard(
        name,
        heading,
        provenance.get("text"),
        facts,
        _placed(words, cue, target, seconds),
        _ticks(seconds),
        data,
        sound=sound,
        picture=picture,
        silent=silent,
        language=clip.language if clip else None,
        written=written,
    )


def _fed_texts(maps: Maps) -> list[str]:
    """What decoders were fed that the clip does not say: their models' own transcripts,
    translations."""
    fed_texts = (
        panels.fed_text(mixing_map.provenance, 200)
        for by_model in maps.values()
        for mixing_map in by_model.values()
    )
    return [f"decoder fed the {text}" for text in dict.fromkeys(fed_texts) if text]


def _pieces(words: Sequence[Word]) -> list[WordPiece]:
    """What is written along the sound: each piece of each word, and which word it is of."""
    pieces: list[WordPiece] = [
        {"text": part.text, "start": start, "end": end, "word": index}
        for index, part in list_parts(words)
        for start, end in part.intervals
    ]
    return sorted(pieces, key=lambda piece: piece["start"]) if len(pieces) > len(words) else pieces


def _placed(
    words: Sequence[WordPiece],
    cue: int | Sequence[int] | None,
    target: int | None,
    seconds: float,
) -> list[dict[str, object]]:
    roles: dict[int | None, str] = {**dict.fromkeys(cue_words(cue), "cue"), target: "target"}
    return [
        {
            "text": word["text"],
            "start": f"{word['start']:.2f}",
            "end": f"{word['end']:.2f}",
            "left": round(100 * word["start"] / seconds, 3),
            "width": round(100 * (word["end"] - word["start"]) / seconds, 3),
            "role": roles.get(word["word"], ""),
            "word": word["word"],
        }
        for word in words
    ]


def _ticks(seconds: float) -> list[dict[str, object]]:
    from matplotlib.ticker import MaxNLocator

    times = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0, seconds)
    return [
        {"left": round(100 * t / seconds, 3), "label": f"{t:g}"} for t in times if 0 <= t <= seconds
    ]
