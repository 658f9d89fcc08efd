"""Word times from Whisper's cross-attention: which stretch of audio the decoder looks at while it
writes each token.

In: a Whisper model, audio, transcript. Out: an `Alignment`. The transcript is forced through the
decoder; the attention of every head, over the frames of the audio alone (the window's padding is
cut off), is standardised over tokens and smoothed over time, the heads that run through the audio
most steadily are averaged, and dynamic time warping gives each row its stretch. The row that holds
token p predicts token p + 1: a token ends where the row that predicts it ends, and prefix tokens
have no row of their own. After Radford et al. 2023 (openai/whisper, files/timing.py).

Give each row of an attention matrix its stretch of frames, by dynamic time warping.

In: attention of some heads, and which frames are loud. Out: edges of the stretches, from one row to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..adapters.model import Model
from ..errors import AlignmentError
from ..inputs.audio.frame_grid import FrameGrid
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from .alignment_result import (
    ATTENTION_NOT_CALIBRATED,
    Alignment,
    aligned_words,
    list_unsure_words,
)

_MEDIAN_FILTER_FRAMES = 7


def place_rows(attention: np.ndarray, is_loud: np.ndarray) -> np.ndarray:
    """Give each row its stretch of frames by the attention [heads, rows, frames] of some heads.

    The frames are those of the sound alone (at least one for each row); `is_loud` [frames] is from
    `find_loud_frames`. Returns the edges [rows + 1] of the stretches, from the first frame of the
    first to the end of the last.
    """
    return place_by_evidence(head_evidence(attention).mean(0), is_loud)


def place_by_evidence(evidence: np.ndarray, is_loud: np.ndarray) -> np.ndarray:
    """Place rows as `place_rows` does, by the mean `head_evidence` [..., rows, frames] of some
    heads, or of many sets at once; edges [..., rows + 1]."""
    n_rows, n_frames = evidence.shape[-2:]
    first, last = map(int, trim_silence(0, n_frames, is_loud))
    if last - first < n_rows:
        first, last = 0, n_frames
    starts = first + find_row_starts(evidence[..., first:last])
    return np.concatenate([starts, np.full((*starts.shape[:-1], 1), last)], axis=-1)


def head_evidence(attention: np.ndarray) -> np.ndarray:
    """Standardise attention [heads, rows, frames] over rows, and smooth it over frames."""
    from scipy.ndimage import median_filter

    spread = attention.std(1, keepdims=True)
    standard = (attention - attention.mean(1, keepdims=True)) / np.maximum(spread, 1e-8)
    evidence: np.ndarray = median_filter(
        standard, size=(1, 1, _MEDIAN_FILTER_FRAMES), mode="nearest"
    )
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


def trim_silence(
    start: int | np.ndarray, stop: int | np.ndarray, is_loud: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ranges of frames without the quiet ones at their edges; a quiet range stays."""
    loud = np.flatnonzero(is_loud)
    before, until = np.searchsorted(loud, start), np.searchsorted(loud, stop)
    if not len(loud):
        return np.asarray(start), np.asarray(stop)
    first, last = loud[np.minimum(before, len(loud) - 1)], loud[until - 1]
    return np.where(before < until, first, start), np.where(before < until, last + 1, stop)


def find_row_starts(evidence: np.ndarray) -> np.ndarray:
    """Cut the frames into one stretch for each row, in order, so that the evidence [..., rows,
    frames] in them is greatest.

    Returns the first frame of each row's stretch, [..., rows]; each has at least one frame.
    """
    n_rows, n_frames = evidence.shape[-2:]
    cuts = evidence.reshape(-1, n_rows, n_frames)
    best = np.full((len(cuts), n_rows), -np.inf)
    best[:, 0] = cuts[:, 0, 0]
    moved = np.zeros((n_frames, len(cuts), n_rows), bool)
    from_before = np.full_like(best, -np.inf)
    for frame in range(1, n_frames):
        from_before[:, 1:] = best[:, :-1]
        moved[frame] = from_before > best
        best = np.maximum(best, from_before) + cuts[:, :, frame]
    starts = np.zeros((len(cuts), n_rows), int)
    cut_indices, row = np.arange(len(cuts)), np.full(len(cuts), n_rows - 1)
    for frame in range(n_frames - 1, 0, -1):
        has_moved = moved[frame, cut_indices, row]
        starts[cut_indices[has_moved], row[has_moved]] = frame
        row = row - has_moved
    return starts.reshape(evidence.shape[:-1])


N_DEFAULT_HEADS = 6  # that are averaged if the model does not name its alignment heads
_MIN_TRUSTED_SCORE = 0.2  # share of the attention that falls on the word's own stretch
# Whisper tiny.en, 8 English clips (6 commands, 2 of labelled_en):
# the 39 words that are said score .27 to .82, 24 of 40 that are not said
# below .2. The score does not tell borders that are off: at 100 ms and more it is .28 to .79.
_MIN_HEARD_SCORE = 0.2
_MAX_UNCOVERED = 0.35  # share of the sound outside the words: with the whole text at most .25, with half of it often more


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
            f"{model.missing_processor}"
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
    attention = read_text_attention(model, clip)
    weights, sound = attention.weights, attention.is_loud
    heads = choose_heads(model, weights)
    mean, edges = weights[heads].mean(0), place_rows(weights[heads], sound)
    placed, covered = [], np.zeros(len(sound), dtype=bool)
    for word, (first, last) in zip(words, word_rows(attention.owners, words), strict=True):
        start, stop = edges[first], edges[last + 1]
        rows = [row for row in range(first, last + 1) if attention.owners[row] is not None]
        score = float(mean[rows, start:stop].sum(1).mean())
        first_frame, stop_frame = map(int, trim_silence(start, stop, sound))
        covered[first_frame:stop_frame] = True
        onset, offset = attention.grid.frame_times(first_frame, stop_frame)
        placed.append(
            Word(word, min(onset, seconds), min(offset, seconds), round(min(score, 1.0), 4))
        )
    overall = float(
        np.average([w.score for w in placed], weights=[w.end - w.start + 1e-3 for w in placed])
    )
    uncovered = float((sound & ~covered).sum() / max(1, sound.sum()))
    doubts = list_attention_doubts(placed, overall, uncovered)
    return Alignment(tuple(placed), "whisper", round(overall, 4), doubts)


def list_attention_doubts(words: Sequence[Word], score: float, uncovered: float) -> tuple[str, ...]:
    """Sentences that say why the times cannot be trusted, by the score of the text and the share of the sound outside
    the words. The first concerns all clips."""
    doubts = [ATTENTION_NOT_CALIBRATED]
    if unheard := list_unsure_words(words, _MIN_HEARD_SCORE):
        doubts.append(
            f"Words that may not be said (share of attention below {_MIN_HEARD_SCORE}): {unheard}."
        )
    if uncovered > _MAX_UNCOVERED:
        doubts.append(f"{100 * uncovered:.0f} % of the sound belongs to no word of the text.")
    if score < _MIN_TRUSTED_SCORE:
        doubts.append(f"Attention is spread over the audio (score {score:.2f}).")
    return tuple(doubts)


@dataclass(frozen=True, eq=False)
class TextAttention:
    """Cross-attention of a decoder while it is fed the text of a clip.

    `weights` [L H, rows, frames] are over the frames of the audio alone; rows sum to one. `owners`
    are indices of the word whose token each row predicts, or None. `is_loud` [frames] is from
    `find_loud_frames`; `first_position` is the position of the first row in the decoder.
    """

    weights: np.ndarray
    owners: Sequence[int | None]
    grid: FrameGrid
    is_loud: np.ndarray
    first_position: int


def read_text_attention(model: Model, clip: Clip) -> TextAttention:
    """Feed a clip's text to the decoder of any speech model with cross-attention, and return the
    weights.

    A text with more tokens than the audio has frames is an AlignmentError; one that cannot be fed,
    or a model that is set to translate, an InputError.
    """
    from ..adapters.generation.decoder_text import decoder_tokens, require_transcription
    from ..mixing.passes.mix import mix_one

    require_transcription(model, "alignment")
    tokens = decoder_tokens(model, clip)
    first = tokens.n_prefix - 1  # the row that predicts the first token of the text
    maps = mix_one(model, clip, measures="attention", stacks="cross", units="frame", heads="each")
    scores = maps["attention", "cross"].scores
    audio = clip.audio(model.sample_rate)
    grid = model.grid(len(audio))
    n_frames = max(1, grid.frames_between(0.0, clip.duration)[1])
    scores = scores[:, :, first:, :n_frames].reshape(-1, scores.shape[2] - first, n_frames)
    if scores.shape[1] > n_frames:
        raise AlignmentError(
            f"the text has {scores.shape[1] - 1} tokens, but the audio only {n_frames} frames"
        )
    return TextAttention(
        scores / np.maximum(scores.sum(-1, keepdims=True), 1e-12),
        tokens.words[first + 1 :],
        grid,
        find_loud_frames(audio, n_frames),
        first,
    )


def word_rows(owners: Sequence[int | None], words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and the last row of each word; an AlignmentError if a word has no token of
    its own.

    Examples
    --------
    >>> word_rows([None, 0, 0, None, 1], ["les", "livres"])
    [(1, 2), (4, 4)]
    """
    first_and_last = []
    for index, word in enumerate(words):
        rows = [row for row, owner in enumerate(owners) if owner == index]
        if not rows:
            raise AlignmentError(f"the word {word!r} has no token of its own in this model")
        first_and_last.append((rows[0], rows[-1]))
    return first_and_last


def named_heads(model: Model) -> list[tuple[int, int]] | None:
    """Return the (layer, head) pairs that a model names for alignment; None if it names none."""
    named = getattr(getattr(model.module, "generation_config", None), "alignment_heads", None)
    return [(layer, head) for layer, head in named] if named else None


def choose_heads(model: Model, attention: np.ndarray) -> list[int]:
    """Return the indices, among all [L H], of heads that tell times.

    Heads the model names for alignment. Else, of the heads whose attention runs through the audio most steadily, the
    half that runs ahead: the others follow the word that was just written."""
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
    steadiest = np.argsort(-(np.nan_to_num(steady, nan=-1) + sharp), kind="stable")
    candidates = steadiest[: 2 * N_DEFAULT_HEADS]
    ahead = np.argsort(-centre[candidates].mean(axis=1), kind="stable")[:N_DEFAULT_HEADS]
    heads: list[int] = candidates[ahead].tolist()
    return heads
