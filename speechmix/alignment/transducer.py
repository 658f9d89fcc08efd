"""Alignment by a transducer (RNN-T, TDT): the likeliest path of a text through its lattice.

In: a loaded transducer, audio, transcript. Out: an `Alignment`. A word lasts from the frame where
its first token is emitted to the last frame of its last token. A TDT predicts how long a token is;
a token of an RNN-T is one frame, so that a word's end is early.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..adapters.generation.token_words import align_tokens_to_words
from ..adapters.generation.transducer_emissions import align_emissions, emission_probabilities
from ..adapters.generation.transducer_path import project_sound
from ..adapters.model import Model
from ..errors import AlignmentError, InputError
from ..inputs.audio.frame_grid import FrameGrid
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from .alignment_result import (
    MIN_TRUSTED_WORD_SCORE,
    Alignment,
    aligned_words,
    list_unsure_words,
)

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
