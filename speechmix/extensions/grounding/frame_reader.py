"""Read the words of a window off a CTC model.

Each letter is read at the frame where it is likeliest. All sound is replaced by silence, and by noise: both are read once,
in the middle of a stretch of two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..explain.decoder_drafts import draft_letters
from .word_readings import INTACT, NOISE, SILENCE, TokenTable, WordReadings, make_fill

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .windows import DecodedWindow

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
