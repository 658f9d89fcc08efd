"""Read the words of a window off a decoder with cross-attention (Whisper and its like).

All removals are made behind the encoder, so that a window costs one pass of it. Sound is removed by putting the
encoder's states for a silent window in place of those of some frames; padding by leaving its frames out; earlier
text by an attention mask. Keys and values of both encoder states are projected once a layer for all runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.cross_attention import capture_attention
from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.encoder_cache import run_encoder, wrap_encoder_states
from ...adapters.generation.decoder_prefix import first_timestamp_id
from ...adapters.patching.encoder_mixture import mix_encoder_states
from ...adapters.patching.head_rows import read_positions_only
from ...adapters.patching.shared_encoder import share_encoder_states
from ...alignment.row_placement import find_loud_frames, place_rows
from ...alignment.whisper_attention import choose_heads, named_heads
from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..decoder_drafts import draft_tokens
from .windows import fixed_window_seconds
from .word_readings import (
    INTACT,
    NO_OWN,
    NO_PADDING,
    NO_SOUND,
    NO_TEXT,
    ONLY_OWN,
    TokenTable,
    WordReadings,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ..generated_tokens import Draft
    from .windows import DecodedWindow

_MAX_RUNS = 32  # that run together
_WORDS_TOGETHER = 4  # neighbours, whose texts are about equally long
_NO_SPEECH_TOKENS = ("<|nospeech|>", "<|nocaptions|>")
_FAINT_LEVEL = 1e-5  # of noise in place of zeros, for models that divide by how much features vary


class DecoderReader:
    """Reads windows of one model.

    Parameters
    ----------
    model : Model
    language : str, optional
    """

    def __init__(self, model: Model, language: str | None = None):
        self.model, self.language = model, language
        self._silent_states: dict[int, Tensor] = {}  # by number of samples, 0 for a fixed window

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if it has no words.

        All of it is computed from one encoding of the sound and one of silence.
        """
        model = self.model
        tokens = self._make_table(window)
        if not len(tokens.ids):
            return None
        with model.in_use(model.state_dtype), torch.no_grad():
            states = self._encode(window.inputs, window.audio_hash)
            silent = self._encode_silence(window)[:, : states.shape[1]]
            n_frames = min(self._count_frames(window), states.shape[1])
            ids = torch.tensor([window.ids], device=model.device)
            with capture_attention(model) as captured:
                intact = self._run(ids, states)
            rows = [*tokens.rows.tolist(), len(window.ids) - 1]  # and the one that predicts the end
            named = named_heads(model)
            attention = captured.weights(rows, named)
            if named is None:
                attention = attention[choose_heads(model, attention[..., :n_frames])]
            edges = self._place_rows(window, attention[..., :n_frames])
            frames = [
                (edges[own[0]], max(edges[own[-1] + 1], edges[own[0]] + 1))
                for own in map(tokens.of_word, range(len(tokens.words)))
            ]
            values = {
                INTACT: tokens.token_log_probabilities(intact[0]),
                NO_SOUND: tokens.token_log_probabilities(self._run(ids, silent)[0]),
            }
            if n_frames < states.shape[1]:
                unpadded = self._run(ids, states[:, :n_frames])
                values[NO_PADDING] = tokens.token_log_probabilities(unpadded[0])
            values[NO_TEXT] = self._run_without_text(window, tokens, states)
            values |= self._run_stretches(window, tokens, states, silent, frames)
        lowest, runners_up = tokens.runners_up(model, intact[0])
        grid = self._grid(window)
        return WordReadings(
            window,
            tokens.words,
            tuple(_times(window, *grid.frame_times(*edge)) for edge in frames),
            {name: tokens.sum_by_word(value) for name, value in values.items()},
            lowest,
            runners_up,
            np.bincount(tokens.owners, minlength=len(tokens.words)),
            _attention_numbers(tokens, attention, frames, n_frames),
            self._no_speech(intact[0], window.n_prefix),
        )

    def tokens_of(self, readings: WordReadings) -> TokenTable:
        """Return the tokens of a window's words."""
        return self._make_table(readings.window)

    def token_log_probabilities(self, readings: WordReadings, run_count: int) -> np.ndarray:
        """Read the tokens of a window in several runs at once, [R, tokens]; hooks make them differ."""
        window, tokens = readings.window, self._make_table(readings.window)
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            states = self._encode(window.inputs, window.audio_hash)
            ids = torch.tensor([window.ids] * run_count, device=self.model.device)
            return tokens.token_log_probabilities(self._run(ids, states))

    def _make_table(self, window: DecodedWindow) -> TokenTable:
        """Tokens of the text; no word goes on behind a timestamp, where another segment begins."""
        is_timed = self.model.prefix.timestamps
        first_time = first_timestamp_id(self.model) if is_timed else math.inf
        drafts: list[Draft] = []
        words: list[str] = []
        start = window.n_prefix
        for is_time, run in groupby(window.ids[start:], lambda id_: id_ >= first_time):
            stop = start + len(list(run))
            if not is_time:
                found, texts = draft_tokens(self.model, window.ids[:stop], start, ended=False)
                drafts += [
                    draft if draft.word is None else replace(draft, word=draft.word + len(words))
                    for draft in found
                ]
                words += texts
            start = stop
        return TokenTable(drafts, words)

    def _place_rows(self, window: DecodedWindow, attention: np.ndarray) -> np.ndarray:
        """Edges [rows + 1] of the stretches of frames; shared out evenly where rows are too many."""
        n_rows, n_frames = attention.shape[1:]
        if n_rows > n_frames:
            return np.linspace(0, n_frames, n_rows + 1).astype(int)
        sound = attention / np.maximum(attention.sum(-1, keepdims=True), 1e-12)
        return place_rows(sound, find_loud_frames(window.audio, n_frames))

    def _encode(self, inputs: dict[str, Tensor], audio_hash: str | None = None) -> Tensor:
        fed = inputs_to_device(inputs, self.model.device, self.model.state_dtype)
        states: Tensor = run_encoder(self.model, fed, audio_hash)[0]
        return states

    def _encode_silence(self, window: DecodedWindow) -> Tensor:
        """Encoder states of a silent window; computed once for windows of one length."""
        is_fixed = fixed_window_seconds(self.model) is not None
        count = 0 if is_fixed else len(window.audio)
        if count not in self._silent_states:
            self._silent_states = {count: self._encode(_silent_inputs(self.model, window))}
        return self._silent_states[count]

    def _count_frames(self, window: DecodedWindow) -> int:
        """Frames of the encoder that hold the sound itself; those behind them are padding."""
        return max(1, self._grid(window).frames_between(0.0, window.seconds)[1])

    def _grid(self, window: DecodedWindow) -> FrameGrid:
        """Where frames lie; a window in the padding behind a sound has no samples."""
        return self.model.grid(max(1, len(window.audio)))

    def _run(self, ids: Tensor, states: Tensor) -> Tensor:
        """Run the decoder; log-probabilities [R, T, V] in double precision."""
        shared = states.expand(len(ids), *states.shape[1:])
        with share_encoder_states(self.model):
            output = self.model.run_with_head(
                {"decoder_input_ids": ids}, encoder_outputs=wrap_encoder_states(shared)
            )
        log_probabilities: Tensor = output.logits.double().log_softmax(dim=-1)
        return log_probabilities

    def _run_without_text(
        self, window: DecodedWindow, tokens: TokenTable, states: Tensor
    ) -> np.ndarray:
        """Log-probability of each token where its word stands right behind the prefix."""
        n_kept = int(tokens.rows[0]) + 1  # the prefix, and a timestamp at the start
        prefix, values = window.ids[:n_kept], np.empty(len(tokens.ids))
        for word_tokens in _chunks([tokens.of_word(word) for word in range(len(tokens.words))]):
            texts = [[*prefix, *tokens.ids[own]] for own in word_tokens]
            first_rows = [n_kept - 1] * len(texts)
            shared = states.expand(len(texts), *states.shape[1:])
            with share_encoder_states(self.model):
                read = self._read_ends(texts, first_rows, shared)
            for own, log_probabilities in zip(word_tokens, read, strict=True):
                values[own] = log_probabilities
        return values

    def _run_stretches(
        self,
        window: DecodedWindow,
        tokens: TokenTable,
        states: Tensor,
        silent: Tensor,
        frames: Sequence[tuple[int, int]],
    ) -> dict[str, np.ndarray]:
        """Log-probability of each token without its word's own stretch of sound, and with it alone."""
        values = {name: np.empty(len(tokens.ids)) for name in (NO_OWN, ONLY_OWN)}
        with mix_encoder_states(self.model, states, silent) as mixture:
            for words in _chunks(range(len(tokens.words)), _WORDS_TOGETHER):
                is_own = torch.zeros(len(words), states.shape[1], dtype=torch.bool)
                for row, word in enumerate(words):
                    is_own[row, slice(*frames[word])] = True
                mixture.is_silent = torch.cat([is_own, ~is_own]).to(states.device)
                word_tokens = [tokens.of_word(word) for word in words]
                # What follows a word is not read: a decoder looks back alone.
                texts = [window.ids[: tokens.rows[own[-1]] + 2] for own in word_tokens]
                first_rows = [int(tokens.rows[own[0]]) for own in word_tokens]
                fed = states.expand(2 * len(words), *states.shape[1:])
                read = self._read_ends(texts * 2, first_rows * 2, fed)
                for name, half in ((NO_OWN, read[: len(words)]), (ONLY_OWN, read[len(words) :])):
                    for own, log_probabilities in zip(word_tokens, half, strict=True):
                        values[name][own] = log_probabilities
        return values

    def _read_ends(
        self, texts: Sequence[Sequence[int]], first_rows: Sequence[int], states: Tensor
    ) -> list[np.ndarray]:
        """Log-probabilities of the last tokens of each text, from the one that a first row chooses."""
        end = self.model.tokenizer.eos_token_id
        longest = max(map(len, texts)) - 1  # the last token is read, not fed
        counts = [len(text) - 1 - first for text, first in zip(texts, first_rows, strict=True)]
        device = self.model.device
        fed = torch.tensor([[*text[:-1], *[end] * (longest + 1 - len(text))] for text in texts])
        positions = torch.tensor(first_rows)[:, None] + torch.arange(max(counts))
        positions = positions.clamp(max=longest - 1).to(device)
        with read_positions_only(self.model, positions):
            output = self.model.run_with_head(
                {"decoder_input_ids": fed.to(device)}, encoder_outputs=wrap_encoder_states(states)
            )
        log_probabilities = output.logits.double().log_softmax(dim=-1)
        return [
            log_probabilities[row, range(count), list(texts[row][first + 1 :])].cpu().numpy()
            for row, (count, first) in enumerate(zip(counts, first_rows, strict=True))
        ]

    def _no_speech(self, log_probabilities: Tensor, n_prefix: int) -> float:
        """Probability of Whisper's token for "no speech", which stands where the language is chosen."""
        vocabulary = self.model.tokenizer.get_vocab()
        ids = [vocabulary[token] for token in _NO_SPEECH_TOKENS if token in vocabulary]
        return float(log_probabilities[0, ids[0]].exp()) if ids and n_prefix > 1 else float("nan")


def _silent_inputs(model: Model, window: DecodedWindow) -> dict[str, Tensor]:
    """Inputs of a silent window of the same length."""
    count = len(window.clip().audio(window.sample_rate))
    silence = np.zeros(count, dtype=np.float32)
    try:
        clip = Clip.from_array(silence, window.sample_rate, name="silence")
        with np.errstate(divide="ignore", invalid="ignore"):
            return dict(model.family.prepare(model, clip, ("encoder",)).inputs)
    except InputError:  # features that are divided by how much they vary
        noise = np.random.default_rng(0).normal(0, _FAINT_LEVEL, count).astype(np.float32)
        clip = Clip.from_array(noise, window.sample_rate, name="silence")
        return dict(model.family.prepare(model, clip, ("encoder",)).inputs)


def _attention_numbers(
    tokens: TokenTable,
    attention: np.ndarray,
    frames: Sequence[tuple[int, int]],
    n_frames: int,
) -> dict[str, np.ndarray]:
    """Numbers [W] of the heads' mean attention: shares of own stretch and padding, and its entropy as a share of
    that of equal attention.
    """
    mean = attention.mean(axis=0)[:-1]  # [tokens, S]
    entropy = -(mean * np.log(np.maximum(mean, 1e-12))).sum(axis=1) / np.log(max(2, mean.shape[1]))
    numbers: dict[str, list[float]] = {"own": [], "padding": [], "entropy": []}
    for word, edges in enumerate(frames):
        own = tokens.of_word(word)
        numbers["own"].append(mean[own, slice(*edges)].sum(axis=1).mean())
        numbers["padding"].append(mean[own, n_frames:].sum(axis=1).mean())
        numbers["entropy"].append(entropy[own].mean())
    return {name: np.array(values) for name, values in numbers.items()}


def _times(window: DecodedWindow, start: float, end: float) -> tuple[float, float]:
    """Seconds in the recording, within the window."""
    return window.start + min(start, window.seconds), window.start + min(end, window.seconds)


def _chunks(items: Sequence[Any], size: int = _MAX_RUNS) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
