"""Read recordings for the app, give their words times, mute words."""

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
from ...inputs.audio.audio_source import read_audio
from ...inputs.audio.decoding import header_seconds
from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...interventions.removals import mute
from .measurements import (
    EVEN_SPACING,
    PLACEMENT_METHODS,
    SAMPLE_RATE,
    can_align_words,
    transcribe_clip,
)

_MARGIN_SHARE = 0.05  # share of a clip without words at either end, where words are spread evenly


@dataclass(frozen=True)
class MutedTranscript:
    """Hold what a model writes before and after words are muted.

    Parameters
    ----------
    clip : Clip
        With the changed audio.
    text_before, text_after : str
        Transcripts of the clip as it was and of `clip`.
    changes : list of (before, after)
        Words of both texts in order; equal where nothing changed.
    """

    clip: Clip
    text_before: str
    text_after: str
    changes: list[tuple[str, str]]


def clip_from_bytes(audio_bytes: bytes, name: str, *, max_seconds: Seconds) -> Clip:
    """Read a recording from the bytes of a WAV, FLAC, OGG or MP3 file.

    Parameters
    ----------
    audio_bytes : bytes
    name : str
        File name of the user; the name of the clip is a safe form of it.
    max_seconds : float
        Seconds.

    Raises
    ------
    InputError
        If it is no audio, is truncated, or is longer than `max_seconds`; the message has the
        name, and no path.
    """
    safe_file_name = safe_name(name)
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / safe_file_name
        path.write_bytes(audio_bytes)
        try:
            seconds = header_seconds(path)
            if seconds > max_seconds:
                raise InputError(
                    f"{path} is {seconds:.1f} s long, the limit is {max_seconds:g} s: open a shorter file"
                )
            samples = read_audio(path, sample_rate=SAMPLE_RATE)
        except InputError as error:
            raise InputError(str(error).replace(str(path), safe_file_name)) from None
    return Clip.from_array(samples, SAMPLE_RATE, name=Path(safe_file_name).stem)


def add_word_times(clip: Clip, *, model: Model | None = None, method: str = "model") -> Clip:
    """Give the words of a clip's text their times.

    Parameters
    ----------
    clip : Clip
        With a text; present word times are replaced.
    model : Model, optional
        For "model": a trained model with a CTC head, or a trained Whisper.
    method : {"model", "synthesis", "evenly"}
        By the model; by espeak-ng and warping; or evenly by letters, as a start for moving
        boundaries by hand.

    Raises
    ------
    InputError, AlignmentError, MissingExtraError
        If this method cannot align the words.
    """
    if method not in PLACEMENT_METHODS:
        raise InputError(f"method should be one of {PLACEMENT_METHODS}, found {method!r}")
    if not (clip.text or "").split():
        raise InputError(f"{clip.name} has no text: type what is said, or click Transcribe")
    untimed_clip = clip.replace(words=None, doubts=())
    if method == EVEN_SPACING:
        return untimed_clip.replace(words=_space_words_evenly(untimed_clip), alignment=EVEN_SPACING)
    if method == "synthesis":
        if not clip.language:
            raise InputError(
                f'{clip.name} has no language: type it into the field "language" (fr, en-us, ...). '
                "The synthetic voice that aligns the words needs it"
            )
        aligner_method = method
    elif model is not None and can_align_words(model):
        aligner_method = "ctc" if has_ctc_head(model) else "whisper"
    else:
        name = "speechmix without a model" if model is None else model.label
        raise InputError(
            f"{name} cannot align words: choose a trained CTC "
            'model or Whisper, the synthetic voice, or "evenly" and move the boundaries by hand'
        )
    alignment = place_words(untimed_clip, clip.text or "", model=model, method=aligner_method)
    return untimed_clip.replace(
        words=alignment.words, alignment=alignment.method, doubts=alignment.doubts
    )


def _space_words_evenly(clip: Clip) -> list[Word]:
    """Place the words one after the other, each as long as its number of letters."""
    texts = (clip.text or "").split()
    margin_seconds = _MARGIN_SHARE * clip.duration
    letter_seconds = (clip.duration - 2 * margin_seconds) / sum(map(len, texts))
    boundaries = [margin_seconds]
    for text in texts:
        boundaries.append(boundaries[-1] + letter_seconds * len(text))
    return [Word(text, boundaries[i], boundaries[i + 1]) for i, text in enumerate(texts)]


def mute_words(
    model: Model,
    clip: Clip,
    words: Sequence[int],
    *,
    fill: str = "zeros",
    text_before: str | None = None,
) -> MutedTranscript:
    """Mute words in the audio, and transcribe before and after.

    Parameters
    ----------
    model : Model
        One that generates text (`transcribe_clip`).
    clip : Clip
        With words.
    words : sequence of int
        Indices; an empty list leaves the clip unchanged.
    fill : {"zeros", "room", "noise", "word"}
        See `speechmix.mute`.
    text_before : str, optional
        Transcript of the unchanged clip, if it is known.

    Raises
    ------
    InputError
        If the model generates no text, or there is nothing to fill with.
    """
    text_before = transcribe_clip(model, clip) if text_before is None else text_before
    if not words:
        return MutedTranscript(
            clip, text_before, text_before, compare_words(text_before, text_before)
        )
    muted_clip = mute(clip, list(words), fill=fill)
    text_after = transcribe_clip(model, muted_clip)
    return MutedTranscript(
        muted_clip, text_before, text_after, compare_words(text_before, text_after)
    )


def compare_words(text_before: str, text_after: str) -> list[tuple[str, str]]:
    """Pair the words of two texts; spans of equal length word by word.

    Examples
    --------
    >>> compare_words("nos maisons", "notre maisons là")
    [('nos', 'notre'), ('maisons', 'maisons'), ('', 'là')]
    >>> compare_words("elle a dit", "il a")
    [('elle', 'il'), ('a', 'a'), ('dit', '')]
    """
    old_words, new_words = text_before.split(), text_after.split()
    word_pairs: list[tuple[str, str]] = []
    for _, i, j, k, m in difflib.SequenceMatcher(
        a=old_words, b=new_words, autojunk=False
    ).get_opcodes():
        has_same_length = j - i == m - k
        word_pairs += (
            zip(old_words[i:j], new_words[k:m], strict=True)
            if has_same_length
            else [(" ".join(old_words[i:j]), " ".join(new_words[k:m]))]
        )
    return word_pairs
