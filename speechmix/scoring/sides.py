"""Both sides of every stack's map for one clip: which units are targets, which are sources, and the model's inputs.

In: a clip, a sentence (or prepared inputs) and the options of `mix`. Out: `Sides`, which labels rows and columns with
`Span`s and turns them into a measure's `Units`. The encoder's side is words, frames, tokens or given spans; the
decoder's side is its tokens.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..adapters.block import Block
from ..adapters.model import Model, Prepared
from ..adapters.tokens import Tokens
from ..errors import InputError
from ..inputs.clips import Clip
from ..inputs.sentences import Sentence
from ..inputs.spans import Span, context_spans, frame_spans, word_spans
from ..measures.units import Units

if TYPE_CHECKING:
    from ..inputs.frames import FrameGrid


class Sides:
    """Labels and units of both sides of every stack, for one clip or sentence."""

    def __init__(self, model: Model, clip, stacks, spans, targets, options):
        self._options, self._targets = options, targets
        self._clip = None if isinstance(clip, Mapping) else clip
        if isinstance(clip, Mapping):
            self.prepared = _prepared(clip, model)
        else:
            _check_kind(model, clip, options["units"])
            self.prepared = model.family.prepare(model, clip, stacks)
        self._encoder = None if spans is None else _given_spans(spans)
        if isinstance(clip, Clip):
            self._encoder = self._encoder or _audio_spans(
                clip, model.grid(len(clip.audio(model.sample_rate))), options, model
            )
        tokens = self.prepared.source_tokens or self.prepared.tokens
        if tokens is not None and not tokens.ahead:
            tokens = replace(tokens, units="word" if self._clip is not None and options["units"] == "word" else "token")
            if self.prepared.source_tokens is not None:
                self._encoder = self._encoder or tokens.sources()
            else:
                self.prepared.tokens, self._decoder = tokens, self._encoder
        self._chosen: dict[str, list[Span]] = {}

    _decoder: list[Span] | None = None  # given spans of a model that has a decoder alone

    def labels(self, stack: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Targets (the chosen rows) and sources of a stack that has been seen."""
        return tuple(self._chosen[stack]), tuple(self._both(stack)[1])

    def units(self, block: Block) -> Units:
        """Units of a block; the first block of a stack also tells how many positions there are."""
        name = block.stack.name
        if self._encoder is None and name != "decoder":
            self._encoder = [Span(i, i + 1, str(i), "frame") for i in block.unmasked]
        targets, sources = self._both(name)
        for spans, length, side in ((targets, block.n_targets, "target"), (sources, block.n_sources, "source")):
            beyond = [span for span in spans if span.stop > length]
            if beyond:
                raise InputError(
                    f"{side} span [{beyond[0].start}, {beyond[0].stop}) of the {name} ends past its {length} positions"
                )
        chosen = self._choose(name, targets)
        self._chosen[name] = chosen
        return Units(chosen, sources, pooling=self._options["pooling"], device=block.values.device)

    def _both(self, stack: str) -> tuple[list[Span], list[Span]]:
        tokens = self.prepared.tokens
        if stack == "decoder" and self._decoder is not None:
            return self._decoder, self._decoder
        targets = self._encoder if stack == "encoder" else tokens.targets()
        sources = tokens.sources() if stack == "decoder" else self._encoder
        return targets, sources

    def _choose(self, stack: str, spans: list[Span]) -> list[Span]:
        wanted = self._targets.get(stack) if isinstance(self._targets, Mapping) else self._targets
        if wanted is None:
            return spans
        if isinstance(wanted, str):
            if wanted != "target" or self._clip is None or self._clip.target is None:
                raise InputError(
                    f"targets={wanted!r}: expected indices, or 'target' with a clip that has a target word"
                )
            # The deciding row may predict what follows the target: "livre" is decided by the space behind it.
            tokens = self.prepared.tokens
            decides = tokens.deciding_row if tokens is not None and stack != "encoder" else None
            chosen = [
                span
                for span in spans
                if span.word == self._clip.target or (decides is not None and span.start <= decides < span.stop)
            ]
            if not chosen:
                raise InputError(f"{self._clip.name}: the target word has no unit in the {stack}")
            return chosen
        beyond = [i for i in wanted if not 0 <= i < len(spans)]
        if beyond or not len(wanted):
            raise InputError(
                f"targets={list(wanted)}: the {stack} has {len(spans)} target units, 0 to {len(spans) - 1}"
            )
        return [spans[i] for i in wanted]


def _check_kind(model: Model, clip, units: str) -> None:
    """A clip for a model that hears, a sentence for one that reads, and units that go with it."""
    expected = Clip if model.hears else Sentence
    if not isinstance(clip, expected):
        takes = "a Clip (speechmix.Clip.from_file)" if model.hears else "a text (a string or speechmix.Sentence)"
        raise InputError(f"{model.name} takes {takes} or prepared inputs, found {type(clip).__name__}")
    allowed = ("word", "frame") if model.hears else ("word", "token")
    if units not in allowed:
        raise InputError(f"units should be one of {allowed} for {model.name}, found {units!r}")
    if model.hears:
        clip.validate()


def _audio_spans(clip: Clip, grid: FrameGrid, options, model: Model) -> list[Span]:
    """Units on the audio side of a clip: frames, or words with what is included around them."""
    words = word_spans(clip.words, grid, rounding=options["rounding"]) if clip.words else []
    if options["units"] == "frame":
        owner = {frame: span.word for span in words for frame in range(span.start, span.stop)}
        first, last = options["window"] or (-math.inf, math.inf)
        frames = [frame for frame in frame_spans(grid) if first <= frame.onset and frame.offset <= last]
        if not frames:
            raise InputError(
                f"{clip.name}: no frame lies within window={options['window']} of its {clip.duration:.2f} s"
            )
        return [Span(f.start, f.stop, f.label, "frame", owner.get(f.start), f.onset, f.offset) for f in frames]
    if not words:
        raise InputError(
            f"{clip.name} has no word times: give words= (TextGrid, CTM, JSON, TSV), align its text with "
            "speechmix.align(clip), or ask for units='frame'"
        )
    if options["include"]:
        return context_spans(words, grid, clip.duration, include=options["include"])
    return words


def _given_spans(spans) -> list[Span]:
    given = []
    for index, span in enumerate(spans):
        if not isinstance(span, Span):
            try:
                start, stop = (operator.index(edge) for edge in span)
            except (TypeError, ValueError):
                raise InputError(f"span {index} should be (start, stop) in whole frames, found {span!r}") from None
            span = Span(start, stop, str(index), "word", index)
        if not 0 <= span.start < span.stop:
            raise InputError(f"span {index} should be half-open [start, stop) with 0 <= start < stop, found {span}")
        given.append(span)
    if not given:
        raise InputError("spans is empty: give at least one, or None for every frame")
    return given


def _prepared(inputs: Mapping[str, Any], model: Model) -> Prepared:
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    batch = {name: len(tensor) for name, tensor in tensors.items()}
    if not tensors or set(batch.values()) != {1}:
        raise InputError(f"prepared inputs should hold one clip, a batch of 1; found {batch or 'nothing'}")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"prepared input {name!r} holds NaN or infinity")
    expected = model.family.tiny_inputs(model.config)
    main = next(iter(expected))
    if main not in tensors or tensors[main].is_floating_point() != expected[main].is_floating_point():
        kind = "floating-point" if expected[main].is_floating_point() else "whole"
        found = ", ".join(f"{name} ({tensor.dtype})" for name, tensor in tensors.items())
        raise InputError(f"{model.name} takes {main!r} as {kind} numbers; found {found}")
    prepared = Prepared(tensors)
    if not model.hears:
        mask = tensors["attention_mask"][0].tolist() if "attention_mask" in tensors else None
        tokens = Tokens.from_ids(tensors["input_ids"][0].tolist(), model.tokenizer, mask=mask)
        if "encoder" not in model.stacks:
            prepared.tokens = tokens
            return prepared
        prepared.source_tokens = tokens
    if "decoder_input_ids" in tensors:
        prepared.tokens = Tokens.from_ids(tensors["decoder_input_ids"][0].tolist(), model.tokenizer, ahead=1)
    return prepared
