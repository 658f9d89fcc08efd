"""Build the card of a clip on a page: sound, picture, words, and the maps that the page's script
draws.

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
from ...runs.results.stored_clips import Maps, read_provenance
from ..plots.figure_style import fed_text
from ..plots.sound_panels import sound_picture
from .map_encoding import encode_maps
from .transcription import ModelTranscript


class WordPiece(TypedDict):
    """Piece of a word with its times in seconds, and the index of the word."""

    text: str
    start: float
    end: float
    word: int


@dataclass(frozen=True)
class ClipCard:
    """Whether a model's transcript differs from what was said."""

    kind: ClassVar[str] = "clip"
    name: str
    heading: str
    text: str | None
    summary: str
    words: list[dict[str, object]]
    ticks: list[dict[str, object]]
    data: dict[str, object]
    sound: str = ""
    picture: str = ""
    silence_reason: str = ""
    language: str | None = None
    transcripts: Sequence[ModelTranscript] = ()
    anchor: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor", clip_anchor(self.name))

    @property
    def has_differences(self) -> bool:
        """Whether a model wrote something else than what was said."""
        return any(transcript.has_differences for transcript in self.transcripts)


def clip_anchor(name: str) -> str:
    """Return the anchor of a clip's card, for links on the page."""
    return f"clip-{safe_name(name)}"


def clip_card(
    name: str,
    clip: Clip | None,
    maps: Maps,
    *,
    heading: str,
    summary: str,
    start: Mapping[str, Any],
    seconds: float,
    max_bytes: int,
    transcripts: Sequence[ModelTranscript] = (),
) -> ClipCard:
    """Build the card of a clip.

    Without a clip (its audio cannot be found) the card has words and maps alone. The maps come from
    `runs.results.stored_clips.read_clip_maps`. `start` says what to show first: model, stack,
    measure (names as on the page), layer. `seconds` is the length of the clip; the card takes about
    `max_bytes`. `transcripts` are what models wrote about the clip.
    """
    provenance = read_provenance(maps)
    words = _list_pieces([Word(*word) for word in provenance.get("words") or ()])
    cue, target = provenance.get("cue"), provenance.get("target")
    sound = picture = ""
    silence_reason = (
        "The audio file was not found. Name its folder: `speechmix report RUN --audio FOLDER`."
    )
    if clip is not None:
        seconds = clip.duration
        picture = base64.b64encode(sound_picture(clip)).decode("ascii")
        sound = base64.b64encode(encode_wav(clip)).decode("ascii")
        if len(sound) > max_bytes / 2:
            sound, silence_reason = (
                "",
                f"The audio ({seconds:.0f} s) is not on the page, to keep it small enough for e-mail.",
            )
    drawn_maps_data = encode_maps(
        maps, seconds, start.get("layer"), max_bytes - len(sound) - len(picture)
    )
    data = {
        "maps": drawn_maps_data,
        "words": words,
        "cue": cue,
        "target": target,
        "seconds": seconds,
        "start": dict(start),
    }
    summary = " · ".join(phrase for phrase in (summary, *_fed_texts(maps)) if phrase)
    return ClipCard(
        name,
        heading,
        provenance.get("text"),
        summary,
        _place_words(words, cue, target, seconds),
        _time_ticks(seconds),
        data,
        sound=sound,
        picture=picture,
        silence_reason=silence_reason,
        language=clip.language if clip else None,
        transcripts=transcripts,
    )


def _fed_texts(maps: Maps) -> list[str]:
    """List the texts that decoders were fed where they are not the clip's own text."""
    fed_texts = (
        fed_text(mixing_map.provenance, 200)
        for by_model in maps.values()
        for mixing_map in by_model.values()
    )
    return [f"text in the decoder: {text}" for text in dict.fromkeys(fed_texts) if text]


def _list_pieces(words: Sequence[Word]) -> list[WordPiece]:
    """List the pieces of all words in time order, each with the index of its word."""
    pieces: list[WordPiece] = [
        {"text": part.text, "start": start, "end": end, "word": index}
        for index, part in list_parts(words)
        for start, end in part.intervals
    ]
    return sorted(pieces, key=lambda piece: piece["start"]) if len(pieces) > len(words) else pieces


def _place_words(
    words: Sequence[WordPiece],
    cue: int | Sequence[int] | None,
    target: int | None,
    seconds: float,
) -> list[dict[str, object]]:
    """Return the words with their positions along the clip in percent."""
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


def _time_ticks(seconds: float) -> list[dict[str, object]]:
    """Return the ticks of the time axis with their positions in percent."""
    from matplotlib.ticker import MaxNLocator

    times = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0, seconds)
    return [
        {"left": round(100 * t / seconds, 3), "label": f"{t:g}"} for t in times if 0 <= t <= seconds
    ]
