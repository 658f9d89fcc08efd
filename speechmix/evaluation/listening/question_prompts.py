"""Prompt of a question: with the sound of an audio language model, or as initial prompt of a Whisper.

In: a model, a clip, a text. Out: the model's inputs up to where the answer begins. Errors say what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.capture.memory_check import check_fits
from ...adapters.generation.audio_prompt import prepare_prompt, write_chat_inputs
from ...adapters.generation.audio_token_positions import locate_audio_tokens
from ...adapters.generation.decoder_text import decoder_lengths
from ...adapters.generation.prompt_words import find_prompt_words
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
        If it is no audio language model or Whisper, was loaded without its processor or head, or its decoder has no
        known positions of the sound.
    """
    kind = model.capabilities
    name = model.name
    if kind.has_audio_tokens and model.processor is None:
        raise InputError(
            f"{name} was loaded without its processor, which writes the prompt around the sound: load it with "
            "processor=transformers.AutoProcessor.from_pretrained(...)"
        )
    takes_prompt = kind.has_audio_tokens or (
        kind.decoding == "cross-attention" and kind.input_kind == "audio"
    )
    if not takes_prompt and kind.decoding == "causal" and _reads_sound(model):
        raise InputError(
            f"{name}: where the sound is among the tokens of its decoder is not known, so no question can be asked: "
            "take a model that docs/howto/listening.md lists"
        )
    if not takes_prompt or not model.has_head or model.tokenizer is None:
        raise InputError(
            f"{name}: listening needs an audio language model with its processor, or a Whisper with its tokenizer and "
            f"head; this is a {model.family.name} model"
        )


def _reads_sound(model: Model) -> bool:
    """Whether a decoder without known positions of sound is that of an audio language model."""
    fields = (
        "audio_token_id",
        "audio_config",
        "audio_processor",
        "acoustic_tokenizer_encoder_config",
    )
    has_field = any(getattr(model.config, field, None) is not None for field in fields)
    return has_field or model.capabilities.input_kind == "audio"


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
        return _write_prompt(model, clip)
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
    except InputError:
        return False
    return True


def _write_prompt(model: Model, clip: Clip) -> dict[str, Tensor]:
    audio = clip.audio(model.sample_rate)
    longest = getattr(model.feature_extractor, "n_samples", len(audio))  # it cuts what is longer
    if len(audio) > longest:
        raise InputError(
            f"{clip.name}: {len(audio) / model.sample_rate:.2f} s of audio, but {model.name} hears "
            f"{longest / model.sample_rate:g} s at a time: cut it at a pause (Clip.cut)"
        )
    check_fits(model, len(audio))
    write = model.family.build_chat_inputs or write_chat_inputs
    written = write(model.processor, audio, model.prompt.text)
    inputs = {name: torch.as_tensor(value) for name, value in written.items()}
    locate_audio_tokens(model, inputs["input_ids"][0].tolist())
    return inputs


def prompt_positions(model: Model, clip: Clip, ids: Sequence[int]) -> list[int]:
    """Return positions of the prompt's tokens among those of its conversation; none where they cannot be told apart.

    Where a letter is spread over several tokens, these are the tokens that change with the prompt.
    """
    words = find_prompt_words(model, ids)
    text = model.prompt.text
    if words or not text.strip() or str(getattr(model.processor, "audio_token", "")) in text:
        return [position for _, found in words for position in found]
    other = next(
        letter for letter in "xyz" if not text.startswith(letter) and not text.endswith(letter)
    )
    other_ids = prompt_inputs(model.with_prompt(other), clip)["input_ids"][0].tolist()
    start = _count_equal(ids, other_ids)
    rest = min(len(ids), len(other_ids)) - start
    stop = len(ids) - min(rest, _count_equal(ids[::-1], other_ids[::-1]))
    return [i for i in range(start, stop) if ids[i] != model.config.audio_token_id]


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
