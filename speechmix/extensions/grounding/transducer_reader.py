"""Read the words of a window off a transducer (RNN-T, TDT).

Each token is read at the frame where it was emitted. Silence or noise replaces all sound in the input,
and the tokens and their frames stay.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.generation.emission_paths import PATH_FRAMES, PATH_STATES, generate_emissions
from ..explain.decoder_drafts import draft_tokens
from .frame_reader import FrameReader, WindowTokens
from .windows import DecodedWindow
from .word_readings import TokenTable, make_fill


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
