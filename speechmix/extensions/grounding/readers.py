"""The reader of each kind of model.

Read the words of a window off an audio language model, which hears sound among its tokens.

Removals are made in the input: silence, or noise of the recording's spectrum, replaces all sound; a neutral token replaces
the words of the prompt. Such a model does not say where in the sound a word is, so words have no times.

Read the words of a window off a transducer (RNN-T, TDT).

Each token is read at the frame where it was emitted. Silence or noise replaces all sound in the input,
and the tokens and their frames stay.

Read the words of a window off a CTC model.

Each letter is read at the frame where it is likeliest. All sound is replaced by silence, and by noise: both are read once,
in the middle of a stretch of two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.emission_paths import PATH_FRAMES, PATH_STATES, generate_emissions
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ...interventions.removals import SOUND, TEXT_IDS, Removal, token_fills
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...mixing.measures.token_objectives import token_logits
from ..explain.generated_tokens import Draft, draft_letters, draft_tokens
from ..explain.model_text import write_about_clip
from .decoder_reader import DecoderReader
from .windows import DecodedWindow
from .word_readings import INTACT, NO_PROMPT, NOISE, SILENCE, TokenTable, WordReadings, make_fill

if TYPE_CHECKING:
    from ...adapters.model import Model


class AnswerReader:
    """Reads windows of one audio language model.

    Parameters
    ----------
    model : Model
    language : str, optional
    """

    def __init__(self, model: Model, language: str | None = None):
        self._model, self._language = model, language

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if the model writes no word."""
        clip = window.clip(self._language).with_words([("<sound>", 0.0, window.seconds)])
        try:
            writing = write_about_clip(self._model, clip, text=None, by_token=False)
        except InputError as error:
            if "writes nothing" in str(error):
                return None
            raise
        drafts = [Draft(t.id, t.label, t.position, t.word, t.fed_at) for t in writing.tokens]
        tokens = TokenTable(drafts, writing.words)
        fill = next(fill for fill in token_fills(self._model) if fill != "remove")
        prompt = [
            at for unit in writing.sources if unit.side == "asked" for at in unit.source.positions
        ]
        removals = [NO_REMOVAL, *((Removal(SOUND, (0,), name),) for name in ("zeros", "noise"))]
        removals += [(Removal(TEXT_IDS, tuple(prompt), fill),)] if prompt else []

        def read_tokens(output: ModelOutput) -> Tensor:
            log_probabilities = token_logits(output).log_softmax(dim=-1)
            return log_probabilities[:, tokens.rows, tokens.ids]

        values = run_interventions(writing.decision, removals, reader=read_tokens)
        sums = tokens.sum_by_word(values)  # [removals, W]
        by_removal = {INTACT: sums[0], SILENCE: sums[1], NOISE: sums[2]}
        by_removal |= {NO_PROMPT: sums[3]} if prompt else {}
        lowest, runners_up = tokens.runners_up(self._model, writing.logits.log_softmax(dim=-1))
        return WordReadings(
            window,
            tokens.words,
            (None,) * len(tokens.words),
            by_removal,
            lowest,
            runners_up,
            np.bincount(tokens.owners, minlength=len(tokens.words)),
        )


_FILL_SECONDS = 2.0
_MARGIN_SECONDS = 0.04  # of a word's stretch before its first letter and behind its last


@dataclass(frozen=True, eq=False)
class WindowTokens:
    """The tokens of a window, and how they are read.

    Parameters
    ----------
    tokens : TokenTable
    spans : ndarray [tokens, 2]
        First frame of each, and the first one behind it.
    read : callable
        Sound [samples] to log-probabilities Tensor [R, V], the rows those of `tokens`.
    """

    tokens: TokenTable
    spans: np.ndarray
    read: Callable[[np.ndarray], Tensor]


class FrameReader:
    """Reads windows of one CTC model.

    Parameters
    ----------
    model : Model
    language : str, optional
        Not needed.
    """

    def __init__(self, model: Model, language: str | None = None):
        self._model = model
        self._fills: dict[str, Tensor] = {}

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if it has no words."""
        model = self._model
        window_tokens = self._decode_tokens(window)
        tokens = window_tokens.tokens
        if not len(tokens.ids):
            return None
        log_probabilities = window_tokens.read(window.audio)
        edges = _word_edges(window, window_tokens, model.grid(len(window.audio)))
        intact = tokens.token_log_probabilities(log_probabilities)
        values = {INTACT: intact}
        for fill in (SILENCE, NOISE):
            values[fill] = self._without_sound(window, window_tokens, fill)
        lowest, runners_up = tokens.runners_up(model, log_probabilities)
        return WordReadings(
            window,
            tokens.words,
            tuple((window.start + start, window.start + end) for start, end in edges),
            {name: tokens.sum_by_word(value) for name, value in values.items()},
            lowest,
            runners_up,
            np.bincount(tokens.owners, minlength=len(tokens.words)),
        )

    def _decode_tokens(self, window: DecodedWindow) -> WindowTokens:
        logits = self._logits(window.audio)
        first, last = _own_frames(window, self._model.grid(len(window.audio)))
        tokens = TokenTable(*draft_letters(self._model, logits[first:last].double()))
        tokens.rows = tokens.rows + first
        return WindowTokens(
            tokens,
            np.stack([tokens.rows, tokens.rows + 1], axis=1),
            lambda audio: self._logits(audio).double().log_softmax(dim=-1),
        )

    def _without_sound(
        self, window: DecodedWindow, window_tokens: WindowTokens, fill: str
    ) -> np.ndarray:
        """Log-probabilities of the tokens where silence or noise replaces all sound."""
        values: np.ndarray = self._fill_frame(fill)[window_tokens.tokens.ids].numpy()
        return values

    def _features(self, audio: np.ndarray) -> Mapping[str, Tensor]:
        clip = Clip.from_array(audio, self._model.sample_rate, name="window")
        return self._model.family.prepare(self._model, clip, ("encoder",)).inputs

    def _logits(self, audio: np.ndarray) -> Tensor:
        """Logits [T, V] of a sound."""
        model, inputs = self._model, self._features(audio)
        with model.in_use(model.state_dtype), torch.no_grad():
            fed = inputs_to_device(inputs, model.device, model.state_dtype)
            logits: Tensor = model.run_with_head(fed).logits[0].cpu()
            return logits

    def _fill_frame(self, fill: str) -> Tensor:
        """Log-probabilities [V] in the middle of silence or noise."""
        if fill not in self._fills:
            audio = make_fill(fill, round(_FILL_SECONDS * self._model.sample_rate))
            logits = self._logits(audio).double()
            self._fills[fill] = logits[len(logits) // 2].log_softmax(dim=-1)
        return self._fills[fill]


def _word_edges(
    window: DecodedWindow, window_tokens: WindowTokens, grid: FrameGrid
) -> list[tuple[float, float]]:
    """Seconds in the window: up to the middle between neighbours, at most a margin beyond tokens."""
    starts, ends = [], []
    for word in range(len(window_tokens.tokens.words)):
        spans = window_tokens.spans[window_tokens.tokens.of_word(word)]
        start, end = grid.frame_times(int(spans[0, 0]), int(spans[-1, 1]))
        starts.append(max(0.0, start - _MARGIN_SECONDS))
        ends.append(min(window.seconds, end + _MARGIN_SECONDS))
    for word in range(len(starts) - 1):
        if ends[word] > starts[word + 1]:
            ends[word] = starts[word + 1] = (ends[word] + starts[word + 1]) / 2
    return list(zip(starts, ends, strict=True))


def _own_frames(window: DecodedWindow, grid: FrameGrid) -> tuple[int, int]:
    """Frames of the window itself, without those of its context."""
    before, behind = window.context
    return grid.frames_between(before, window.seconds - behind)


class TransducerReader(FrameReader):
    """Reads windows of one transducer; parameters as of `FrameReader`."""

    def _decode_tokens(self, window: DecodedWindow) -> WindowTokens:
        model = self._model
        generated_text = generate_emissions(model, window.clip())
        drafts, words = draft_tokens(
            model, generated_text.ids, generated_text.n_prefix, ended=False
        )
        tokens = TokenTable(drafts, words)
        spans = np.array(generated_text.frames, dtype=int).reshape(-1, 2)
        count = len(spans)
        path = {
            "decoder_input_ids": torch.tensor([generated_text.ids]),
            PATH_FRAMES: torch.tensor(spans[None, :, 0]),
            PATH_STATES: torch.arange(count)[None],
        }
        return WindowTokens(
            tokens, spans[tokens.rows], lambda audio: self._log_probs(audio, path)[0]
        )

    def _without_sound(
        self, window: DecodedWindow, window_tokens: WindowTokens, fill: str
    ) -> np.ndarray:
        read = window_tokens.read(make_fill(fill, len(window.audio)))
        return window_tokens.tokens.token_log_probabilities(read)

    def _log_probs(self, audio: np.ndarray, path: dict[str, Tensor]) -> Tensor:
        """Log-probabilities [B, R, V] along paths through one sound."""
        model = self._model
        inputs = {**self._features(audio), **path}
        with model.in_use(model.state_dtype), torch.no_grad():
            fed = inputs_to_device(inputs, model.device, model.state_dtype)
            logits: Tensor = model.run_with_head(fed).logits.cpu()
            return logits.double().log_softmax(dim=-1)


class WindowReader(Protocol):
    """Reads the words of decoded windows."""

    def read(self, window: DecodedWindow) -> WordReadings | None: ...


READERS: dict[str, Callable[[Model, str | None], WindowReader]] = {
    "cross-attention": DecoderReader,
    "frames": FrameReader,
    "audio tokens": AnswerReader,
    "transducer": TransducerReader,
}


def find_reader(model: Model, language: str | None = None) -> WindowReader:
    """Return the reader of a model's kind.

    Raises
    ------
    InputError
        If the model does not transcribe sound.
    """
    reader = READERS.get(model.capabilities.decoding)
    can_write = model.can_transcribe or model.capabilities.has_audio_tokens
    if reader is None or not can_write or model.init != "trained":
        raise InputError(
            f"{model.label} does not transcribe: expected a trained speech recogniser or audio language model with "
            f"its processor{model.missing_processor}"
        )
    return reader(model, language)
