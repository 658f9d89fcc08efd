"""View: model inputs of one item, and the spans that are rows and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...adapters.capture.attention_block import Block
from ...adapters.generation.audio_prompt import describe_prompt_and_answer
from ...adapters.generation.decoder_text_generation import (
    can_generate_text,
    generated_text_key,
)
from ...adapters.generation.model_inputs import PreparedInputs
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.spans import Span
from ...inputs.words.unit_roles import role_units
from ..measures.unit_positions import Units
from .request import MixRequest
from .requested_spans import parse_spans

Item = Clip | Sentence | str | Inputs


class View(ABC):
    """One item as a model sees it; `item` is None for prepared inputs.

    It is prepared once the stacks are known, then labelled before the forward pass.
    """

    prepared: PreparedInputs

    def __init__(self, model: Model, item: Item, request: MixRequest):
        self.item: Clip | Sentence | None = item if isinstance(item, Clip | Sentence) else None
        self._model, self._request = model, request
        self._encoder_spans = None if request.spans is None else parse_spans(request.spans)
        self._decoder_spans: list[Span] | None = None  # of a model that has a decoder alone
        self._target_rows: dict[str, list[Span]] = {}
        self._audio_spans: list[
            Span
        ] = []  # units of the sound in the decoder of an audio language model

    @property
    @abstractmethod
    def has_decoder_input(self) -> bool:
        """True if there is something to feed a decoder behind an encoder."""

    @property
    def decides_at_frame(self) -> bool:
        """Whether a transducer decides between two spellings at a frame, a row of the encoder."""
        has_text = self._model.capabilities.is_transducer and self._model.tokenizer is not None
        item = self.item
        return has_text and item is not None and None not in (item.foil, item.target)

    @abstractmethod
    def prepare(self, stacks: Sequence[str]) -> None:
        """Make the inputs that these stacks need, and label what can be labelled before the
        pass."""

    @abstractmethod
    def provenance(self) -> JsonObject:
        """What a map says of the item it is of."""

    @property
    def _can_generate(self) -> bool:
        """Whether the model generates what its decoder is fed: it can, or what its trained model
        generated is stored."""
        return can_generate_text(self._model) or (
            self.item is not None
            and generated_text_key(self._model, self.item) in self._model.generated_texts
        )

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
        if (
            requested_rows != "target"
            or self.item is None
            or (role is None and self.item.target is None)
        ):
            raise InputError(
                f"targets={requested_rows!r}: expected indices, or 'target' with a clip that has a target "
                "word"
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
