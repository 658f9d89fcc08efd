"""Clips as the app takes and changes them: recordings read, words placed and muted."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...adapters.model import Model
from ...alignment import place_words
from ...alignment.ctc import has_ctc_head
from ...errors import InputError
from ...files.names import safe_name
from ...inputs.audio.decoding import header_seconds
from ...inputs.audio.frame_grid import Seconds
from ...inputs.audio.loading import read_audio
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...interventions.audio_removal import mute
from .measurements import EVENLY, PLACINGS, RATE, can_place_words, transcribe_clip

_EDGE = 0.05  # share of a clip without words at either end, where words are spread evenly


@dataclass(frozen=True)
class SilencedTranscript:
    """What a model writes when words are muted.

    Parameters
    ----------
    clip : Clip
        With the other sound.
    before, after : str
        Transcripts of the clip as it was and of `clip`.
    changes : list of (before, after)
        Stretches of both texts in order; where both are the same nothing changed.
    """

    clip: Clip
    before: str
    after: str
    changes: list[tuple[str, str]]


def clip_from_bytes(content: bytes, name: str, *, longest: Seconds) -> Clip:
    """Read a recording that was sent, as the bytes of a WAV, FLAC, OGG or MP3 file.

    Parameters
    ----------
    content : bytes
    name : str
        As its owner calls the file; whatever is in it, the clip's name is safe.
    longest : float
        Seconds.

    Raises
    ------
    InputError
        If it is no audio, holds less than it promises, or is longer than `longest`; the message has
        the name, and no path.
    """
    shown = safe_name(name)
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / shown
        path.write_bytes(content)
        try:
            seconds = header_seconds(path)
            if seconds > longest:
                raise InputError(
                    f"{path} lasts {seconds:.1f} s, expected at most {longest:g} s: cut it, or "
                    "start the page with a longer "
                    "limit (start the app with --longest SECONDS for longer clips)"
                )
            samples = read_audio(path, sample_rate=RATE)
        except InputError as error:
            raise InputError(str(error).replace(str(path), shown)) from None
    return Clip.from_array(samples, RATE, name=Path(shown).stem)


def add_word_times(clip: Clip, *, model: Model | None = None, how: str = "model") -> Clip:
    """Give a clip's text its word times.

    Parameters
    ----------
    clip : Clip
        With a text; words that it has are placed anew.
    model : Model, optional
        For "model": a trained one with a CTC head or, if it is a Whisper, cross-attention.
    how : {"model", "synthesis", "evenly"}
        By the model; by espeak-ng and warping; or evenly by their letters, as a start for moving
        borders by hand.

    Raises
    ------
    InputError, AlignmentError, MissingExtraError
        If the words cannot be placed so.
    """
    if how not in PLACINGS:
        raise InputError(f"how should be one of {PLACINGS}, found {how!r}")
    if not (clip.text or "").split():
        raise InputError(f"{clip.name} has no text yet: type what is said, or let a model write it")
    bare = clip.replace(words=None, doubts=())
    if how == EVENLY:
        return bare.replace(words=_spread(bare), alignment=EVENLY)
    if how == "synthesis":
        if not clip.language:
            raise InputError(
                f"in which language is {clip.name} spoken? Write it into the field language (fr, "
                "en-us, ...), or start the "
                "page with speechmix serve --language: a synthetic voice speaks the text"
            )
        method = how
    elif model is not None and can_place_words(model):
        method = "ctc" if has_ctc_head(model) else "whisper"
    else:
        name = "no model" if model is None else model.label
        raise InputError(
            f"{name} cannot place words: a trained model with a CTC head or a trained Whisper can; "
            "or have the text spoken "
            "(synthesis), or spread it evenly and move the borders"
        )
    alignment = place_words(bare, clip.text or "", model=model, method=method)
    return bare.replace(words=alignment.words, alignment=alignment.method, doubts=alignment.doubts)


def _spread(clip: Clip) -> list[Word]:
    """Words one after the other, as long as they have letters."""
    texts = (clip.text or "").split()
    margin = _EDGE * clip.duration
    per_letter = (clip.duration - 2 * margin) / sum(map(len, texts))
    edges = [margin]
    for text in texts:
        edges.append(edges[-1] + per_letter * len(text))
    return [Word(text, edges[i], edges[i + 1]) for i, text in enumerate(texts)]


def mute_words(
    model: Model,
    clip: Clip,
    words: Sequence[int],
    *,
    fill: str = "zeros",
    before: str | None = None,
) -> SilencedTranscript:
    """Silence words in the sound and read what the model writes then.

    Parameters
    ----------
    model : Model
        That writes (`transcribe_clip`).
    clip : Clip
        With words.
    words : sequence of int
        Indices; none leaves the clip as it is.
    fill : {"zeros", "room", "noise", "word"}
        See `speechmix.mute`.
    before : str, optional
        What it writes about the whole clip, if that is known.

    Raises
    ------
    InputError
        If the model writes nothing, or there is nothing to fill with.
    """
    before = transcribe_clip(model, clip) if before is None else before
    if not words:
        return SilencedTranscript(clip, before, before, compare_words(before, before))
    quiet = mute(clip, list(words), fill=fill)
    after = transcribe_clip(model, quiet)
    return SilencedTranscript(quiet, before, after, compare_words(before, after))


def compare_words(before: str, after: str) -> list[tuple[str, str]]:
    """Words of two texts side by side; where as many were exchanged, one by one.

    Examples
    --------
    >>> compare_words("nos maisons", "notre maisons là")
    [('nos', 'notre'), ('maisons', 'maisons'), ('', 'là')]
    >>> compare_words("elle a dit", "il a")
    [('elle', 'il'), ('a', 'a'), ('dit', '')]
    """
    old, new = before.split(), after.split()
    pairs: list[tuple[str, str]] = []
    for _, i, j, k, m in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        alike = j - i == m - k
        pairs += (
            zip(old[i:j], new[k:m], strict=True)
            if alike
            else [(" ".join(old[i:j]), " ".join(new[k:m]))]
        )
    return pairs
