"""Decode a recording of any length window by window, as the model's own generation does.

In: a model and a clip. Out: `DecodedWindow`s in order, one at a time: what the model was given of the sound, and the
tokens that it wrote about it. A Whisper with timestamps goes on from the last timestamp it wrote and tries higher
temperatures where a window fails (transformers' long-form generation; Radford et al. 2023, section 4.5). Models
without timestamps get windows that are cut where the sound is quietest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.decoder_text import (
    TIMESTAMP_STEP,
    decoder_prefix,
    first_timestamp_id,
    language_ids,
    prompt_ids,
    read_vocabulary,
)
from ...adapters.generation.greedy_generation import MAX_TRANSCRIPT_TOKENS, generate_greedily
from ...errors import InputError
from ...inputs.clips.clip import Clip

if TYPE_CHECKING:
    from ...adapters.model import Model

CONTEXT_SECONDS = 1.0  # on both sides of a CTC model's window
_MAX_WINDOW_SECONDS = 20.0  # of a model without a window of its own
_CUT_SHARE = 1 / 3  # the last part of a window, in which the quietest place is looked for
_LEVEL_SECONDS = 0.02  # stretches whose levels are compared
SHORTEST_SECONDS = 0.1  # of sound that a model can be given


@dataclass(frozen=True, eq=False)
class DecodedWindow:
    """A window of a recording, and what the model wrote about it.

    Parameters
    ----------
    start : float
        Seconds from the start of the recording.
    audio : ndarray [S]
        At the model's rate, without padding.
    sample_rate : int
    inputs : dict of str to Tensor
        What the model was given of the sound; empty where the reader makes it.
    ids : tuple of int
        Prefix and text of a decoder, without the end; empty for other models.
    n_prefix : int
    ended : bool
        Whether the model ended the text itself.
    context : tuple of float
        Seconds of `audio` before and behind the window that belong to its neighbours.
    audio_hash : str, optional
        By which the encoder's states of the window are cached within `Model.unchanged`.
    states : Tensor [1, T, D], optional
        Of the encoder, where generation has computed them of these inputs.
    """

    start: float
    audio: np.ndarray
    sample_rate: int
    inputs: dict[str, Tensor]
    ids: tuple[int, ...] = ()
    n_prefix: int = 0
    ended: bool = True
    context: tuple[float, float] = (0.0, 0.0)
    audio_hash: str | None = None
    states: Tensor | None = None

    @property
    def seconds(self) -> float:
        return len(self.audio) / self.sample_rate

    def clip(self, language: str | None = None) -> Clip:
        """Return the sound of the window as a clip; filled up with zeros where it is too short for one."""
        missing = round(SHORTEST_SECONDS * self.sample_rate) - len(self.audio)
        audio = np.pad(self.audio, (0, max(0, missing)))
        return Clip.from_array(audio, self.sample_rate, name="window", language=language)


def has_timestamps(model: Model) -> bool:
    """Whether a Whisper has tokens for times, by which it goes through a long recording."""
    if model.family.check_prefix is None or model.tokenizer is None:
        return False
    vocabulary = read_vocabulary(model)
    return "<|notimestamps|>" in vocabulary and model.config.vocab_size > first_timestamp_id(model)


@dataclass(frozen=True)
class DecodingOptions:
    """How a Whisper with timestamps decodes a recording, in the terms of transformers' `generate`.

    Parameters
    ----------
    previous_text : bool
        Condition each window on the text of those before (`condition_on_prev_tokens`), as openai-whisper and
        faster-whisper do by default.
    temperatures : tuple of float
        Tried in this order where a window's text looks unreliable.
    no_speech_threshold : float
        Leave a window out if the probability of no speech is higher, and its text unlikely.
    """

    previous_text: bool = False
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    no_speech_threshold: float = 0.6

    def generation_options(self) -> dict[str, Any]:
        """Return the options of `generate`."""
        return {
            "temperature": self.temperatures,
            "compression_ratio_threshold": 1.35,
            "logprob_threshold": -1.0,
            "no_speech_threshold": self.no_speech_threshold,
            **({"condition_on_prev_tokens": True} if self.previous_text else {}),
        }


def decode_windows(
    model: Model, clip: Clip, options: DecodingOptions | None = None
) -> Iterator[DecodedWindow]:
    """Decode a clip of any length.

    Parameters
    ----------
    model : Model
        One that can transcribe. A Whisper with timestamps has them in its prefix.
    clip : Clip
    options : DecodingOptions, optional
        Of a Whisper with timestamps; others decode greedily, window by window.

    Yields
    ------
    DecodedWindow
        Windows without a word are among them.

    Raises
    ------
    InputError
        If the clip has no sound, or the model cannot decode with these options.
    """
    options = options or DecodingOptions()
    if options != DecodingOptions() and not model.prefix.timestamps:
        raise InputError(
            f"{model.label} decodes greedily, window by window: the text before, temperatures and the threshold of "
            "speech are options of a Whisper with timestamps"
        )
    audio, rate = clip.audio(model.sample_rate), model.sample_rate
    if len(audio) < SHORTEST_SECONDS * rate:
        raise InputError(
            f"{clip.name}: {len(audio) / rate:.2f} s of sound are too short to be transcribed: "
            f"expected at least {SHORTEST_SECONDS} s"
        )
    if model.capabilities.decoding == "cross-attention":
        # An engine beside the model writes each window.
        if model.prefix.timestamps and model.engine is None:
            yield from _decode_by_timestamps(model, clip, audio, options)
        else:
            yield from _decode_greedily(model, clip, audio)
        return
    context = CONTEXT_SECONDS if model.capabilities.decoding == "frames" else 0.0
    for start, stop in quiet_cuts(audio, rate, window_seconds(model)):
        first = max(0, start - round(context * rate))
        last = min(len(audio), stop + round(context * rate))
        neighbours = ((start - first) / rate, (last - stop) / rate)
        yield DecodedWindow(first / rate, audio[first:last], rate, {}, context=neighbours)


def fixed_window_seconds(model: Model) -> float | None:
    """Seconds that the model always gets, filled up with padding; None for sound of any length."""
    grids = [model.grid(seconds * model.sample_rate) for seconds in (1, 2)]
    return float(grids[0].duration) if grids[0].n_frames == grids[1].n_frames else None


def window_seconds(model: Model) -> float:
    """Seconds of sound that a model is given at a time."""
    return fixed_window_seconds(model) or _MAX_WINDOW_SECONDS


def quiet_cuts(audio: np.ndarray, rate: int, seconds: float) -> Iterator[tuple[int, int]]:
    """Cut a sound into windows of at most so many seconds, each cut where its last third is quietest.

    No window but that of a whole sound is shorter than `SHORTEST_SECONDS`.

    Examples
    --------
    >>> sound = np.ones(100)
    >>> sound[42:46] = 0
    >>> [(start, stop) for start, stop in quiet_cuts(sound, rate=100, seconds=0.5)]
    [(0, 45), (45, 90), (90, 100)]
    """
    start, longest = 0, int(seconds * rate)
    shortest = round(SHORTEST_SECONDS * rate)
    while len(audio) - start > longest:
        first = start + longest - int(_CUT_SHARE * longest)
        last = max(first + 1, min(start + longest, len(audio) - shortest))
        stop = first + max(1, round(quietest_second(audio[first:last], rate) * rate))
        yield start, stop
        start = stop
    yield start, len(audio)


def quietest_second(audio: np.ndarray, rate: int) -> float:
    """Return the second in a sound where it is quietest: the last of equal ones, the end of a level sound.

    Examples
    --------
    >>> sound = np.ones(16_000)
    >>> sound[8_000:9_000] = 0
    >>> quietest_second(sound, 16_000)
    0.55
    """
    step = max(1, round(_LEVEL_SECONDS * rate))
    levels = np.array(
        [
            np.mean(np.square(audio[at : at + step], dtype=np.float64))
            for at in range(0, len(audio) - step + 1, step)
        ]
    )
    if not len(levels) or levels.min() >= levels.max():
        return len(audio) / rate
    quietest = len(levels) - 1 - int(np.argmin(levels[::-1]))
    return (quietest * step + step // 2) / rate


def _decode_greedily(model: Model, clip: Clip, audio: np.ndarray) -> Iterator[DecodedWindow]:
    rate = model.sample_rate
    for start, stop in quiet_cuts(audio, rate, window_seconds(model)):
        part = Clip.from_array(audio[start:stop], rate, name=clip.name, language=clip.language)
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                prepared = model.family.prepare(model, part, ("encoder",))
        except InputError:
            if np.ptp(audio[start:stop]) > 0:
                raise
            continue  # digital silence, of which some feature extractors make no numbers
        ids, n_prefix, ended = generate_greedily(model, part, max_tokens=MAX_TRANSCRIPT_TOKENS)
        yield DecodedWindow(
            start / rate,
            audio[start:stop],
            rate,
            prepared.inputs,
            tuple(ids),
            n_prefix,
            ended,
            audio_hash=prepared.audio_hash,
        )


def _decode_by_timestamps(
    model: Model, clip: Clip, audio: np.ndarray, options: DecodingOptions
) -> Iterator[DecodedWindow]:
    rate, first_id = model.sample_rate, first_timestamp_id(model)
    window = window_seconds(model)
    head = Clip.from_array(
        audio[: int(window * rate)], rate, name=clip.name, language=clip.language
    )
    prefix = decoder_prefix(model, head)
    extracted = model.feature_extractor(
        audio,
        sampling_rate=rate,
        return_tensors="pt",
        truncation=False,
        padding="longest" if len(audio) > window * rate else "max_length",
        return_attention_mask=True,
    )
    features = extracted["input_features"]
    hop = model.feature_extractor.hop_length
    groups, encoded = _generate_windows(
        model, features, extracted["attention_mask"], prefix, options
    )
    for group in groups:
        ids = [id_ for segment in group for id_ in segment["tokens"].tolist()]
        # Segments between pairs of timestamps start at their first one; a single segment, with its window.
        has_pair = any(id_ >= first_id and next_id >= first_id for id_, next_id in pairwise(ids))
        offset = TIMESTAMP_STEP * (ids[0] - first_id) if has_pair else 0.0
        start = round(float(group[0]["start"]) - offset, 3)
        frame, n_frames = round(start * rate / hop), 2 * model.config.max_source_positions
        part = features[:, :, frame : frame + n_frames]
        part = torch.nn.functional.pad(part, (0, n_frames - part.shape[-1]))
        samples = audio[round(start * rate) : round((start + window) * rate)]
        end_id = model.tokenizer.eos_token_id
        text_ids = [id_ for id_ in ids if id_ != end_id]
        # Generation goes on in the padding of a short sound.
        start = min(start, len(audio) / rate)
        fed = part.to(model.device, model.state_dtype)
        encoded_window = next(
            (window for window in encoded if torch.equal(window.inputs, fed)), None
        )
        window_prefix = (
            prefix if encoded_window is None or not encoded_window.prefix else encoded_window.prefix
        )
        yield DecodedWindow(
            start,
            samples,
            rate,
            {"input_features": part},
            (*window_prefix, *text_ids),
            len(window_prefix),
            states=None if encoded_window is None else encoded_window.states,
        )


@contextmanager
def _hide_own_warning() -> Iterator[None]:
    """Hide what transformers' long-form generation warns of in its own call of `generate`: that
    suppressed tokens are given twice."""
    logger = logging.getLogger("transformers.generation.utils")

    def is_of_others(record: logging.LogRecord) -> bool:
        return "suppress_tokens" not in record.getMessage()

    logger.addFilter(is_of_others)
    try:
        yield
    finally:
        logger.removeFilter(is_of_others)


@dataclass(eq=False)
class _EncodedWindow:
    """What generation fed the encoder for one window, what that returned, and what the decoder began with."""

    inputs: Tensor
    states: Tensor
    prefix: list[int]


def _generate_windows(
    model: Model,
    features: Tensor,
    attention_mask: Tensor,
    prefix: list[int],
    decoding: DecodingOptions,
) -> tuple[list[list[dict[str, Any]]], list[_EncodedWindow]]:
    """Segments of transformers' own generation, those of one window together; and what its encoder and decoder were fed,
    once for each window."""
    encoded: list[_EncodedWindow] = []

    def keep_states(
        _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        inputs = kwargs["input_features"] if "input_features" in kwargs else args[0]
        # A fallback runs the same window again.
        if not encoded or not torch.equal(encoded[-1].inputs, inputs):
            encoded.append(_EncodedWindow(inputs, output[0], []))

    def keep_prefix(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        if encoded and not encoded[-1].prefix:
            encoded[-1].prefix = ids[0].tolist()

    languages = {id_: name for name, id_ in language_ids(model).items()}
    options = decoding.generation_options()
    if languages:
        language = next(languages[id_] for id_ in prefix if id_ in languages)
        options |= {"language": language, "task": model.prefix.task}
    if prompt := prompt_ids(model):
        options["prompt_ids"] = torch.tensor(prompt, device=model.device)
        if decoding.previous_text:
            options["prompt_condition_type"] = "all-segments"
    if features.shape[-1] > 2 * model.config.max_source_positions:
        options["attention_mask"] = attention_mask.to(model.device)
    inputs = inputs_to_device({"input_features": features}, model.device, model.state_dtype)
    module = model.module
    hooks = [
        module.get_encoder().register_forward_hook(keep_states, with_kwargs=True),
        module.get_decoder().register_forward_pre_hook(keep_prefix, with_kwargs=True),
    ]
    try:
        with (
            model.in_use(model.state_dtype, is_sampling=True),
            torch.no_grad(),
            _hide_own_warning(),
        ):
            output = module.generate(
                **inputs, **options, return_timestamps=True, return_segments=True
            )
    finally:
        for hook in hooks:
            hook.remove()
    segments = [segment for segment in output["segments"][0] if len(segment["tokens"])]
    groups = groupby(segments, key=lambda segment: id(segment["result"]))
    return [list(group) for _, group in groups], encoded
