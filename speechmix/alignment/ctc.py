"""CTC forced alignment: the best path of a transcript's letters through the letter probabilities of
a CTC model.

In: a loaded model with a CTC head, audio, transcript. Out: an `Alignment`. The path is that of
`adapters.generation.emission_paths`; the frames' times come from the front end's own strides. Letters that the
vocabulary lacks are written without their accents; others ("80" for a model without digits) are placed by a
wildcard that fits any sound, which lowers the score of their word, and said so.

Alignment by a transducer (RNN-T, TDT): the likeliest path of a text through its lattice.

In: a loaded transducer, audio, transcript. Out: an `Alignment`. A word lasts from the frame where
its first token is emitted to the last frame of its last token. A TDT predicts how long a token is;
a token of an RNN-T is one frame, so that a word's end is early.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import torch

from ..adapters.capture.device_copy import inputs_to_device
from ..adapters.generation.decoder_text import align_tokens_to_words
from ..adapters.generation.emission_paths import (
    align_emissions,
    best_ctc_path,
    emission_probabilities,
    project_sound,
)
from ..adapters.model import Model
from ..errors import AlignmentError, InputError
from ..inputs.audio.frame_grid import FrameGrid
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from .alignment_result import (
    MIN_TRUSTED_WORD_SCORE,
    Alignment,
    aligned_words,
    is_pronounced,
    list_unsure_words,
    remove_signs,
)

# Mean letter probability under which a clip's alignment is not to be believed (a random model
# reaches about 1/letters).
_MIN_TRUSTED_SCORE = 0.2
# Of a word with a wildcard, which may stand for more than all its letters ("m8" for *maisons*).
_MAX_WILDCARD_SCORE = 0.5
# Nats a letter by which what the model would write by itself may be likelier than the text. The
# bundled model, on its own clips: at most 0.5; with another clip's text: 12 and more; on real
# recordings of a voice that it does not know: 2.3 to 6.9.
_MAX_LOST_NATS = 1.5


def has_ctc_head(model: Model) -> bool:
    """True if the model ends in letter probabilities and has the tokenizer that names them."""
    return type(model.module).__name__.endswith("ForCTC") and model.tokenizer is not None


def align_by_ctc(model: Model, audio: np.ndarray, text: str) -> Alignment:
    """Place the words of a transcript by CTC forced alignment.

    The model has a CTC head, its feature extractor and its tokenizer; the audio is mono, at
    ``model.sample_rate``. A word's score is the mean probability of its letters on the path, with 0
    for letters that the model does not know, and at most 0.5 then; the clip's, that of all letters
    that it knows. An AlignmentError says that the model has no CTC head, or that the text has no
    words or more letters than the audio has frames; audio shorter than a frame is an InputError.
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
    grid = model.grid(len(audio))  # refuses audio that is shorter than a frame
    log_probs = _letter_log_probs(model, audio)
    # A tokenizer may hold more than the model can say: Wav2Vec2CTCTokenizer adds "|" where the
    # vocabulary lacks it.
    vocabulary = {
        token: i for token, i in model.tokenizer.get_vocab().items() if i < log_probs.shape[1]
    }
    delimiter = vocabulary.get(getattr(model.tokenizer, "word_delimiter_token", None))
    if hasattr(model.tokenizer, "word_delimiter_token"):
        letters, unknown = _spell_words(remove_signs(words), vocabulary)
    else:  # of word pieces, as Parakeet's
        letters, unknown = _split_into_pieces(model, words), []
    path, scores, guessed = _best_path(
        log_probs, letters, blank=model.config.pad_token_id, delimiter=delimiter
    )
    probabilities = np.exp(scores)
    probabilities[guessed] = 0
    placed = []
    for word, ids, frames in zip(words, letters, path, strict=True):
        onset, offset = grid.frame_times(frames[0], frames[-1] + 1)
        score = min(float(probabilities[frames].mean()), _MAX_WILDCARD_SCORE if None in ids else 1)
        placed.append(Word(word, onset, min(offset, grid.duration), round(score, 4)))
    known_frames = np.setdiff1d(np.concatenate(path), guessed)
    overall = float(probabilities[known_frames].mean()) if len(known_frames) else 0.0
    known_count = sum(id_ is not None for ids in letters for id_ in ids)
    lost = np.delete(log_probs.max(axis=1) - scores, guessed).sum() / max(1, known_count)
    doubts = _list_doubts(placed, letters, unknown, overall, float(lost))
    return Alignment(tuple(placed), "ctc", round(overall, 4), tuple(doubts))


def _letter_log_probs(model: Model, audio: np.ndarray) -> np.ndarray:
    clip = Clip.from_array(audio, model.sample_rate)
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    with model.in_use(model.state_dtype), torch.no_grad():
        inputs = inputs_to_device(inputs, model.device, model.state_dtype)
        logits = model.run_with_head(inputs).logits[0]
    log_probs: np.ndarray = logits.float().log_softmax(dim=-1).cpu().numpy()
    return log_probs


# Ids of the letters of a word; None is a wildcard, for one or several that the model does not know.
_Letters = list[int | None]


def _split_into_pieces(model: Model, words: Sequence[str]) -> list[_Letters]:
    """Ids of the pieces of each word, with a wildcard where its tokenizer has none."""
    unknown = model.tokenizer.unk_token_id
    pieces = [model.tokenizer(word, add_special_tokens=False).input_ids for word in words]
    return [
        _merge_wildcards([None if id_ == unknown else id_ for id_ in ids] or [None])
        for ids in pieces
    ]


def _spell_words(
    words: Sequence[str], vocabulary: dict[str, int]
) -> tuple[list[_Letters], list[str]]:
    """Letter ids of each word, and the letters that a wildcard stands for."""
    letter_ids = {letter: index for letter, index in vocabulary.items() if len(letter) == 1}
    spelled, unknown = [], []
    for word in words:
        ids: _Letters = []
        for letter in unicodedata.normalize("NFC", word).replace("’", "'"):
            spelling = _letter_id(letter, letter_ids)
            if spelling is not None:
                ids += spelling
            elif is_pronounced(letter):
                ids.append(None)
                unknown.append(letter)
        spelled.append(_merge_wildcards(ids or [None]))
    return spelled, unknown


def _merge_wildcards(ids: _Letters) -> _Letters:
    """One wildcard for several in a row."""
    return [
        id_ for index, id_ in enumerate(ids) if id_ is not None or ids[index - 1 : index] != [None]
    ]


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
    log_probs: np.ndarray, letters: list[_Letters], *, blank: int, delimiter: int | None
) -> tuple[list[list[int]], np.ndarray, list[int]]:
    """Frames of each word on the best path, the log probability of every frame's label on it, and the
    frames of wildcards."""
    wildcard = log_probs.shape[1]
    any_sound = np.logaddexp.reduce(np.delete(log_probs, blank, axis=1), axis=1, keepdims=True)
    emission = torch.from_numpy(np.concatenate([log_probs, any_sound], axis=1))
    labels: list[int] = []
    owner: list[int | None] = []  # which word each label belongs to
    for index, ids in enumerate(letters):
        if index and delimiter is not None:
            labels.append(delimiter)
            owner.append(None)
        labels += [wildcard if id_ is None else id_ for id_ in ids]
        owner += [index] * len(ids)
    of_labels, scores = best_ctc_path(emission, labels, blank=blank)
    frames: list[list[int]] = [[] for _ in letters]
    for word, label_frames in zip(owner, of_labels, strict=True):
        if word is not None:
            frames[word] += label_frames
    guessed = [
        frame
        for label, label_frames in zip(labels, of_labels, strict=True)
        if label == wildcard
        for frame in label_frames
    ]
    return frames, scores, guessed


def _list_doubts(
    words: Sequence[Word],
    letters: Sequence[_Letters],
    unknown: Sequence[str],
    overall: float,
    lost: float,
) -> list[str]:
    doubts = []
    guessed = [word.text for word, ids in zip(words, letters, strict=True) if None in ids]
    if guessed:
        named = f"lacks {' '.join(sorted(set(unknown)))}" if unknown else "lacks letters"
        doubts.append(
            f"the vocabulary {named} of {', '.join(map(repr, guessed))}: placed by what is left over"
        )
    unsure = list_unsure_words(
        word for word, ids in zip(words, letters, strict=True) if None not in ids
    )
    if unsure:
        doubts.append(
            f"words whose letters have a mean probability below {MIN_TRUSTED_WORD_SCORE} (not calibrated): "
            f"{unsure}"
        )
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


# Mean token probability under which a clip's alignment is not to be believed, as of CTC's letters.
_MIN_TRUSTED_PROBABILITY = 0.2


def align_by_transducer(model: Model, audio: np.ndarray, text: str) -> Alignment:
    """Place the words of a transcript by the path of a transducer, which has its feature extractor
    and its tokenizer.

    The audio is mono, at ``model.sample_rate``. A word's score is the mean probability of its
    tokens where they are emitted; the clip's, that of all tokens. An AlignmentError says that the
    model is no transducer, or that the text has no words or more tokens than a path can have; audio
    shorter than a frame is an InputError.
    """
    if not (model.capabilities.is_transducer and model.can_transcribe):
        raise AlignmentError(
            f"{model.name} cannot align by method='transducer': expected an RNN-T or TDT with its "
            f"processor, found {type(model.module).__name__}"
        )
    words = aligned_words(text)
    if not words:
        raise AlignmentError(f"nothing to align: the text {text!r} has no words")
    grid = model.grid(len(audio))  # refuses audio that is shorter than a frame
    placeholders = [Word(word, index, index + 1) for index, word in enumerate(words)]
    ids, _, owners = align_tokens_to_words(model.tokenizer, " ".join(words), placeholders)
    clip = Clip.from_array(audio, model.sample_rate, name="clip")
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    with model.in_use(model.state_dtype), torch.no_grad():
        sound = project_sound(model, inputs)
        try:
            emissions = align_emissions(model.module, sound, ids)
        except InputError as error:
            raise AlignmentError(str(error)) from error
        probabilities = emission_probabilities(model.module, sound, emissions)
    word_indices = np.array([-1 if owner is None else owner for owner in owners])
    by_word = [np.flatnonzero(word_indices == index) for index in range(len(words))]
    if missing := [word for word, tokens in zip(words, by_word, strict=True) if not len(tokens)]:
        raise AlignmentError(f"the tokenizer of {model.name} has no token of {missing[0]!r}")
    starts = [emissions[tokens[0]].start for tokens in by_word]
    onsets = [_share_frame(grid, starts, index) for index in range(len(words))]
    aligned = []
    for index, (word, tokens) in enumerate(zip(words, by_word, strict=True)):
        _, end = grid.frame_times(starts[index], emissions[tokens[-1]].stop)
        latest = onsets[index + 1] if index + 1 < len(words) else grid.duration
        score = round(float(probabilities[tokens].mean()), 4)
        aligned.append(Word(word, onsets[index], min(end, latest), score))
    overall, doubts = float(probabilities.mean()), []
    if model.tokenizer.unk_token_id in ids:
        doubts.append("the tokenizer has no token for a part of the text")
    if unsure := list_unsure_words(aligned):
        doubts.append(
            f"words whose tokens have a mean probability below {MIN_TRUSTED_WORD_SCORE} (not calibrated): "
            f"{unsure}"
        )
    if overall < _MIN_TRUSTED_PROBABILITY:
        doubts.append(
            f"the tokens fit badly (mean probability {overall:.2f}): wrong text, or a model that "
            "cannot hear it"
        )
    return Alignment(tuple(aligned), "transducer", round(overall, 4), tuple(doubts))


def _share_frame(grid: FrameGrid, starts: Sequence[int], index: int) -> float:
    """Second at which a word begins; words that begin in one frame share it."""
    start, end = grid.frame_times(starts[index], starts[index] + 1)
    rank = index - starts.index(starts[index])
    return float(start + (end - start) * rank / starts.count(starts[index]))
