"""Prompt of a question: with the sound of an audio language model, or as initial prompt of a Whisper.

In: a model, a clip, a text. Out: the model's inputs up to where the answer begins. Errors say what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.audio_prompt import (
    find_audio_token_id,
    find_prompt_words,
    prepare_prompt,
    write_prompt,
)
from ...adapters.generation.decoder_text import decoder_lengths
from ...adapters.loading.checkpoints import first_line
from ...errors import InputError, SpeechmixError

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

_PREVIOUS_TOKEN = "<|startofprev|>"


def check_takes_prompt(model: Model) -> None:
    """Raise unless a model can be asked a question about a recording.

    Raises
    ------
    InputError
        If it is no audio language model or Whisper, or was loaded without its processor or head.
    """
    kind, name = model.capabilities, model.name
    has_audio_tokens = find_audio_token_id(model.config) is not None
    if has_audio_tokens and not model.takes_chat:
        raise InputError(
            f"{name} was loaded without its processor, which writes the prompt around the sound: load it with "
            "processor=transformers.AutoProcessor.from_pretrained(...), which also says what is wrong with its files"
        )
    takes_prompt = has_audio_tokens or (kind.decoding == "cross-attention" and model.hears)
    if not takes_prompt or not model.has_head or model.tokenizer is None:
        raise InputError(
            f"{name}: listening needs an audio language model with its processor, or a Whisper with its tokenizer and "
            f"head; this is a {model.family.name} model{model.missing_processor}"
        )


def prompt_inputs(model: Model, clip: Clip) -> dict[str, Tensor]:
    """Return the inputs of an audio language model's prompt with a sound, a batch of one.

    Where the frames of the encoder lie in time need not be known.

    Raises
    ------
    InputError
        If the processor does not take the prompt or the sound.
    """
    try:
        if _has_frame_grid(model, clip):
            return prepare_prompt(model, clip)
        return write_prompt(model, clip)
    except SpeechmixError:
        raise
    except Exception as error:  # a processor raises what it likes
        raise InputError(
            f"{clip.name}: {type(model.processor).__name__} cannot write the prompt {model.prompt.text[:60]!r} with its "
            f"sound ({type(error).__name__}: {first_line(error)}): load the model with the processor of its checkpoint, "
            "or change the prompt"
        ) from error


def _has_frame_grid(model: Model, clip: Clip) -> bool:
    try:
        model.grid(len(clip.audio(model.sample_rate)))
    except SpeechmixError:
        return False
    return model.converses


def prompt_positions(model: Model, clip: Clip, ids: Sequence[int]) -> list[int]:
    """Return positions of the prompt's tokens among those of its conversation; none where they cannot be told apart.

    Where a letter is spread over several tokens, these are the tokens that change with the prompt.
    """
    words = find_prompt_words(model, ids)
    text = model.prompt.text
    if words or not text.strip() or str(getattr(model.processor, "audio_token", "")) in text:
        return [position for _, positions in words for position in positions]
    other = next(
        letter for letter in "xyz" if not text.startswith(letter) and not text.endswith(letter)
    )
    other_ids = prompt_inputs(model.with_prompt(other), clip)["input_ids"][0].tolist()
    start = _count_equal(ids, other_ids)
    rest = min(len(ids), len(other_ids)) - start
    stop = len(ids) - min(rest, _count_equal(ids[::-1], other_ids[::-1]))
    return [i for i in range(start, stop) if ids[i] != find_audio_token_id(model.config)]


def _count_equal(ids: Sequence[int], other_ids: Sequence[int]) -> int:
    """How many leading ids are the same."""
    pairs = zip(ids, other_ids, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def initial_prompt_ids(model: Model, name: str, prompt: str, start_ids: Sequence[int]) -> Tensor:
    """Return ids [1, T] of a Whisper's initial prompt and its decoder prefix; without a prompt the prefix alone.

    Raises
    ------
    InputError
        If the tokenizer has no token for it, or the prompt takes more than half of the decoder's positions, as in
        Whisper's training.
    """
    if not prompt:
        return torch.tensor([list(start_ids)])
    vocabulary = model.tokenizer.get_vocab()
    if _PREVIOUS_TOKEN not in vocabulary:
        raise InputError(
            f"{name}: {model.name} has no token {_PREVIOUS_TOKEN} to take an initial prompt: leave the prompt empty"
        )
    tokens = model.tokenizer(f" {prompt}", add_special_tokens=False)["input_ids"]
    most = min(decoder_lengths(model), default=2 * len(tokens) + 2) // 2 - 1
    if len(tokens) > most:
        raise InputError(
            f"{name}: the initial prompt is {len(tokens)} tokens of {model.name}, which takes {most}: shorten it"
        )
    return torch.tensor([[vocabulary[_PREVIOUS_TOKEN], *tokens, *start_ids]])
