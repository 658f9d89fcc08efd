"""Inputs of a question about a recording: with another sound, or without its prompt.

In: a model and a `ListeningItem`. Out: `Question`, which makes the model's inputs for each sound (its own, silence,
noise of the same spectrum, that of another item) and prompt, and reads the log-probabilities behind the prompt.

Audio language models get the prompt by their processor's chat template. A Whisper gets it as its initial prompt:

    <|startofprev|> prompt <|startoftranscript|> <|en|> <|transcribe|> <|notimestamps|> answer

Read which of some answers a model prefers, in one run wherever the answers part in one place.

In: the answers of an item as tokens. Out: `AnswerReading`: the tokens to feed behind the prompt, and the probability of
each answer from the logits. Answers are told apart where their tokens first differ: at such a branch the probability of
a token is its share among the tokens of all options there, and that of an option is the product over its branches. An
open answer is read token by token, among all tokens.

Prompt of a question: with the sound of an audio language model, or as initial prompt of a Whisper.

In: a model, a clip, a text. Out: the model's inputs up to where the answer begins. Errors say what to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.audio_prompt import (
    find_audio_range,
    find_audio_token_id,
    find_prompt_words,
    prepare_prompt,
    write_prompt,
)
from ...adapters.generation.decoder_text import (
    decoder_lengths,
    decoder_prefix,
    join_to_prefix,
    token_behind_text,
)
from ...adapters.loading.checkpoints import first_line
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...interventions.removals import (
    blank_tokens,
    prepare_sound_inputs,
    random_phase_noise,
    token_fills,
)
from ...mixing.measures.token_objectives import token_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .items import ListeningItem

_Prefix = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AnswerReading:
    """How the answers of an item are read off logits.

    Parameters
    ----------
    options : tuple of str
        The open answer alone, of an open question.
    token_ids : tuple of tuple of int
        Of each option.
    right : int
        Index of the right one.
    end_id : int
        What follows an answer that another one begins with.
    is_open : bool
    """

    options: tuple[str, ...]
    token_ids: tuple[_Prefix, ...]
    right: int
    end_id: int
    is_open: bool

    @classmethod
    def of_item(cls, model: Model, item: ListeningItem) -> AnswerReading:
        """Tokenize the answers of an item.

        Raises
        ------
        InputError
            If two options have the same tokens, or an answer has none.
        """
        options = item.options or (item.answer,)
        ids = tuple(_tokenize_answer(model, option) for option in options)
        for index, sequence in enumerate(ids):
            if not sequence or sequence in ids[:index]:
                raise InputError(
                    f"{item.name}: the tokenizer of {model.name} cannot tell the option {options[index]!r} from "
                    f"{'nothing' if not sequence else repr(options[ids.index(sequence)])}: write the options as the "
                    "model writes them"
                )
        right = options.index(item.answer)
        return cls(options, ids, right, token_behind_text(model)[0], not item.options)

    @cached_property
    def branches(self) -> dict[_Prefix, list[int]]:
        """Tokens that may follow, by the tokens before them, wherever the answers part; of an open answer each token."""
        if self.is_open:
            [ids] = self.token_ids
            return {ids[:depth]: [token] for depth, token in enumerate(ids)}
        following: dict[_Prefix, dict[int, None]] = {}
        for ids in self.token_ids:
            for depth, token in enumerate((*ids, self.end_id)):
                following.setdefault(ids[:depth], {})[token] = None
        return {prefix: list(tokens) for prefix, tokens in following.items() if len(tokens) > 1}

    @cached_property
    def contexts(self) -> list[_Prefix]:
        """Tokens of the answer that are fed, a run for each; one that another begins with needs no run of its own."""
        return [
            prefix
            for prefix in self.branches
            if not any(
                other != prefix and other[: len(prefix)] == prefix for other in self.branches
            )
        ]

    def log_probabilities(
        self, log_probs: Sequence[Tensor], *, with_earlier: bool = True
    ) -> Tensor:
        """Return the log-probability of each option in each of R runs.

        Parameters
        ----------
        log_probs : sequence of Tensor [R, depths, V]
            For each context log-probabilities of the next token behind the prompt, and behind each token of the context.
        with_earlier : bool
            False: each token is read behind the prompt, as if the answer had no earlier tokens.

        Returns
        -------
        Tensor [R, options]
            In nats; among the options, or among all tokens for an open answer.
        """
        by_option: list[list[Tensor]] = [[] for _ in self.options]
        for prefix, tokens in self.branches.items():
            values = self._read_branch(log_probs, prefix, len(prefix) if with_earlier else 0)
            values = values if self.is_open else values.log_softmax(dim=-1)
            for ids, steps in zip(self.token_ids, by_option, strict=True):
                if ids[: len(prefix)] == prefix:
                    next_id = (*ids, self.end_id)[len(prefix)]
                    steps.append(values[:, tokens.index(next_id)])
        return torch.stack([torch.stack(steps).sum(dim=0) for steps in by_option], dim=1)

    def option_mass(self, log_probs: Sequence[Tensor]) -> float:
        """Probability that the first run goes on as one of the options where they first part; NaN for an open answer."""
        if self.is_open:
            return float("nan")
        prefix = min(self.branches, key=len)
        return float(self._read_branch(log_probs, prefix, len(prefix))[0].logsumexp(dim=-1).exp())

    def _read_branch(self, log_probs: Sequence[Tensor], prefix: _Prefix, depth: int) -> Tensor:
        """Log-probabilities of the tokens of a branch [R, tokens], in the run whose context holds it."""
        index = next(
            index for index, context in enumerate(self.contexts) if context[: len(prefix)] == prefix
        )
        return log_probs[index][:, depth, self.branches[prefix]]

    def preferred(self, model: Model, log_probs: Sequence[Tensor]) -> str:
        """Text that the first run prefers: the likeliest option; of an open question the likeliest tokens, up to the
        first that is not the answer's.
        """
        if not self.is_open:
            return self.options[int(self.log_probabilities(log_probs)[0].argmax())]
        if bool(self.is_right(log_probs)[0]):
            return self.options[0]
        [ids] = self.token_ids
        likeliest = log_probs[0][0, : len(ids)].argmax(dim=-1).tolist()
        depth = next(depth for depth, token in enumerate(ids) if likeliest[depth] != token)
        return str(model.tokenizer.decode(likeliest[: depth + 1])).strip()

    def is_right(self, log_probs: Sequence[Tensor]) -> Tensor:
        """Whether each of R runs prefers the right option [R]; an open answer, whether greedy decoding would write it."""
        if not self.is_open:
            return self.log_probabilities(log_probs).argmax(dim=1) == self.right
        ids = torch.tensor(self.token_ids[0])
        return (log_probs[0][:, : len(ids)].argmax(dim=-1) == ids).all(dim=1)

    def log_odds(self, log_probs: Sequence[Tensor]) -> Tensor:
        """Return the log-odds of the right option against the others [R]; of an open answer its log-probability."""
        values = self.log_probabilities(log_probs)
        if self.is_open:
            return values[:, 0]
        others = np.arange(len(self.options)) != self.right
        return values[:, self.right] - values[:, others].logsumexp(dim=-1)


def _tokenize_answer(model: Model, text: str) -> _Prefix:
    tokens = model.tokenizer(join_to_prefix(model, text.strip()), add_special_tokens=False)
    return tuple(int(token) for token in tokens["input_ids"])


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
