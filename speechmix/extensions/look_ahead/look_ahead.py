"""Look-ahead of one word: what its score loses without the sound that comes later.

In: a speech model and a clip with a target. Out: a row for each delay and each way to remove what
comes later than the word's end plus the delay. The ways are nested:

    word      attention from the word's frames to later frames (in a decoder: cross-attention from the
              positions that predict the word)
    prefix    attention from all frames up to there to later ones, so that none passes them on
    cut       the sound itself: the clip ends there; "zeros" keeps its length, and mutes the rest

"past" is the control of "word": it removes as many frames, which lie before the word's start minus the
delay. Only the removal of sound also removes what convolutions, and norms over the clip, know of the
future. "chunk" removes nothing at the word: the encoder attends within chunks, as a streaming model.

Remove attention between chosen positions while a model runs: attention knock-out, streaming.

In: for some attention blocks the edges (target, source) that are removed, in each run of a batch.
Out: the model's hooks while the block lasts. A removed edge has the attention score minus infinity,
so that the weights of the other sources sum to 1 (attention knock-out, Geva et al. 2023, Dissecting
recall of factual associations in auto-regressive language models). Masks of the model itself stay.

Score of one word by a CTC model, computed in the frames of the word alone.

In: a prepared decision about a clip with a target. Out: an objective that does not depend on how other
words are written, and that can be computed for a sound that ends behind the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...adapters.binding.bound_layers import AttentionModules
from ...adapters.capture.attention_calls import SOFTMAX_FUNCTIONS
from ...adapters.capture.forward_pass import arguments_by_name, use_attention
from ...adapters.generation.emission_paths import best_ctc_path
from ...adapters.generation.greedy_generation import transcribe
from ...adapters.transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words
from ...inputs.words.transcript_accuracy import count_word_errors
from ...interventions.decision import Decision, require_clip, target_labels
from ...interventions.removals import FILL_SAMPLE_RATE, prepare_sound_inputs
from ...interventions.value_knock_out import ALL_LAYERS, layer_windows
from ...mixing.maps.numerics import ctc_log_probability
from ...mixing.measures.token_objectives import Objective, token_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.passes.request import ObjectiveOption


def has_letter_logits(model: Model) -> bool:
    """Return whether a model's logits are letters in frames, and not labels of the whole sound."""
    return model.capabilities.decoding == "frames" and not model.has_label_head


def ctc_word_objective(decision: Decision, score: str = "log_probability") -> Objective:
    """Return the log-probability of a word's letters in its frames, summed over all alignments.

    The frames are fixed once: from the word's first frame to its last, extended to the frames of its
    letters on the best path of the intact model through the whole text, and limited by the letters of
    the words before and after. So the score does not depend on how later words are written, and can
    be computed for a sound that ends earlier. "contrast" subtracts the score of the foil.
    """
    model, clip = decision.model, require_clip(decision)
    labels, indices = target_labels(decision, clip)
    scores = decision.read_output(decision.inputs, lambda output: token_logits(output)[0])
    blank = model.config.pad_token_id
    paths, _ = best_ctc_path(scores.float().log_softmax(dim=-1).cpu(), labels, blank=blank)
    (word,) = decision.select_sources("encoder", [clip.target or 0])
    frames = [*word.positions, *(frame for index in indices for frame in paths[index])]
    previous_frame = paths[indices[0] - 1][-1] if indices[0] else -1
    next_frame = paths[indices[-1] + 1][0] if indices[-1] + 1 < len(labels) else len(scores)
    first, stop = max(min(frames), previous_frame + 1), min(max(frames) + 1, next_frame)
    spellings = [[labels[index] for index in indices]]
    if score == "contrast":
        spellings.append(list(model.tokenizer(clip.foil).input_ids))

    def function(output: ModelOutput) -> Tensor:
        rows = token_logits(output).log_softmax(dim=-1)[:, first:stop]
        target, *foil = (
            torch.stack([ctc_log_probability(row, ids, blank=blank) for row in rows])
            for ids in spellings
        )
        return target - foil[0] if foil else target

    return Objective(function, decision.objective.span, {"kind": score, "frames": [first, stop]})


# Of the numbers of targets Q and sources K: which edges are removed, bool [runs or 1, Q, K].
EdgeFunction = Callable[[int, int], Tensor]


@contextmanager
def remove_attention_edges(
    model: Model, edges: Mapping[tuple[str, int], EdgeFunction]
) -> Iterator[None]:
    """Let a model run without some edges of its attention.

    Parameters
    ----------
    model : Model
    edges : mapping of (stack, layer) to callable
        Numbers of targets and sources -> bool Tensor [R, Q, K], True where an edge is removed; the
        model then runs a batch of R, or any batch if R is 1.

    Raises
    ------
    InputError
        If there is no such stack or layer.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> def remove_future(targets, sources):
    ...     return torch.ones(1, targets, sources, dtype=torch.bool).triu(1)
    >>> with remove_attention_edges(model, {("encoder", 0): remove_future}):
    ...     maps = speechmix.mix(model, bundled.clips()[0], measures=["attention"])
    >>> (maps["attention", "encoder"].scores[0] > 0).tolist()  # "notre maison"
    [[True, False], [True, True]]
    """
    with ExitStack() as exit_stack:
        exit_stack.enter_context(use_attention(model.module, model.readable_attention))
        for (name, layer), removed in edges.items():
            if name not in model.stacks or not 0 <= layer < len(model.stacks[name]):
                raise InputError(
                    f"{model.name} has no layer {layer} of a stack {name!r}; it has "
                    f"{ {stack: len(layers) for stack, layers in model.stacks.items()} } layers"
                )
            stack = model.stacks[name]
            _hook_attention(stack.layers[layer].attention, stack.heads, removed, exit_stack)
        yield


@contextmanager
def streaming_attention(
    model: Model, chunk: float, left: float | None = None, stack: str = "encoder"
) -> Iterator[None]:
    """Let an offline encoder attend as a streaming one: within chunks of time and some left context.

    A frame sees its own chunk to the end, and the time before the chunk. Convolutions, and norms
    over the whole clip, are as they were: they still see what comes later.

    Parameters
    ----------
    model : Model
        A speech model. Whatever is computed with it in the block is computed under the mask.
    chunk, left : float
        Seconds; all that came before for ``left=None``.
    stack : str

    Raises
    ------
    InputError
        If a chunk is shorter than a frame, or the model has no such stack.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> with streaming_attention(model, chunk=0.2, left=0.4):
    ...     maps = speechmix.mix(model, bundled.clips()[0])
    """
    if stack not in model.stacks:
        raise InputError(f"{model.name} has no stack {stack!r}; it has {list(model.stacks)}")
    stride = model.grid(10 * model.sample_rate).stride
    chunk_frames = round(chunk / stride)
    left_frames = None if left is None else round(left / stride)
    if chunk_frames < 1 or (left_frames or 0) < 0:
        raise InputError(
            f"a chunk should have at least one frame of {stride:g} s and the left context none or "
            f"more, found chunk={chunk}, left={left}"
        )

    def removed(targets: int, sources: int) -> Tensor:
        return chunk_edges(targets, chunk_frames, left_frames).to(model.device)

    edges = {(stack, layer): removed for layer in range(len(model.stacks[stack]))}
    texts, cache = model.generated_texts, model.activation_cache
    model.generated_texts, model.activation_cache = {}, None  # those are of full attention
    try:
        with remove_attention_edges(model, edges):
            yield
    finally:
        model.generated_texts, model.activation_cache = texts, cache


def chunk_edges(length: int, chunk: int, left: int | None) -> Tensor:
    """Return the edges that attention within chunks lacks, bool [1, T, T].

    Examples
    --------
    >>> chunk_edges(4, chunk=2, left=1)[0].int().tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]
    """
    positions = torch.arange(length)
    starts = (positions // chunk * chunk)[:, None]
    is_removed = positions >= starts + chunk
    return (is_removed if left is None else is_removed | (positions < starts - left))[None]


def _hook_attention(
    attention: AttentionModules, heads: int, removed: EdgeFunction, exit_stack: ExitStack
) -> None:
    """Mask the calls of one attention module until `exit_stack` closes."""
    open_masks = exit_stack.enter_context(ExitStack())

    def start_masking(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        states = arguments_by_name(module, args, kwargs)[0]
        softmax_heads = heads if attention.needs_eager else None
        open_masks.enter_context(_EdgeRemover(removed, states, softmax_heads))

    def stop_masking(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
        open_masks.close()

    for handle in (
        attention.module.register_forward_pre_hook(start_masking, with_kwargs=True),
        attention.module.register_forward_hook(stop_masking),
    ):
        exit_stack.callback(handle.remove)


class _EdgeRemover(TorchFunctionMode):
    """Masks what enters torch's attention functions, or the first softmax, of an attention module.

    `states` [R, Q, D] are those of the targets; packed [R Q, D], where attention is called block by
    block. `softmax_heads` counts the heads where attention is the module's own code; they may share
    an axis with the runs.
    """

    def __init__(self, removed: EdgeFunction, states: Tensor, softmax_heads: int | None):
        super().__init__()
        self._removed, self._softmax_heads = removed, softmax_heads
        self._is_packed = states.ndim == 2
        self._target_count = states.shape[-2]
        self._position = 0  # of packed states: positions of the calls before this one

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> ModelOutput:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
            call = {**dict(zip(names, args, strict=False)), **kwargs}
            query, key, value = (call.pop(name) for name in names[:3])
            call["attn_mask"] = self._mask(query, key, **call)
            return func(query, key, value, **{**call, "is_causal": False})
        if func is F.multi_head_attention_forward:
            kwargs["attn_mask"] = self._mask_multi_head(args, kwargs.get("attn_mask"))
        elif self._softmax_heads and func in SOFTMAX_FUNCTIONS:
            scores = args[0]
            by_head = scores.reshape(-1, self._softmax_heads, *scores.shape[-2:])
            edges = self._removed(*scores.shape[-2:])[:, None]
            args = (by_head.masked_fill(edges, -torch.inf).reshape(scores.shape), *args[1:])
            self._softmax_heads = None  # that was the softmax of the attention
        return func(*args, **kwargs)

    def _mask(
        self,
        query: Tensor,
        key: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        **_: object,
    ) -> Tensor:
        """The mask of a call, [runs, 1 or H, Q, K], without the removed edges."""
        edges = self._edges_of_call(query, key)
        if is_causal:
            edges = edges | torch.ones_like(edges[0, 0]).triu(1)
        if attn_mask is None:
            return ~edges
        if attn_mask.dtype == torch.bool:
            return attn_mask & ~edges
        return torch.where(edges, -torch.inf, attn_mask)

    def _edges_of_call(self, query: Tensor, key: Tensor) -> Tensor:
        """Removed edges of a call, [runs, 1, Q, K]; of blocks of positions [runs x blocks, 1, q, q]."""
        rows, total = query.shape[-2], self._target_count
        if self._is_packed:
            start, self._position = self._position, self._position + rows
            runs = self._removed(total, total)
            length = total // len(runs)
            run, start = divmod(start, length)
            return runs[run, start : start + rows, start : start + rows][None, None]
        if rows == total:
            return self._removed(rows, key.shape[-2])[:, None]
        count = -(-total // rows)
        if key.shape[-2] != rows or len(query) % count:
            raise ModelError(
                f"attention of {rows} positions to {key.shape[-2]}, where the layer has {total}: "
                "edges cannot be removed from it"
            )
        edges = F.pad(self._removed(total, total), (0, count * rows - total) * 2)
        blocks: Tensor = torch.unflatten(torch.unflatten(edges, 2, (count, rows)), 1, (count, rows))
        blocks = blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1).flatten(0, 1)[:, None]
        return blocks.repeat(len(query) // len(blocks), 1, 1, 1)

    def _mask_multi_head(self, args: HookArguments, mask: Tensor | None) -> Tensor:
        """The mask [runs x H, Q, K] of torch's own function, whose True means left out."""
        (targets, runs, _), heads = args[0].shape, args[4]
        edges = self._removed(targets, args[1].shape[0]).expand(runs, -1, -1)
        edges = edges.repeat_interleave(heads, dim=0)
        if mask is None or mask.dtype == torch.bool:
            return edges if mask is None else edges | mask
        return torch.where(edges, -torch.inf, mask)


WORD, PREFIX, PAST, CUT, ZEROS, CHUNK = ("word", "prefix", "past", "cut", "zeros", "chunk")
BOTH_STACKS = "encoder + cross"
ERRORS = ("errors", "offline_errors")  # words of a transcript, within chunks and without
DELAYS_MS = (0, 40, 80, 120, 160, 240, 320, 480, 640, 960)
_NO_EFFECT = 1e-4  # nats; below it an effect is the rounding of another order of summing
_MAX_BATCH_POSITIONS = 24_000

_Block = tuple[str, int]  # stack, layer
_Row = dict[str, Any]


def look_ahead_effects(
    model: Model,
    clip: Clip,
    *,
    delays_ms: Sequence[float] = DELAYS_MS,
    windows: Sequence[int | str] = (ALL_LAYERS, 1),
    chunks_ms: Sequence[float] = (),
    left_ms: float | None = None,
    score: ObjectiveOption = "log_probability",
) -> list[dict[str, Any]]:
    """Measure how much lower a word's score is without what comes later, for each delay after its end.

    Parameters
    ----------
    model : Model
        A speech model with its head.
    clip : Clip
        With word times and a target.
    delays_ms : sequence of float
        Milliseconds after the word's end (in the control: before its start).
    windows : sequence of int or "all"
        Numbers of consecutive layers in which attention is removed together, as for `knock_out`.
    chunks_ms : sequence of float
        Lengths of chunks in which the encoder attends; see `streaming_attention`.
    left_ms : float, optional
        Left context of each chunk; all by default.
    score : optional
        "log_probability" of the target, or "contrast" with its foil (for a CTC model:
        `ctc_word_objective`); for a classifier, those of its label. Or another objective of `mix`.

    Returns
    -------
    list of dict
        removal, stack ("encoder", "cross", "encoder + cross", "input"), window, layer (the first of
        the window, None for "all"), ms (delay, or length of the chunk), frames (number of removed
        frames), score (nats), effect (intact score minus this score: the loss), has_later (whether
        the clip has sound after the delay). With chunks also errors and offline_errors: how many
        words of the transcript differ from the text, within chunks and with full attention.

    Raises
    ------
    InputError
        If an option is not possible, or the clip has no target with frames.

    Notes
    -----
    The loss of "prefix" compares two runs without attention to padding. That of "cut" in a CTC model
    compares scores in the frames that remain; it is NaN where these have no room for the word.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> rows = look_ahead_effects(model, bundled.clips()[0], delays_ms=[0, 80], windows=["all"])
    >>> [(row["removal"], row["ms"], row["frames"]) for row in rows][:3]  # "notre maison"
    [('word', 0.0, 12), ('prefix', 0.0, 12), ('past', 0.0, 12)]
    """
    if not delays_ms or min(delays_ms) < 0:
        raise InputError(f"delays_ms should be numbers from 0 on, found {list(delays_ms)}")
    decision = _prepare_word_decision(model, clip, score)
    runs = [
        run for delay in delays_ms for run in _list_edge_removals(decision, float(delay), windows)
    ]
    changed_runs = [run for run in runs if run.row["frames"]]
    references = [run.reference for run in changed_runs if run.reference is not None]
    intact = _read_without_edges(decision, [*changed_runs, *references])
    rows = [{"score": intact, **run.row} for run in runs]
    for row, run in zip(rows, runs, strict=True):
        if run.row["frames"] and run.reference is not None:
            row["effect"] = run.reference.row["score"] - row["score"]
    rows += [row for delay in delays_ms for row in _remove_sound(decision, float(delay), intact)]
    offline_errors = _count_transcript_errors(model, clip) if chunks_ms else None
    for chunk in chunks_ms:
        row = _label_row(CHUNK, "encoder", float(chunk))
        with streaming_attention(model, chunk / 1000, left_ms and left_ms / 1000):
            row["score"] = decision.input_margin(decision.prepared.inputs)
            errors = (_count_transcript_errors(model, clip), offline_errors)
        rows.append(row | dict(zip(ERRORS, errors, strict=True)))
    ms_left = 1000 * (clip.duration - (clip.words or ())[clip.target or 0].end)
    for row in rows:
        effect = row.get("effect", intact - row["score"])
        row["effect"] = 0.0 if abs(effect) < _NO_EFFECT else effect
        row["has_later"] = row["removal"] == CHUNK or row["ms"] < ms_left
    return rows


def _count_transcript_errors(model: Model, clip: Clip) -> float:
    """Count words in which the greedy transcript differs from the text; NaN without a transcript."""
    if not model.can_transcribe:
        return float("nan")
    text = clip.text or join_words(clip.spoken_words)
    return count_word_errors(text, transcribe(model, clip), clip.language)


def _prepare_word_decision(model: Model, clip: Clip, score: ObjectiveOption) -> Decision:
    """Prepare the score of a clip's target; for a CTC model, that of `ctc_word_objective`."""
    if not model.hears or "encoder" not in model.stacks:
        raise InputError(f"{model.name} has no speech encoder, whose look-ahead could be measured")
    if not isinstance(clip.target, int):
        raise InputError(f"{clip.name}: give the word whose score is measured as target=")
    decision = Decision.prepare(model, clip, objective=score)
    if isinstance(score, str) and has_letter_logits(model):
        return replace(decision, objective=ctc_word_objective(decision, score))
    return decision


@dataclass(frozen=True)
class _EdgeRemoval:
    """A run: its row, and the targets and sources between which edges are removed, by block."""

    row: _Row
    edges: Mapping[_Block, tuple[Sequence[int], Sequence[int]]]
    reference: _EdgeRemoval | None = None  # compared with, where that is not the intact model


def _label_row(removal: str, stack: str, ms: float, **edge_labels: object) -> _Row:
    """Return a row's columns: window, layer and frames are those of all layers, unless given."""
    labels = {"window": ALL_LAYERS, "layer": None, "frames": None, **edge_labels}
    return {"removal": removal, "stack": stack, "ms": ms, **labels}


def _list_edge_removals(
    decision: Decision, delay_ms: float, windows: Sequence[int | str]
) -> list[_EdgeRemoval]:
    """List the runs of one delay."""
    model, clip = decision.model, require_clip(decision)
    grid = model.grid(len(clip.audio(model.sample_rate)))
    target = clip.target or 0
    word, delay = (clip.words or ())[target], delay_ms / 1000
    frames = [f for part in decision.select_sources("encoder", [target]) for f in part.positions]
    if not frames:
        raise InputError(f"{clip.name}: the target {word.text!r} has no frame of {model.name}")
    clip_stop = grid.frames_between(0, clip.duration)[1]
    later = range(grid.frames_between(word.end + delay, clip.duration)[0], clip_stop)
    past_stop = grid.frames_between(0, max(word.start - delay, 0))[1]
    past = range(max(0, past_stop - len(later)), past_stop)
    # In a fixed window, frames behind the clip may pass the future on. So prefix runs, and the runs
    # that they are compared with, have no attention to them.
    padding = range(clip_stop, grid.n_frames)
    tokens = decision.prepared.inputs.get("decoder_input_ids")
    positions: dict[str, dict[str, Sequence[int]]] = {
        "encoder": {WORD: frames, PREFIX: range(later.start), PAST: frames},
        "cross": {
            WORD: decision.read_positions,
            PREFIX: range(0 if tokens is None else tokens.shape[1]),
            PAST: decision.read_positions,
        },
    }
    stacks = {name: len(model.stacks[name]) for name in positions if name in model.stacks}
    blocks_by_window = [
        (name, window, [(name, layer) for layer in layers])
        for name, count in stacks.items()
        for window in windows
        for layers in layer_windows(count, window)
    ]
    if len(stacks) > 1:
        blocks = [(name, layer) for name, count in stacks.items() for layer in range(count)]
        blocks_by_window.append((BOTH_STACKS, ALL_LAYERS, blocks))
    runs = []
    for removal, sources in {WORD: later, PREFIX: later, PAST: past}.items():
        for stack, window, blocks in blocks_by_window:
            labels = {
                "layer": None if window == ALL_LAYERS else blocks[0][1],
                "frames": len(sources),
            }
            row = _label_row(removal, stack, delay_ms, window=str(window), **labels)
            hidden = padding if removal == PREFIX else range(0)
            edges, padding_edges = (
                {block: (positions[block[0]][removal], removed) for block in blocks}
                for removed in ([*sources, *hidden], hidden)
            )
            reference = _EdgeRemoval({}, padding_edges) if hidden else None
            runs.append(_EdgeRemoval(row, edges, reference))
    return runs


def _read_without_edges(decision: Decision, runs: Sequence[_EdgeRemoval]) -> float:
    """Put the score into each run's row; return the intact one.

    The intact run has masks, too: with them it sums in the same order as the others.
    """
    blocks = {block for run in runs for block in run.edges}
    clip, model = require_clip(decision), decision.model
    length = model.grid(len(clip.audio(model.sample_rate))).n_frames
    size = max(1, min(64, _MAX_BATCH_POSITIONS // length))
    intact = _EdgeRemoval({}, {})
    for start in range(0, len(runs) + 1, size):
        batch = [intact, *runs][start : start + size]
        inputs = {
            name: torch.cat([tensor] * len(batch)) for name, tensor in decision.inputs.items()
        }
        edges = {block: partial(_stack_edges, batch, block, model.device) for block in blocks}
        with remove_attention_edges(model, edges):
            scores = decision.read_output(inputs, decision.compute_margins).tolist()
        for run, score in zip(batch, scores, strict=True):
            run.row["score"] = score
    return float(intact.row["score"])


def _stack_edges(
    runs: Sequence[_EdgeRemoval], block: _Block, device: torch.device, targets: int, sources: int
) -> Tensor:
    """Mark the removed edges of a block of attention in each run, bool [R, Q, K]."""
    removed = torch.zeros(len(runs), targets, sources, dtype=torch.bool)
    for run_edges, run in zip(removed, runs, strict=True):
        rows, columns = run.edges.get(block, ((), ()))
        run_edges[torch.tensor(list(rows), dtype=torch.long)[:, None], list(columns)] = True
    return removed.to(device)


def _remove_sound(decision: Decision, delay_ms: float, intact: float) -> list[_Row]:
    """Compute the score of a clip that ends, or is silent, from the delay after the word on."""
    model, clip = decision.model, require_clip(decision)
    audio = clip.audio(FILL_SAMPLE_RATE)
    stop = round(((clip.words or ())[clip.target or 0].end + delay_ms / 1000) * FILL_SAMPLE_RATE)
    muted = audio.copy()
    muted[stop:] = 0
    # A fixed window pads with zeros, and an audio language model has a token for each frame.
    has_fixed_length = model.grid(len(audio)).is_fixed_window or model.converses
    sounds = {ZEROS: muted} if has_fixed_length else {CUT: audio[:stop], ZEROS: muted}
    rows = []
    for removal, sound in sounds.items():
        row = {**_label_row(removal, "input", delay_ms), "score": intact}
        if stop < len(audio):
            changed = Clip.from_array(
                sound, FILL_SAMPLE_RATE, name=clip.name, language=clip.language
            )
            frame_count = model.grid(len(changed.audio(model.sample_rate))).n_frames
            inputs = {**decision.prepared.inputs, **prepare_sound_inputs(model, changed)}
            row["score"] = decision.input_margin(inputs)
            if removal == CUT and has_letter_logits(model):
                row["effect"] = _score_first_frames(decision, frame_count) - row["score"]
        rows.append(row)
    return rows


def _score_first_frames(decision: Decision, count: int) -> float:
    """Compute the score of the intact clip in its first frames alone."""

    def read_frames(output: ModelOutput) -> Tensor:
        output.logits = output.logits[:, :count]
        return decision.compute_margins(output)

    return float(decision.read_output(decision.prepared.inputs, read_frames))
