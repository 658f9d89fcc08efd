"""Inputs of a question about a recording: with another sound, or without its prompt.

In: a model and a `ListeningItem`. Out: `Question`, which makes the model's inputs for each sound (its own, silence,
noise of the same spectrum, that of another item) and prompt, and reads the log-probabilities behind the prompt.

Audio language models get the prompt by their processor's chat template. A Whisper gets it as its initial prompt:

    <|startofprev|> prompt <|startoftranscript|> <|en|> <|transcribe|> <|notimestamps|> answer
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.audio_prompt import find_audio_range
from ...adapters.generation.decoder_text import decoder_prefix
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...interventions.removals import (
    blank_tokens,
    prepare_sound_inputs,
    random_phase_noise,
    token_fills,
)
from ...mixing.measures.token_objectives import token_logits
from .answer_reading import AnswerReading
from .question_prompts import (
    check_takes_prompt,
    initial_prompt_ids,
    prompt_inputs,
    prompt_positions,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .items import ListeningItem

OWN, SILENCE, NOISE, OTHER = SOUNDS = ("sound", "silence", "noise", "other sound")
# Inputs that have a value for each token of the text, and their value for those of the answer.
_TOKEN_INPUTS = {"attention_mask": 1, "mm_token_type_ids": 0}
_FAINT_LEVEL = 1e-5  # of noise in place of zeros, for models that divide by how much features vary


@dataclass(frozen=True, eq=False)
class Question:
    """A question to a model about a recording.

    Parameters
    ----------
    model : Model
        An audio language model with its processor, or a speech model with cross-attention and its tokenizer; with its
        head.
    item : ListeningItem
    donor : Clip, optional
        The other sound.

    Raises
    ------
    InputError
        If the model takes no prompt, or cannot tell the options apart.
    """

    model: Model
    item: ListeningItem
    donor: Clip | None = None

    def __post_init__(self) -> None:
        check_takes_prompt(self.model)

    @cached_property
    def reading(self) -> AnswerReading:
        """How answers are read."""
        return AnswerReading.of_item(self.model, self.item)

    def clip(self, sound: str) -> Clip:
        """Return the clip with its own sound or another."""
        own_clip, rate = self.item.clip, self.model.sample_rate
        if sound == OWN:
            return own_clip
        if sound == OTHER:
            if self.donor is None:
                raise InputError(f"{self.item.name}: there is no other item with another recording")
            return self.donor
        samples = own_clip.audio(rate)
        if sound == SILENCE:
            return replace_samples(own_clip, np.zeros_like(samples), rate)
        seed = int.from_bytes(hashlib.sha256(self.item.name.encode()).digest()[:4], "big")
        noise = random_phase_noise(samples, np.random.default_rng(seed))
        return replace_samples(own_clip, noise.astype(np.float32), rate)

    def inputs(self, sound: str) -> dict[str, Tensor]:
        """Return the model's inputs up to where the answer begins, a batch of one.

        Parameters
        ----------
        sound : {"sound", "silence", "noise", "other sound"}
        """
        return self._write_inputs(sound, self.item.full_prompt)

    def remove_prompt(self, sound: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return inputs with a sound, without the hint or, if there is none, the prompt; None if it cannot be removed.

        A neutral token takes the place of each token of the prompt; a Whisper's initial prompt is left out.

        Parameters
        ----------
        sound : {"sound", "silence", "noise", "other sound"}
        inputs : mapping of str to Tensor
            As `inputs` returns them for this sound.
        """
        item = self.item
        if item.hint:
            return self._write_inputs(sound, item.prompt_without_hint)
        if not self.model.takes_chat:
            return self._write_inputs(sound, "") if item.prompt else None
        prompted = self.model.with_prompt(item.full_prompt)
        positions = prompt_positions(prompted, self.clip(sound), inputs["input_ids"][0].tolist())
        if not positions:
            return None
        return blank_tokens(prompted, inputs, positions, fill=token_fills(prompted)[0])[0]

    def _write_inputs(self, sound: str, text: str) -> dict[str, Tensor]:
        clip = self.clip(sound)
        try:
            return self.inputs_of_clip(clip, text)
        except InputError as error:
            if sound == OTHER:
                raise InputError(
                    f"{self.item.name}: the sound of another item cannot take the place of its own: {error}"
                ) from error
            if sound != SILENCE:
                raise
            noise = np.random.default_rng(0).normal(0, _FAINT_LEVEL, len(clip.audio(16_000)))
            return self.inputs_of_clip(replace_samples(clip, noise, 16_000), text)

    def inputs_of_clip(self, clip: Clip, text: str | None = None) -> dict[str, Tensor]:
        """Return the inputs with the sound of any clip, and any prompt; by default the item's."""
        text = self.item.full_prompt if text is None else text
        if self.model.takes_chat:
            return prompt_inputs(self.model.with_prompt(text), clip)
        ids = initial_prompt_ids(self.model, self.item.name, text, self._start_ids)
        return {**prepare_sound_inputs(self.model, clip), "decoder_input_ids": ids}

    def log_probabilities(self, inputs: Mapping[str, Tensor], *, runs: int = 1) -> list[Tensor]:
        """Run the model once for each context of the answer; log-probabilities [runs, depths, V] behind the prompt."""
        model, log_probs = self.model, []
        for context in self.reading.contexts:
            fed = self.with_answer(inputs, context)
            fed = {name: torch.cat([tensor] * runs) for name, tensor in fed.items()}
            with model.in_use(model.state_dtype), torch.no_grad():
                log_probs.append(self.read_rows(model.run_with_head(fed), inputs, context))
        return log_probs

    def with_answer(
        self, inputs: Mapping[str, Tensor], context: Sequence[int]
    ) -> dict[str, Tensor]:
        """Return inputs with tokens of the answer behind the prompt, as the model runs them."""
        model, name, count = self.model, self._text_input, len(context)
        added = torch.tensor([list(context)], dtype=torch.long)
        fed = {**inputs, name: torch.cat([inputs[name], added], dim=1)}
        for other in _TOKEN_INPUTS.keys() & inputs.keys() if model.takes_chat else ():
            fed[other] = functional.pad(inputs[other], (0, count), value=_TOKEN_INPUTS[other])
        return inputs_to_device(fed, model.device, model.state_dtype)

    def read_rows(
        self, output: ModelOutput, inputs: Mapping[str, Tensor], context: Sequence[int]
    ) -> Tensor:
        """Return log-probabilities [R, depths, V] from the output of R runs, in double precision."""
        first = inputs[self._text_input].shape[1] - 1
        rows = token_logits(output)[:, first : first + len(context) + 1]
        log_probs: Tensor = rows.double().log_softmax(dim=-1).cpu()
        return log_probs

    @property
    def stack(self) -> str:
        """Stack in which the decoder reads the sound."""
        return "decoder" if self.model.takes_chat else "cross"

    def sound_positions(self, sound: str, inputs: Mapping[str, Tensor]) -> range:
        """Return the positions of a sound in that stack; behind an encoder all its frames, also those of padding."""
        model = self.model
        if model.takes_chat:
            return find_audio_range(model, inputs["input_ids"][0].tolist())
        return range(model.grid(len(self.clip(sound).audio(model.sample_rate))).n_frames)

    @property
    def _text_input(self) -> str:
        return "input_ids" if self.model.takes_chat else "decoder_input_ids"

    @cached_property
    def _start_ids(self) -> list[int]:
        """Prefix of the decoder for the item's own sound, whose language it may detect."""
        return decoder_prefix(self.model, self.item.clip)


def replace_samples(clip: Clip, samples: np.ndarray, rate: int) -> Clip:
    """Return a clip with other samples, and without its text and words."""
    return Clip.from_array(samples, rate, name=clip.name, language=clip.language)
