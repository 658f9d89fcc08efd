"""Read the words of a window off a CTC model.

Each letter is read at the frame where it is likeliest. Sound is muted in the input: every second word at a time, so
that a window costs two further passes and not one for each word; all sound, in a stretch of silence that is read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..decoder_drafts import draft_letters
from .word_readings import INTACT, NO_OWN, NO_SOUND, ONLY_OWN, TokenTable, WordReadings

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .windows import DecodedWindow

_SILENCE_SECONDS = 2.0
_MARGIN_SECONDS = 0.04  # of a word's stretch before its first letter and behind its last


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
        self._silence: Tensor | None = None

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if it has no words."""
        model = self._model
        logits = self._logits(window.audio)
        grid = model.grid(len(window.audio))
        first, last = _own_frames(window, grid)
        drafts, words = draft_letters(model, logits[first:last].double())
        tokens = TokenTable(drafts, words)
        if not len(tokens.ids):
            return None
        tokens.rows = tokens.rows + first
        log_probabilities = logits.double().log_softmax(dim=-1)
        edges = self._word_edges(window, tokens, grid)
        intact = tokens.token_log_probabilities(log_probabilities)
        values = {INTACT: intact, NO_SOUND: self._silent_frame()[tokens.ids].numpy()}
        values |= {name: np.empty(len(intact)) for name in (NO_OWN, ONLY_OWN)}
        for parity in (0, 1):
            muted = window.audio.copy()
            for word in range(parity, len(words), 2):
                start, end = (round(edge * window.sample_rate) for edge in edges[word])
                muted[start:end] = 0
            changed = self._logits(muted).double().log_softmax(dim=-1)
            read = tokens.token_log_probabilities(changed)
            is_muted = tokens.owners % 2 == parity
            values[NO_OWN][is_muted] = read[is_muted]
            values[ONLY_OWN][~is_muted] = read[~is_muted]
        lowest, runners_up = tokens.runners_up(model, log_probabilities)
        return WordReadings(
            window,
            tokens.words,
            tuple((window.start + start, window.start + end) for start, end in edges),
            {name: tokens.sum_by_word(value) for name, value in values.items()},
            lowest,
            runners_up,
            np.bincount(tokens.owners, minlength=len(words)),
        )

    def _logits(self, audio: np.ndarray) -> Tensor:
        """Logits [T, V] of a sound."""
        model = self._model
        clip = Clip.from_array(audio, model.sample_rate, name="window")
        inputs = model.family.prepare(model, clip, ("encoder",)).inputs
        with model.in_use(model.state_dtype), torch.no_grad():
            fed = inputs_to_device(inputs, model.device, model.state_dtype)
            logits: Tensor = model.run_with_head(fed).logits[0].cpu()
            return logits

    def _silent_frame(self) -> Tensor:
        """Log-probabilities [V] in the middle of silence."""
        if self._silence is None:
            count = round(_SILENCE_SECONDS * self._model.sample_rate)
            logits = self._logits(np.zeros(count, dtype=np.float32)).double()
            self._silence = logits[len(logits) // 2].log_softmax(dim=-1)
        return self._silence

    def _word_edges(
        self, window: DecodedWindow, tokens: TokenTable, grid: FrameGrid
    ) -> list[tuple[float, float]]:
        """Seconds in the window: up to the middle between neighbours, at most a margin beyond letters."""
        starts, ends = [], []
        for word in range(len(tokens.words)):
            rows = tokens.rows[tokens.of_word(word)]
            start, end = grid.frame_times(int(rows[0]), int(rows[-1]) + 1)
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
