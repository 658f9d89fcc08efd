"""View: model inputs of one item, and the spans that are rows and columns.

Whether a model writes the text of a clip, from the states of the forward pass that its maps are of.

In: the output of the pass. Out: a note where a CTC model's likeliest letters are another text, or
where a decoder that is fed the text finds other tokens much likelier. In a recording that is too
soft, say, the model recognises nothing, and no share in its maps would show it.

Which stacks and layers a request names.

Resolve the spans of frames or words that a request names.

In: a clip and its frames, or ranges of positions as a user passes them; a request. Out: `Span`s,
the units of the encoder's side of a `View`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

from ...adapters.binding.output_head import head_projection
from ...adapters.capture.layer_run import Block
from ...adapters.generation.audio_prompt import describe_prompt_and_answer
from ...adapters.generation.model_inputs import PreparedInputs
from ...adapters.generation.text_tokens import can_generate_text, generated_text_key
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs, ModelOutput
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import FRAMES, SegmentOption, segment_clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.multipart_words import join_words
from ...inputs.words.spans import (
    Span,
    SpanRequest,
    clip_frame_count,
    context_spans,
    frame_spans,
    parse_span_request,
    word_spans,
)
from ...inputs.words.timed_words import Word
from ...inputs.words.transcript_accuracy import MAX_ERROR_RATE, character_error_rate
from ...inputs.words.unit_tiers import PHONE, TIER_UNITS, role_units, unit_owners
from ..measures.measure import Units
from .request import MixRequest

if TYPE_CHECKING:
    from ...inputs.audio.frame_grid import FrameGrid

ItemT = TypeVar("ItemT")


def audio_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Units on the audio side of a clip: frames, or words with what is included around them."""
    words = word_spans(clip.words, grid, rounding=request.rounding) if clip.words else []
    if request.units == "frame":
        return _frame_spans(clip, grid, words, request.window)
    if request.units in TIER_UNITS:
        words = _tier_spans(clip, grid, request)
    elif clip.spoken_words:
        _warn_short_units(clip, clip.spoken_words, "word", grid, request)
    if not words:
        raise InputError(
            f"{clip.name} has no word times: give words= (TextGrid, CTM, JSON, TSV), align its "
            "text with "
            "speechmix.align(clip), or ask for units='frame'"
        )
    # Where nobody speaks, what a fixed window adds behind the clip may be what a text comes from.
    include = (*request.include, "padding") if clip.has_segments else request.include
    return context_spans(words, grid, clip.duration, include=include) if include else words


def _frame_spans(
    clip: Clip, grid: FrameGrid, words: Sequence[Span], window: tuple[float, float] | None
) -> list[Span]:
    """Frames as units, each with the word that it is in: those within a window, or those of the
    clip and the padding of a fixed window as one more unit."""
    word_by_frame = {frame: span.word for span in words for frame in span.positions}
    frames = [replace(span, word=word_by_frame.get(span.start)) for span in frame_spans(grid)]
    if window is None:
        clip_frames = frames[: clip_frame_count(grid, clip.duration, words)]
        return context_spans(clip_frames, grid, clip.duration, include=["padding"])
    start_seconds, end_seconds = window
    frames = [
        frame
        for frame in frames
        if start_seconds <= (frame.onset or 0.0) and (frame.offset or 0.0) <= end_seconds
    ]
    if not frames:
        raise InputError(
            f"{clip.name}: no frame lies within window={window} of its {clip.duration:.2f} s; "
            f"window=(0, {grid.duration:g}) takes all {grid.n_frames} frames"
        )
    return frames


def _tier_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Phones or syllables as units, each with the word that it is in."""
    unit = request.units
    if unit not in clip.tiers:
        advice = ", or align its text with speechmix.align(clip, tiers=['word', 'phone'])"
        raise InputError(
            f"{clip.name} has no {unit}s, but {', '.join(clip.tiers) or 'no tiers'}: give "
            f"tiers={{{unit!r}: ...}}{advice if unit == PHONE else ''}"
        )
    tier = clip.tiers[unit]
    spans = word_spans(tier, grid, rounding=request.rounding, unit=unit)
    _warn_short_units(clip, tier, unit, grid, request)
    owners = unit_owners(tier, clip.spoken_words)
    return [replace(span, kind=unit, word=owner) for span, owner in zip(spans, owners, strict=True)]


def _warn_short_units(
    clip: Clip, units: Sequence[Word], unit: str, grid: FrameGrid, request: MixRequest
) -> None:
    """Say how many units hold the centre of no frame, so that a frame of a neighbour is theirs."""
    short_count = sum(
        all(
            first == stop for first, stop in (grid.frames_between(*part) for part in item.intervals)
        )
        for item in units
    )
    if short_count and request.rounding == "disjoint":
        warnings.warn(
            f"{clip.name}: {short_count} of {len(units)} {unit}s contain the centre of no frame "
            f"({1000 * grid.stride:g} ms each): each has the next free frame, which is mostly a "
            "neighbour's sound",
            stacklevel=3,
        )


def spans_at_positions(spans: Sequence[Span], grid: FrameGrid) -> list[Span]:
    """Units of frames at the positions of the model that hold these frames."""
    if grid.n_positions == grid.n_frames:
        return list(spans)
    return [span.with_ranges(grid.position_ranges(span.ranges)) for span in spans]


def segment_item(model: Model, item: ItemT, segments: SegmentOption | None) -> ItemT:
    """Return a clip with segments in place of words, as the option `segments` says; any item for
    None.

    An InputError says that the item is no clip, or cannot be divided so (`segment_clip`).
    """
    if segments is None:
        return item
    if not isinstance(item, Clip):
        raise InputError(f"segments={segments!r} divides the sound of a clip, found {item!r:.80}")
    grid = None
    if segments == FRAMES:
        grid = model.grid(len(item.audio(model.sample_rate)))
    return cast("ItemT", segment_clip(item, segments, grid=grid))


def parse_spans(requested_spans: Sequence[SpanRequest]) -> list[Span]:
    """Return what the option `spans` requests as spans; the InputError of a wrong one names it.

    Wrong are no spans, one that is empty or no range of whole positions, pieces of one that
    overlap, and one in pieces that shares a position with another.
    """
    spans = []
    for index, span in enumerate(requested_spans):
        if not isinstance(span, Span):
            try:
                ranges = parse_span_request(span)
            except (TypeError, ValueError):
                raise InputError(
                    f"span {index} should be (start, stop) in whole frames, or a list of these, "
                    f"found {span!r}"
                ) from None
            if len(ranges) == 1:  # checked below, as any span
                span = Span(*ranges[0], str(index), "word", index)
            else:
                span = Span.from_ranges(ranges, str(index), word=index)
        if not 0 <= span.start < span.stop:
            raise InputError(
                f"span {index} should be half-open [start, stop) with 0 <= start < stop, found "
                f"{span}"
            )
        spans.append(span)
    if not spans:
        raise InputError("spans is empty: give at least one, or None for every frame")
    if any(span.pieces for span in spans):
        _check_overlap(spans)
    return spans


def _check_overlap(spans: Sequence[Span]) -> None:
    """Refuse a unit in pieces that shares a position with another: whose would it be?"""
    owner_by_position: dict[int, int] = {}
    for index, span in enumerate(spans):
        for position in span.positions:
            other = owner_by_position.setdefault(position, index)
            if other != index and (span.pieces or spans[other].pieces):
                raise InputError(
                    f"spans {other} and {index} share position {position}: where one is in pieces, "
                    "each position is in one span"
                )


Item = Clip | Sentence | str | Inputs


class View(ABC):
    """One item as a model sees it; `item` is None for prepared inputs.

    It is made with the inputs that some stacks need, and all labels that are known before the
    forward pass.
    """

    prepared: PreparedInputs

    def __init__(self, model: Model, item: Item, request: MixRequest, stacks: Sequence[str]):
        self.item: Clip | Sentence | None = item if isinstance(item, Clip | Sentence) else None
        self._model, self._request = model, request
        self._encoder_spans = None if request.spans is None else parse_spans(request.spans)
        self._decoder_spans: list[Span] | None = None  # of a model that has a decoder alone
        self._target_rows: dict[str, list[Span]] = {}
        self._audio_spans: list[
            Span
        ] = []  # units of the sound in the decoder of an audio language model
        self._prepare(stacks)

    @classmethod
    @abstractmethod
    def feeds_decoder(cls, model: Model, item: Any) -> bool:
        """Whether there is something to feed a decoder behind an encoder."""

    @abstractmethod
    def _prepare(self, stacks: Sequence[str]) -> None:
        """Make the inputs that these stacks need, and label what can be labelled before the
        pass."""

    @abstractmethod
    def provenance(self) -> JsonObject:
        """What a map says of the item it is of."""

    def _decoder_provenance(self) -> JsonObject:
        """What the decoder behind an encoder is fed, where that is not just what the item says: the
        prefix, another text."""
        tokens, generated_text = self.prepared.tokens, self.prepared.generated_text
        if self.prepared.audio_tokens is not None:
            return describe_prompt_and_answer(self._model, self.prepared)
        if tokens is None or "cross" not in self._model.stacks:
            return {}
        provenance: JsonObject = {}
        if self._model.hears:
            provenance["decoder_prefix"] = "".join(tokens.labels[: tokens.n_prefix])
        if generated_text is not None:
            provenance |= {
                "decoder_text": generated_text.text,
                "decoder_text_by": generated_text.by,
            }
            provenance |= (
                {}
                if generated_text.ended
                else {
                    "decoder_text_cut": f"after {len(generated_text.ids)} tokens, as long as it may be"
                }
            )
        elif self.item is not None and not self._model.transcribes:
            provenance |= {
                "decoder_text": self.item.translation,
                "decoder_text_by": "translation given",
            }
        return provenance

    def labels(self, stack: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Targets (the chosen rows) and sources of a stack that has been seen."""
        return tuple(self._target_rows[stack]), tuple(self._targets_and_sources(stack)[1])

    def sources(self, stack: str) -> list[Span]:
        """Sources of a stack, labelled before the pass."""
        return self._targets_and_sources(stack)[1]

    def units(self, block: Block) -> Units:
        """Units of a block. Frames of prepared audio are only known now: those that the attention
        mask leaves."""
        stack = block.stack.name
        if self._encoder_spans is None and stack != "decoder":
            self._encoder_spans = [Span(i, i + 1, str(i), "frame") for i in block.unmasked_sources]
        if stack == "encoder" and self.prepared.audio_tokens is not None:
            self.prepared.audio_tokens.check(len(block.unmasked_sources), self._model.name)
        targets, sources = self._targets_and_sources(stack)
        for spans, length, side in (
            (targets, block.n_targets, "target"),
            (sources, block.n_sources, "source"),
        ):
            overlong_span = next((span for span in spans if span.stop > length), None)
            if overlong_span is not None:
                raise InputError(
                    f"{side} span [{overlong_span.start}, {overlong_span.stop}) of the {stack} ends past its "
                    f"{length} positions"
                )
        self._target_rows[stack] = self._select_rows(stack, targets)
        return Units(
            self._target_rows[stack],
            sources,
            pooling=self._request.pooling,
            device=block.values.device,
        )

    def _label_tokens(self) -> None:
        """Make tokens of a text the encoder's side, or that of the only decoder, unless spans were
        given."""
        has_words = self.item is not None and self._request.units == "word"
        tokens = replace(self.prepared.text_tokens, units="word" if has_words else "token")
        if self.prepared.source_tokens is not None:
            self._encoder_spans = self._encoder_spans or tokens.sources()
        else:
            self.prepared.tokens, self._decoder_spans = tokens, self._encoder_spans

    def _targets_and_sources(self, stack: str) -> tuple[list[Span], list[Span]]:
        if stack == "decoder" and self._decoder_spans is not None:
            return self._decoder_spans, self._decoder_spans
        if stack == "decoder" and self.prepared.audio_tokens is not None:
            return self.prepared.audio_tokens.list_units(
                self.prepared.decoder_tokens, self._audio_spans
            )
        encoder = self._encoder_spans or []
        if stack == "encoder":
            return self._encoder_targets(encoder), encoder
        targets = self.prepared.decoder_tokens.targets()
        sources = self.prepared.decoder_tokens.sources() if stack == "decoder" else encoder
        return targets, sources

    def _encoder_targets(self, spans: list[Span]) -> list[Span]:
        """The encoder's units as targets. The padding behind a clip's frames is a row where it is
        included: of a short clip, it takes most of the time."""
        if self._request.units != "frame" or "padding" in self._request.include:
            return spans
        return [span for span in spans if span.kind != "padding"]

    def _select_rows(self, stack: str, spans: list[Span]) -> list[Span]:
        """The requested targets."""
        targets = self._request.targets
        requested_rows = targets.get(stack) if isinstance(targets, Mapping) else targets
        if requested_rows is None:
            return spans
        if isinstance(requested_rows, str):
            return self._select_target_rows(stack, spans, requested_rows)
        if not len(requested_rows) or not all(0 <= index < len(spans) for index in requested_rows):
            raise InputError(
                f"targets={list(requested_rows)}: the {stack} has {len(spans)} target units, 0 to "
                f"{len(spans) - 1}"
            )
        return [spans[index] for index in requested_rows]

    def _select_target_rows(self, stack: str, spans: list[Span], requested_rows: str) -> list[Span]:
        """Rows of the target word, and of the position that predicts the deciding token: it may lie
        before the target."""
        role = getattr(self.item, "unit_roles", {}).get("target")
        if requested_rows != "target":
            raise InputError(f"targets={requested_rows!r}: expected indices, or 'target'")
        if self.item is None or (role is None and self.item.target is None):
            raise InputError(
                "targets='target' (--target-rows-only) needs a target word, and the clip has none: name one "
                "(target=, --target), or leave this option out"
            )
        tokens = self.prepared.tokens
        deciding_row = tokens.deciding_row if tokens is not None else None
        deciding_row = self.prepared.deciding_frame if stack == "encoder" else deciding_row
        target_rows = (
            [index for index, span in enumerate(spans) if span.word == self.item.target]
            if role is None
            else role_units(spans, role) or []
        )
        rows = [
            span
            for index, span in enumerate(spans)
            if index in target_rows or (deciding_row is not None and deciding_row in span.positions)
        ]
        if not rows:
            raise InputError(f"{self.item.name}: the target word has no unit in the {stack}")
        return rows


def decides_at_frame(model: Model, item: Item) -> bool:
    """Whether a transducer decides between two spellings of an item at a frame, a row of the
    encoder."""
    has_text = model.capabilities.is_transducer and model.tokenizer is not None
    is_choice = isinstance(item, Clip | Sentence) and None not in (item.foil, item.target)
    return has_text and is_choice


def can_generate_decoder_text(model: Model, item: Clip | Sentence) -> bool:
    """Whether the model generates what its decoder is fed: it can, or what its trained model
    generated is stored."""
    return can_generate_text(model) or generated_text_key(model, item) in model.generated_texts


# Nats a token by which other tokens may be likelier than the text's. The bundled Whisper, on its own clips: at most
# 0.3, with another clip's text 2.1 and more; Whisper tiny.en on recorded commands: at most 0.6, and 3.0 and more. Capitals
# that the model would not write cost as much, so the likeliest tokens have to be other words, too.
_MAX_LOST_NATS = 1.5


def describe_unheard_text(
    model: Model, view: View, output: ModelOutput, row: int, stacks: Sequence[str]
) -> str | None:
    """Say what the model writes instead of the clip's text; None if it writes most of it, or none
    is known.

    The model is in use, in the precision of `output`, which it made without its head; `row` is the
    item's index in the pass.
    """
    clip, states = view.item, getattr(output, "last_hidden_state", None)
    if model.init != "trained" or model.tokenizer is None or not isinstance(clip, Clip):
        return None
    text = clip.text or join_words(clip.spoken_words)
    if not text or states is None:
        return None
    head = head_projection(model)
    if not isinstance(head, torch.nn.Linear):
        return None
    if type(model.module).__name__.endswith("ForCTC"):
        transcript = _read_letters(model, head, states[row])
        if character_error_rate(text, transcript, clip.language) <= MAX_ERROR_RATE:
            return None
        what = f"writes {transcript[:60]!r}" if transcript else "writes nothing"
        return f"{what} of a sound whose text is {text[:60]!r}"
    if (
        model.capabilities.decoding != "cross-attention"
        or model.prefix.task != "transcribe"
        or not {"decoder", "cross"} & set(stacks)
    ):
        return None
    nats, likeliest_text = _compare_tokens(model, view, head, states[row])
    if nats <= _MAX_LOST_NATS:
        return None
    if character_error_rate(text, likeliest_text, clip.language) <= MAX_ERROR_RATE:
        return None
    return (
        f"finds other tokens likelier than those of the text {text[:60]!r} (by {nats:.1f} nats a token, expected "
        f"at most {_MAX_LOST_NATS})"
    )


def _read_letters(model: Model, head: torch.nn.Linear, states: Tensor) -> str:
    ids = head(states).argmax(dim=-1).tolist()
    text: str = model.tokenizer.decode(ids).strip()
    return text


def _compare_tokens(
    model: Model, view: View, head: torch.nn.Linear, states: Tensor
) -> tuple[float, str]:
    """Mean difference of log-probability between the likeliest token and the text's, each behind the
    text's tokens before it, and the text of the likeliest tokens; 0 where no text was given."""
    tokens = view.prepared.tokens
    if tokens is None or view.prepared.generated_text is not None:
        return 0.0, ""
    kinds = tokens.kinds[: len(tokens.ids)]
    indices = [index for index, kind in enumerate(kinds) if kind == "token"]
    if not indices:
        return 0.0, ""
    logits = head(states[[index - 1 for index in indices]]).float()
    ids = torch.tensor([tokens.ids[index] for index in indices], device=logits.device)
    nats = (logits.amax(dim=-1) - logits.gather(1, ids[:, None])[:, 0]).mean()
    likeliest_text = model.tokenizer.decode(
        logits.argmax(dim=-1).tolist(), skip_special_tokens=True
    )
    return float(nats), likeliest_text.strip()


def resolve_layers(
    model: Model, stacks: Sequence[str], request: MixRequest
) -> dict[str, tuple[int, ...]]:
    """Requested layers, by stack."""
    layers = request.layers
    if layers is None:
        return {stack: tuple(range(len(model.stacks[stack]))) for stack in stacks}
    min_layers = min(len(model.stacks[stack]) for stack in stacks)
    if not layers or not all(layer in range(min_layers) for layer in layers):
        raise InputError(
            f"layers={list(layers)}: layers are counted from 0; {', '.join(stacks)} have 0 to "
            f"{min_layers - 1}"
        )
    return {stack: tuple(sorted({int(layer) for layer in layers})) for stack in stacks}
