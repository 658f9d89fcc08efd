"""Word times from Whisper's cross-attention: which stretch of audio the decoder looks at while it
writes each token.

In: a Whisper model, audio, transcript. Out: an `Alignment`. The transcript is forced through the
decoder; the attention of every head, over the frames of the audio alone (the window's padding is
cut off), is standardised over tokens and smoothed over time, the heads that run through the audio
most steadily are averaged, and dynamic time warping gives each row its stretch. The row that holds
token p predicts token p + 1: a token ends where the row that predicts it ends, and prefix tokens
have no row of their own. After Radford et al. 2023 (openai/whisper, files/timing.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..adapters.model import Model
from ..errors import AlignmentError
from ..inputs.audio.frame_grid import FrameGrid
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from .alignment_result import Alignment, aligned_words

N_DEFAULT_HEADS = 6  # that are averaged if the model does not name its alignment heads
_MEDIAN_FILTER_FRAMES = 7  # frames of the median filter
_MIN_TRUSTED_SCORE = 0.2  # share of the attention that falls on the word's own stretch


def is_trained_whisper(model: Model) -> bool:
    """True for a trained Whisper with its tokenizer: how well the attention of others tells times
    is not known."""
    return (
        model.family.name == "whisper" and model.tokenizer is not None and model.init == "trained"
    )


def align_by_whisper(
    model: Model, audio: np.ndarray, text: str, *, language: str | None = None
) -> Alignment:
    """Place the words of a transcript by cross-attention.

    Parameters
    ----------
    model : Model
        Whisper, trained, with its tokenizer.
    audio : ndarray [samples]
        Mono, at ``model.sample_rate``, not longer than the model's window.
    text : str
        Best as the model itself would write it.
    language : str, optional
        By default the one that the model detects.

    Returns
    -------
    Alignment
        A word's score is the share of the heads' attention that falls on its stretch, while its
        tokens are written. Attention does not tell pauses from words: quiet frames at a word's
        edges are cut off.

    Raises
    ------
    AlignmentError
        If the model is no trained Whisper with its tokenizer, or the text has no words or too many.
    """
    if not is_trained_whisper(model):
        raise AlignmentError(
            f"{model.label} cannot align: expected a trained Whisper model with its tokenizer"
        )
    words = aligned_words(text)
    if not words:
        raise AlignmentError(f"nothing to align: the text {text!r} has no words")
    seconds = len(audio) / model.sample_rate
    # Words at even distances: they only tell which token belongs to which word.
    edges = np.linspace(0, seconds, len(words) + 1)
    even = [Word(word, *edges[i : i + 2]) for i, word in enumerate(words)]
    clip = Clip.from_array(
        audio, model.sample_rate, text=text, words=even, language=language, name="whisper"
    )
    attention, owner, grid = _compute_attention(model, clip)
    heads = choose_heads(model, attention)
    n_rows, n_frames = attention.shape[1:]
    if n_rows > n_frames:
        raise AlignmentError(
            f"the text has {n_rows - 1} tokens, but the audio only {n_frames} frames"
        )
    mean, sound = attention[heads].mean(0), find_loud_frames(audio, n_frames)
    edges = place_rows(attention[heads], sound)
    placed = []
    for index, word in enumerate(words):
        rows = [row for row, word_of_row in enumerate(owner) if word_of_row == index]
        if not rows:
            raise AlignmentError(f"the word {word!r} has no token of its own in {model.name}")
        start, stop = edges[rows[0]], edges[rows[-1] + 1]
        score = float(mean[rows, start:stop].sum(1).mean())
        onset, offset = grid.frame_times(*trim_silence(start, stop, sound))
        placed.append(
            Word(word, min(onset, seconds), min(offset, seconds), round(min(score, 1.0), 4))
        )
    overall = float(
        np.average([w.score for w in placed], weights=[w.end - w.start + 1e-3 for w in placed])
    )
    doubts = (
        [f"attention is spread over the audio (score {overall:.2f})"]
        if overall < _MIN_TRUSTED_SCORE
        else []
    )
    return Alignment(tuple(placed), "whisper", round(overall, 4), tuple(doubts))


def _compute_attention(
    model: Model, clip: Clip
) -> tuple[np.ndarray, Sequence[int | None], FrameGrid]:
    """Cross-attention [L H, rows, frames of the audio], rows sum to one; the word each row
    predicts; the frame grid."""
    from ..adapters.generation.decoder_prefix import require_transcription
    from ..adapters.generation.decoder_text import decoder_tokens
    from ..mixing.passes.mix import mix_one

    require_transcription(model, "alignment")
    tokens = decoder_tokens(model, clip)
    first = tokens.n_prefix - 1  # the row that predicts the first token of the text
    maps = mix_one(model, clip, measures="attention", stacks="cross", units="frame", heads="each")
    scores = maps["attention", "cross"].scores
    grid = model.grid(len(clip.audio(model.sample_rate)))
    n_frames = max(1, grid.frames_between(0.0, clip.duration)[1])
    scores = scores[:, :, first:, :n_frames].reshape(-1, scores.shape[2] - first, n_frames)
    return (
        scores / np.maximum(scores.sum(-1, keepdims=True), 1e-12),
        tokens.words[first + 1 :],
        grid,
    )


def named_heads(model: Model) -> list[tuple[int, int]] | None:
    """Return the (layer, head) pairs that a model names for alignment; None if it names none."""
    named = getattr(getattr(model.module, "generation_config", None), "alignment_heads", None)
    return [(layer, head) for layer, head in named] if named else None


def choose_heads(model: Model, attention: np.ndarray) -> list[int]:
    """Return the indices, among all [L H], of heads that tell times.

    Heads the model names for alignment, else those whose attention runs through the audio most
    steadily."""
    named = named_heads(model)
    if named:
        n_heads = model.stacks["cross"].heads
        return [layer * n_heads + head for layer, head in named]
    centre = attention @ np.arange(attention.shape[2])  # [L H, rows]
    rows = np.arange(attention.shape[1])
    steady = [
        np.corrcoef(path, rows)[0, 1] if np.ptp(path) > 0 and len(path) > 1 else -1
        for path in centre
    ]
    sharp = attention.max(-1).mean(-1)
    heads: list[int] = np.argsort(-(np.nan_to_num(steady, nan=-1) + sharp), kind="stable")[
        :N_DEFAULT_HEADS
    ].tolist()
    return heads


def place_rows(attention: np.ndarray, is_loud: np.ndarray) -> np.ndarray:
    """Give each row its stretch of frames by the attention of some heads.

    Parameters
    ----------
    attention : array [heads, rows, frames]
        Over the frames of the sound alone; no more rows than frames.
    is_loud : bool array [frames]
        See `find_loud_frames`.

    Returns
    -------
    int array [rows + 1]
        Edges of the stretches, from the first frame of the first to the end of the last.
    """
    evidence = _compute_evidence(attention)
    n_rows, n_frames = evidence.shape
    first, last = trim_silence(0, n_frames, is_loud)
    if last - first < n_rows:
        first, last = 0, n_frames
    edges: np.ndarray = np.append(first + find_row_starts(evidence[:, first:last]), last)
    return edges


def _compute_evidence(attention: np.ndarray) -> np.ndarray:
    """Mean over heads [rows, frames] of attention standardised over rows and smoothed over
    frames."""
    from scipy.ndimage import median_filter

    spread = attention.std(1, keepdims=True)
    standard = (attention - attention.mean(1, keepdims=True)) / np.maximum(spread, 1e-8)
    evidence: np.ndarray = median_filter(
        standard, size=(1, 1, _MEDIAN_FILTER_FRAMES), mode="nearest"
    ).mean(0)
    return evidence


def find_loud_frames(audio: np.ndarray, n_frames: int) -> np.ndarray:
    """Whether each frame [frames] is louder than the clip's silence."""
    power = np.array(
        [
            np.mean(frame_samples.astype(np.float64) ** 2)
            for frame_samples in np.array_split(audio, n_frames)
        ]
    )
    level = 10 * np.log10(power + 1e-10)
    quiet, loud = np.percentile(level, [8, 95])
    is_loud: np.ndarray = level > quiet + 0.35 * (loud - quiet)
    return is_loud


def trim_silence(start: int, stop: int, sound: np.ndarray) -> tuple[int, int]:
    """Return the range of frames without the quiet ones at its edges."""
    loud = np.flatnonzero(sound[start:stop])
    return (start + int(loud[0]), start + int(loud[-1]) + 1) if len(loud) else (start, stop)


def find_row_starts(evidence: np.ndarray) -> np.ndarray:
    """Cut the frames into one stretch for each row, in order, so that the evidence in them is
    greatest.

    Parameters
    ----------
    evidence : array [rows, frames]

    Returns
    -------
    int array [rows]
        First frame of each row's stretch; each has at least one frame.

    Examples
    --------
    >>> find_row_starts(np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])).tolist()
    [0, 2]
    """
    n_rows, n_frames = evidence.shape
    best = np.full(n_rows, -np.inf)
    best[0] = evidence[0, 0]
    moved = np.zeros((n_frames, n_rows), bool)
    for frame in range(1, n_frames):
        from_before = np.append(-np.inf, best[:-1])
        moved[frame] = from_before > best
        best = np.maximum(best, from_before) + evidence[:, frame]
    starts, row = np.zeros(n_rows, int), n_rows - 1
    for frame in range(n_frames - 1, 0, -1):
        if moved[frame, row]:
            starts[row] = frame
            row -= 1
    return starts
