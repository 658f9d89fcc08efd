"""CTC forced alignment: the best path of a transcript's letters through the letter probabilities of
a CTC model.

In: a loaded model with a CTC head, audio, transcript. Out: an `Alignment`. The path is that of
`adapters.generation.ctc_paths`; the frames' times come from the front end's own strides. Letters that the
vocabulary lacks are written without their accents or left out; a word that has no letter left ("80"
for a model without digits) is placed by a wildcard that fits any sound, and said so.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import torch

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.generation.ctc_paths import best_ctc_path
from ..adapters.model import Model
from ..errors import AlignmentError
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from .alignment_result import Alignment, aligned_words, remove_signs

# Mean letter probability under which a clip's alignment is not to be believed (a random model
# reaches about 1/letters).
_MIN_TRUSTED_SCORE = 0.2
# Nats a letter by which what the model would write by itself may be likelier than the text. The
# bundled model, on its own clips: at most 0.5; with another clip's text: 12 and more; on real
# recordings of a voice that it does not know: 2.3 to 6.9.
_MAX_LOST_NATS = 1.5


def has_ctc_head(model: Model) -> bool:
    """True if the model ends in letter probabilities and has the tokenizer that names them."""
    return type(model.module).__name__.endswith("ForCTC") and model.tokenizer is not None


def align_by_ctc(model: Model, audio: np.ndarray, text: str) -> Alignment:
    """Place the words of a transcript by CTC forced alignment.

    Parameters
    ----------
    model : Model
        With a CTC head, its feature extractor and its tokenizer (`speechmix.load` of a folder or
        hub id has them).
    audio : ndarray [samples]
        Mono, at ``model.sample_rate``.
    text : str

    Returns
    -------
    Alignment
        A word's score is the mean probability of its letters on the path; the clip's, that of all
        letters.

    Raises
    ------
    AlignmentError
        If the model has no CTC head, the text no words, or more letters than the audio has frames.
    """
    if not has_ctc_head(model) or model.feature_extractor is None:
        raise AlignmentError(
            f"{model.name} cannot align: expected a model with a CTC head, its tokenizer and "
            "feature extractor, found "
            f"{type(model.module).__name__}. Load a CTC model, or align by synthesis{model.missing_processor}"
        )
    words = aligned_words(text)
    if not words:
        raise AlignmentError(f"nothing to align: the text {text!r} has no words")
    log_probs = _letter_log_probs(model, audio)
    # A tokenizer may hold more than the model can say: Wav2Vec2CTCTokenizer adds "|" where the
    # vocabulary lacks it.
    vocabulary = {
        token: i for token, i in model.tokenizer.get_vocab().items() if i < log_probs.shape[1]
    }
    delimiter = vocabulary.get(getattr(model.tokenizer, "word_delimiter_token", None))
    if hasattr(model.tokenizer, "word_delimiter_token"):
        letters, left_out = _spell_words(remove_signs(words), vocabulary)
    else:  # of word pieces, as Parakeet's
        letters, left_out = _split_into_pieces(model, words), []
    path, scores = _best_path(
        log_probs, letters, blank=model.config.pad_token_id, delimiter=delimiter
    )
    grid = model.grid(len(audio))
    placed = []
    for word, frames in zip(words, path, strict=True):
        onset, offset = grid.frame_times(frames[0], frames[-1] + 1)
        score = float(np.exp(scores[frames]).mean())
        placed.append(Word(word, onset, min(offset, grid.duration), round(score, 4)))
    overall = float(np.exp(scores[[frame for frames in path for frame in frames]]).mean())
    by_wildcard = [
        frame for frames, ids in zip(path, letters, strict=True) if not ids for frame in frames
    ]
    lost = np.delete(log_probs.max(axis=1) - scores, by_wildcard).sum() / max(
        1, sum(map(len, letters))
    )
    doubts = _list_doubts(words, letters, left_out, overall, float(lost))
    return Alignment(tuple(placed), "ctc", round(overall, 4), tuple(doubts))


def _letter_log_probs(model: Model, audio: np.ndarray) -> np.ndarray:
    clip = Clip.from_array(audio, model.sample_rate)
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    with model.in_use(model.state_dtype), torch.no_grad():
        inputs = inputs_to_device(inputs, model.device, model.state_dtype)
        logits = model.run_with_head(inputs).logits[0]
    log_probs: np.ndarray = logits.float().log_softmax(dim=-1).cpu().numpy()
    return log_probs


def _split_into_pieces(model: Model, words: Sequence[str]) -> list[list[int]]:
    """Ids of the pieces of each word; empty if its tokenizer has none for it."""
    unknown = model.tokenizer.unk_token_id
    pieces = [model.tokenizer(word, add_special_tokens=False).input_ids for word in words]
    return [[id_ for id_ in ids if id_ != unknown] for ids in pieces]


def _spell_words(
    words: Sequence[str], vocabulary: dict[str, int]
) -> tuple[list[list[int]], list[str]]:
    """Letter ids of each word (empty if none is known), and the letters that had to be left out."""
    letter_ids = {letter: index for letter, index in vocabulary.items() if len(letter) == 1}
    spelled, left_out = [], []
    for word in words:
        ids, unknown = [], []
        for letter in unicodedata.normalize("NFC", word).replace("’", "'"):
            spelling = _letter_id(letter, letter_ids)
            if spelling is not None:
                ids += spelling
            elif letter.isalnum():
                unknown.append(letter)
        spelled.append(ids)
        left_out += unknown if ids else []  # a word without any known letter is named itself
    return spelled, left_out


def _letter_id(letter: str, letter_ids: dict[str, int]) -> list[int] | None:
    """Ids of a letter as it is, in the other case, or without its accent; None if the vocabulary
    lacks it."""
    bare = unicodedata.normalize("NFD", letter)[0]
    for spelling in (
        letter,
        letter.lower(),
        letter.upper(),
        bare,
        bare.lower(),
        bare.upper(),
        *_LIGATURES.get(letter, ()),
    ):
        if spelling and all(part in letter_ids for part in spelling):
            return [letter_ids[part] for part in spelling]
    return None


_LIGATURES = {
    "œ": ("oe", "OE"),
    "æ": ("ae", "AE"),
    "Œ": ("oe", "OE"),
    "Æ": ("ae", "AE"),
    "ß": ("ss", "SS"),
}


def _best_path(
    log_probs: np.ndarray, letters: list[list[int]], *, blank: int, delimiter: int | None
) -> tuple[list[list[int]], np.ndarray]:
    """Frames of each word on the best path, and the log probability of every frame's label on
    it."""
    wildcard = log_probs.shape[1]
    any_sound = np.delete(log_probs, blank, axis=1).max(axis=1, keepdims=True)
    emission = torch.from_numpy(np.concatenate([log_probs, any_sound], axis=1))
    labels: list[int] = []
    owner: list[int | None] = []  # which word each label belongs to
    for index, ids in enumerate(letters):
        if index and delimiter is not None:
            labels.append(delimiter)
            owner.append(None)
        labels += ids or [wildcard]
        owner += [index] * max(1, len(ids))
    of_labels, scores = best_ctc_path(emission, labels, blank=blank)
    frames: list[list[int]] = [[] for _ in letters]
    for word, label_frames in zip(owner, of_labels, strict=True):
        if word is not None:
            frames[word] += label_frames
    return frames, scores


def _list_doubts(
    words: Sequence[str],
    letters: Sequence[Sequence[int]],
    left_out: Sequence[str],
    overall: float,
    lost: float,
) -> list[str]:
    doubts = []
    unplaced = [word for word, ids in zip(words, letters, strict=True) if not ids]
    if unplaced:
        doubts.append(
            f"no letter of {', '.join(map(repr, unplaced))} is in the vocabulary: placed by what "
            "is left over"
        )
    if left_out:
        doubts.append(f"the vocabulary lacks {' '.join(sorted(set(left_out)))}: left out")
    if overall < _MIN_TRUSTED_SCORE:
        doubts.append(
            f"the letters fit badly (mean probability {overall:.2f}): wrong text, or a model that "
            "cannot hear it"
        )
    if lost > _MAX_LOST_NATS:
        doubts.append(
            f"what the model would write by itself is {lost:.1f} nats a letter likelier than this "
            "text (expected at most "
            f"{_MAX_LOST_NATS}): wrong text, or a voice or a sound that the model does not know"
        )
    return doubts
