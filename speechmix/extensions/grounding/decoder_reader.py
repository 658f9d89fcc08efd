"""Read the words of a window off a decoder with cross-attention (Whisper and its like).

All removals are made behind the encoder, so that a window costs one pass of it. The encoder's states for a silent window,
and for one of white noise, replace those of the sound; both are computed once for a model. Padding is removed by leaving
its frames out.

Cross-attention weights of one run, from its queries and keys, whatever attention the model computes with.

In: a model with cross-attention that runs once. Out: weights of chosen rows and heads. Nothing of the run
changes, and weights that nobody needs are not computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.model_use import run_encoder, wrap_encoder_states
from ...adapters.generation.decoder_text import first_timestamp_id, split_prompt
from ...adapters.transformers_types import HookArguments
from ...alignment.whisper_attention import choose_heads, find_loud_frames, named_heads, place_rows
from ...errors import InputError, ModelError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..explain.generated_tokens import draft_tokens
from .windows import fixed_window_seconds
from .word_readings import (
    INTACT,
    NO_PADDING,
    NO_PREVIOUS,
    NO_PROMPT,
    NOISE,
    NOISE_LEVEL,
    SILENCE,
    TokenTable,
    WordReadings,
    make_fill,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ..explain.generated_tokens import Draft
    from .windows import DecodedWindow


class CapturedAttention:
    """Queries and keys of the cross-attention of one run, and the weights that follow from them."""

    def __init__(self, head_count: int):
        self._head_count = head_count
        self.queries: list[Tensor] = []  # of each layer [T, D]
        self.keys: list[Tensor] = []  # [S, D]

    def weights(
        self, rows: Sequence[int], heads: Sequence[tuple[int, int]] | None = None
    ) -> np.ndarray:
        """Return attention weights [heads, rows, S]; of all heads, or those of (layer, head)."""
        by_layer = []
        for layer, (query, key) in enumerate(zip(self.queries, self.keys, strict=True)):
            head_indices = [
                head for head in range(self._head_count) if heads is None or (layer, head) in heads
            ]
            size = query.shape[-1] // self._head_count
            queries = query[list(rows)].view(len(rows), -1, size)[:, head_indices].transpose(0, 1)
            keys = key.view(len(key), -1, size)[:, head_indices].transpose(0, 1)
            scores = queries.float() @ keys.float().transpose(1, 2) / size**0.5
            by_layer.append(scores.softmax(dim=-1).cpu().numpy())
        return np.concatenate(by_layer)


@contextmanager
def capture_attention(model: Model) -> Iterator[CapturedAttention]:
    """Record queries and keys of the cross-attention while a model runs once."""
    stack = model.stacks["cross"]
    captured = CapturedAttention(stack.heads)
    with ExitStack() as exit_stack:
        for layer in stack.layers:
            query = layer.attention.query or getattr(layer.attention.module, "q_proj", None)
            for module, store in (
                (query, captured.queries),
                (layer.attention.key, captured.keys),
            ):
                if module is None:
                    raise ModelError(
                        f"{model.name}: its table names no query projections in cross-attention"
                    )
                hook = partial(_store_output, store=store)
                exit_stack.callback(module.register_forward_hook(hook).remove)
        yield captured


def _store_output(
    module: nn.Module, args: HookArguments, output: Tensor, *, store: list[Tensor]
) -> None:
    store.append(output[0] if output.ndim == 3 else output)


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
        # By fill and number of samples, 0 for a fixed window.
        self._fill_states: dict[tuple[str, int], Tensor] = {}

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if it has no words.

        All of it is computed from one encoding of the sound, and those of silence and noise.
        """
        model = self.model
        tokens = self._make_table(window)
        if not len(tokens.ids):
            return None
        with model.in_use(model.state_dtype), torch.no_grad():
            states = self._encode_window(window)
            count = states.shape[1]
            n_frames = min(self._count_frames(window), count)
            fills = [self._encode_fill(window, fill)[:, :count] for fill in (SILENCE, NOISE)]
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
                (
                    edges[token_indices[0]],
                    max(edges[token_indices[-1] + 1], edges[token_indices[0]] + 1),
                )
                for token_indices in map(tokens.of_word, range(len(tokens.words)))
            ]
            filled = self._run(ids.expand(2, -1), torch.cat(fills))
            values = {
                INTACT: tokens.token_log_probabilities(intact[0]),
                SILENCE: tokens.token_log_probabilities(filled[0]),
                NOISE: tokens.token_log_probabilities(filled[1]),
            }
            if n_frames < count:
                unpadded = self._run(ids, states[:, :n_frames])
                values[NO_PADDING] = tokens.token_log_probabilities(unpadded[0])
            without_prompt = self._read_without_prompt(window, tokens, states, values)
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
            without_prompt,
        )

    def _read_without_prompt(
        self,
        window: DecodedWindow,
        tokens: TokenTable,
        states: Tensor,
        values: dict[str, np.ndarray],
    ) -> tuple[str, ...]:
        """Read the words without the prompt, and without the text of the window before; return what is likelier without
        both."""
        prompt, previous = split_prompt(self.model, window.ids[: window.n_prefix])
        parts = {NO_PROMPT: [prompt], NO_PREVIOUS: [previous], "": [prompt, previous]}
        present = {name: part for name, part in parts.items() if any(map(len, part))}
        count = sum(map(len, (prompt, previous)))
        log_probabilities = None
        for name, part in present.items():
            removed = {position for positions in part for position in positions}
            # Without any text before, its start token goes, too.
            removed |= {0} if len(removed) == count else set()
            ids = [id_ for at, id_ in enumerate(window.ids) if at not in removed]
            shortened = self._run(torch.tensor([ids], device=self.model.device), states)[0]
            # Rows of the prefix are not read; those behind it move.
            missing = shortened[:1].expand(len(removed), -1)
            log_probabilities = torch.cat([missing, shortened])
            if name:
                values[name] = tokens.token_log_probabilities(log_probabilities)
        if log_probabilities is None:
            return ()
        return tokens.other_choices(self.model, log_probabilities)

    def tokens_of(self, readings: WordReadings) -> TokenTable:
        """Return the tokens of a window's words."""
        return self._make_table(readings.window)

    def sum_log_probabilities(
        self, readings: WordReadings, words: Sequence[int], run_count: int
    ) -> np.ndarray:
        """Sum the log-probabilities of some words of a window in several runs at once, [R]; hooks make them differ.

        What is written behind these words is not run: the decoder does not look ahead.
        """
        window, tokens = readings.window, self.tokens_of(readings)
        is_own = np.isin(tokens.owners, words)
        rows, own_ids = tokens.rows[is_own], tokens.ids[is_own]
        with self.model.in_use(self.model.state_dtype), torch.no_grad():
            states = self._encode_window(window).expand(run_count, -1, -1)
            ids = torch.tensor([window.ids[: rows.max() + 1]], device=self.model.device)
            log_probabilities = self._run(ids.expand(run_count, -1), states)[:, rows, own_ids]
        sums: np.ndarray = log_probabilities.sum(dim=-1).cpu().numpy()
        return sums

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
                new_drafts, texts = draft_tokens(self.model, window.ids[:stop], start, ended=False)
                drafts += [
                    draft if draft.word is None else replace(draft, word=draft.word + len(words))
                    for draft in new_drafts
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

    def _encode_window(self, window: DecodedWindow) -> Tensor:
        if window.states is not None:
            return window.states
        return self._encode(window.inputs, window.audio_hash)

    def _encode(self, inputs: dict[str, Tensor], audio_hash: str | None = None) -> Tensor:
        fed = inputs_to_device(inputs, self.model.device, self.model.state_dtype)
        states: Tensor = run_encoder(self.model, fed, audio_hash)[0]
        return states

    def _encode_fill(self, window: DecodedWindow, fill: str) -> Tensor:
        """Encoder states of a silent or noisy window; computed once for windows of one length."""
        is_fixed = fixed_window_seconds(self.model) is not None
        key = fill, 0 if is_fixed else len(window.audio)
        if key not in self._fill_states:
            self._fill_states = {
                other: states for other, states in self._fill_states.items() if other[1] == key[1]
            }
            inputs = _fill_inputs(self.model, window, fill)
            self._fill_states[key] = self._encode(inputs, f"{fill}, {key[1]} samples")
        return self._fill_states[key]

    def _count_frames(self, window: DecodedWindow) -> int:
        """Frames of the encoder that hold the sound itself; those behind them are padding."""
        return max(1, self._grid(window).frames_between(0.0, window.seconds)[1])

    def _grid(self, window: DecodedWindow) -> FrameGrid:
        """Where frames lie; a window in the padding behind a sound has no samples."""
        return self.model.grid(max(1, len(window.audio)))

    def _run(self, ids: Tensor, states: Tensor) -> Tensor:
        """Run the decoder; log-probabilities [R, T, V] in double precision."""
        output = self.model.run_with_head(
            {"decoder_input_ids": ids}, encoder_outputs=wrap_encoder_states(states)
        )
        log_probabilities: Tensor = output.logits.double().log_softmax(dim=-1)
        return log_probabilities


def _fill_inputs(model: Model, window: DecodedWindow, fill: str) -> dict[str, Tensor]:
    """Inputs of a window of silence or noise of the same length; of all of a fixed window."""
    seconds = fixed_window_seconds(model)
    count = len(window.clip().audio(window.sample_rate))
    if seconds is not None:
        count = round(seconds * window.sample_rate)
    audio = make_fill(fill, count)
    try:
        clip = Clip.from_array(audio, window.sample_rate, name=fill)
        with np.errstate(divide="ignore", invalid="ignore"):
            return dict(model.family.prepare(model, clip, ("encoder",)).inputs)
    except InputError:  # features that are divided by how much they vary
        clip = Clip.from_array(
            make_fill(NOISE, count) * (_FAINT_LEVEL / NOISE_LEVEL), window.sample_rate, name=fill
        )
        return dict(model.family.prepare(model, clip, ("encoder",)).inputs)


def _times(window: DecodedWindow, start: float, end: float) -> tuple[float, float]:
    """Seconds in the recording, within the window."""
    return window.start + min(start, window.seconds), window.start + min(end, window.seconds)
