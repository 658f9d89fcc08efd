"""Read the target's sub-token probabilities and margin from the logits.

In: a `Decision` and the logits of the clip as it is. Out: `Reading`s, which say at which rows of
any logits of the clip the probability of which token is read:

    arg-max     tokens that the intact model finds likeliest where the target is predicted; of a CTC model, at its own frames
    transcript  the target's own tokens there; of a CTC model its letters, at their frames on the best path through the clip
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import CausalLMOutput

from ..adapters.generation.ctc_paths import best_ctc_path
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.words.multipart_words import join_words
from ..inputs.words.words_in_text import locate_target
from ..mixing.maps.numerics import ctc_log_probability
from .decision import Decision

ARG_MAX, TRANSCRIPT, MARGIN, TEXT = READINGS = ("arg-max", "transcript", "margin", "text")


@dataclass(frozen=True)
class Reading:
    """Probabilities of a word's sub-tokens; `name` is "arg-max" or "transcript".

    By sub-token, `rows` are one row, or the frames of a letter, over which the mean is taken, and
    `ids` say which token is read there.
    """

    name: str
    rows: list[list[int]]
    ids: list[int]

    def of(self, logits: Tensor) -> list[float]:
        """Return the probability of each sub-token from logits [T, V]."""
        return [
            logits[rows].softmax(dim=-1)[:, token].mean().item()
            for rows, token in zip(self.rows, self.ids, strict=True)
        ]


def list_readings(decision: Decision, intact_logits: Tensor) -> list[Reading]:
    """List the readings of a clip's target in the logits [T, V] of the clip as it is; an InputError
    if the target has no token, or no frame."""
    clip = require_clip(decision)
    if decision.prepared.tokens is None:
        frames = _target_frames(decision, clip)
        labels, label_indices = target_labels(decision, clip)
        paths, _ = best_ctc_path(
            intact_logits.float().log_softmax(dim=-1).cpu(),
            labels,
            blank=decision.model.config.pad_token_id,
        )
        target_frames = [paths[label_index] for label_index in label_indices]
        transcript_reading = Reading(
            TRANSCRIPT, target_frames, [labels[label_index] for label_index in label_indices]
        )
        rows = [[frame] for frame in frames]
    else:
        tokens = decision.prepared.tokens
        label_indices = [
            label_index
            for label_index, word in enumerate(tokens.words[: len(tokens.ids)])
            if word == clip.target
        ]
        rows = [[label_index - 1] for label_index in label_indices]
        transcript_reading = Reading(
            TRANSCRIPT, rows, [tokens.ids[label_index] for label_index in label_indices]
        )
    return [
        Reading(ARG_MAX, rows, [int(intact_logits[row].argmax()) for (row,) in rows]),
        transcript_reading,
    ]


def read_values(
    decision: Decision, readings: Sequence[Reading], logits: Tensor
) -> dict[str, list[float]]:
    """Read the values of a target from logits [T, V]: for each reading, a number per sub-token."""
    values = {reading.name: reading.of(logits) for reading in readings}
    values[MARGIN] = [decision.compute_margins(CausalLMOutput(logits=logits[None])).item()]
    if decision.prepared.tokens is None:
        clip, model = require_clip(decision), decision.model
        labels = model.tokenizer(_clip_text(clip)).input_ids
        scores = logits.log_softmax(dim=-1)
        values[TEXT] = [ctc_log_probability(scores, labels, blank=model.config.pad_token_id).item()]
    return values


def require_clip(decision: Decision) -> Clip:
    """Return the clip of a decision; an InputError if it is about a text, or prepared inputs."""
    if not isinstance(decision.item, Clip):
        raise InputError(f"{decision.name}: expected a clip, whose sound can be silenced")
    return decision.item


def _clip_text(clip: Clip) -> str:
    return clip.text or join_words(clip.spoken_words)


def _target_frames(decision: Decision, clip: Clip) -> tuple[int, ...]:
    frames = [
        source.positions for source in decision.sources["encoder"] if source.index == clip.target
    ]
    if not frames:
        raise InputError(f"{clip.name}: the target has no frame to be read at")
    return frames[0]


def target_labels(decision: Decision, clip: Clip) -> tuple[list[int], list[int]]:
    """Return the labels of the whole text, and the indices of the target's labels."""
    text, tokenizer = _clip_text(clip), decision.model.tokenizer
    span = locate_target(clip.words or (), clip.target or 0, text, where=clip.name)
    labels = list(tokenizer(text).input_ids)
    target_labels, remaining_labels = (
        list(tokenizer(text_piece).input_ids)
        for text_piece in (text[slice(*span)], text[span[0] :].rstrip())
    )
    # Counted from the end: a space before the target may be a label of its own.
    start = len(labels) - len(remaining_labels)
    if not target_labels or labels[start : start + len(target_labels)] != target_labels:
        raise InputError(
            f"{clip.name}: the letters of {text[slice(*span)]!r} are not labels of their own in "
            "this model"
        )
    return labels, list(range(start, start + len(target_labels)))
