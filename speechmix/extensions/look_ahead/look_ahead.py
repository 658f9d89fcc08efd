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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...adapters.generation.greedy_generation import transcribe
from ...adapters.patching.attention_edges import remove_attention_edges, streaming_attention
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words
from ...inputs.words.transcript_accuracy import count_word_errors
from ...interventions.audio_removal import FILL_SAMPLE_RATE
from ...interventions.decision import Decision
from ...interventions.removals import prepare_sound_inputs
from ...interventions.target_readings import require_clip
from ...interventions.value_knock_out import ALL_LAYERS, layer_windows
from .ctc_word_score import ctc_word_objective, has_letter_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from ...mixing.passes.request import ObjectiveOption

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
