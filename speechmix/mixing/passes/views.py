"""Views: what a model is fed for a clip, a text or prepared inputs, and which spans are the rows
and columns of each stack.

In: one item that `mix` was given. Out: a `View`, by `make_view`; a clip, a text and prepared inputs
differ in their view alone. A `Span` (inputs) is one labelled unit; a view says which of them are a
stack's targets and sources; a measure's `Units` (measures) are those as bare ranges of positions.
The encoder's side is words, frames, tokens or given spans; the decoder's side is its tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...adapters.capture.block import Block
from ...adapters.generation.audio_prompt import describe_prompt_and_answer
from ...adapters.generation.generated_texts import (
    can_generate_text,
    generate_text,
    generated_text_key,
)
from ...adapters.generation.model_inputs import Prepared
from ...adapters.generation.transcription import feed_generated_text, provided_decoder_text
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import stored_cue
from ...inputs.words.spans import Span
from ...inputs.words.text_words import TextWord
from ...inputs.words.timed_words import Word
from ..measures.unit_positions import Units
from .prepared_inputs import fingerprint_of_inputs, prepared_from
from .request import AUDIO_UNITS, TEXT_UNITS, MixRequest
from .requested_spans import audio_spans, checked_spans

Item = Clip | Sentence | str | Inputs


def make_view(model: Model, item: Item, question: MixRequest) -> View:
    """View of one item, not yet prepared for the stacks.

    Raises
    ------
    InputError
        If the model takes nothing of the kind.
    """
    if isinstance(item, Mapping):
        return InputsView(model, item, question)
    item = Sentence(item) if isinstance(item, str) else item
    kind = _VIEWS[model.capabilities.input_kind]
    if not isinstance(item, kind.item_type):
        raise InputError(
            f"{model.name} takes {kind.takes} or prepared inputs, found {type(item).__name__}"
        )
    if question.units not in kind.allowed_units:
        raise InputError(
            f"units should be one of {kind.allowed_units} for {model.name}, found "
            f"{question.units!r}"
        )
    return kind(model, item, question)


class View(ABC):
    """One item as a model sees it. Prepared once the stacks are known, then labelled before the
    forward pass.

    Attributes
    ----------
    item : Clip, Sentence or None
        None for prepared inputs.
    prepared : Prepared
        The model's inputs, and the decoder's tokens.
    """

    prepared: Prepared

    def __init__(self, model: Model, item: Item, question: MixRequest):
        self.item: Clip | Sentence | None = item if isinstance(item, Clip | Sentence) else None
        self._model, self._question = model, question
        self._encoder = None if question.spans is None else checked_spans(question.spans)
        self._decoder: list[Span] | None = None  # of a model that has a decoder alone
        self._target_rows: dict[str, list[Span]] = {}
        self._heard: list[Span] = []  # units of the sound in the decoder of an audio language model

    @property
    @abstractmethod
    def feeds_decoder(self) -> bool:
        """True if there is something to feed a decoder behind an encoder."""

    @abstractmethod
    def prepare(self, stacks: Sequence[str]) -> None:
        """Make the inputs that these stacks need, and label what can be labelled before the
        pass."""

    @abstractmethod
    def provenance(self) -> JsonObject:
        """What a map says of the item it is of."""

    @property
    def _is_written(self) -> bool:
        """Whether the model writes itself what its decoder is fed: it can, or it is remembered what
        its trained model wrote."""
        return can_generate_text(self._model) or (
            self.item is not None
            and generated_text_key(self._model, self.item) in self._model.generated_texts
        )

    def _fed_to_decoder(self) -> JsonObject:
        """What the decoder behind an encoder is fed, where that is not just what the item says: the
        prefix, another text."""
        tokens, written, prefix = (
            self.prepared.tokens,
            self.prepared.generated_text,
            self._model.prefix,
        )
        if self.prepared.audio_tokens is not None:
            return describe_prompt_and_answer(self._model, self.prepared)
        if tokens is None or "cross" not in self._model.stacks:
            return {}
        told: JsonObject = {}
        if self._model.hears:
            told["decoder_prefix"] = "".join(tokens.labels[: tokens.n_prefix])
        if written is not None:
            told |= {"decoder_text": written.text, "decoder_text_by": written.by}
            told |= (
                {}
                if written.ended
                else {"decoder_text_cut": f"after {len(written.ids)} tokens, as long as it may be"}
            )
        elif self.item is not None and (prefix.task == "translate" or not self._model.hears):
            told |= {"decoder_text": self.item.translation, "decoder_text_by": "translation given"}
        return told

    def labels(self, stack: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Targets (the chosen rows) and sources of a stack that has been seen."""
        return tuple(self._target_rows[stack]), tuple(self._both_sides(stack)[1])

    def sources(self, stack: str) -> list[Span]:
        """What may give to others in a stack, labelled before the pass."""
        return self._both_sides(stack)[1]

    def units(self, block: Block) -> Units:
        """Units of a block. Frames of prepared audio are only known now: those that the attention
        mask leaves."""
        stack = block.stack.name
        if self._encoder is None and stack != "decoder":
            self._encoder = [Span(i, i + 1, str(i), "frame") for i in block.unmasked]
        if stack == "encoder" and self.prepared.audio_tokens is not None:
            self.prepared.audio_tokens.check(len(block.unmasked), self._model.name)
        targets, sources = self._both_sides(stack)
        for spans, length, side in (
            (targets, block.n_targets, "target"),
            (sources, block.n_sources, "source"),
        ):
            beyond = next((span for span in spans if span.stop > length), None)
            if beyond is not None:
                raise InputError(
                    f"{side} span [{beyond.start}, {beyond.stop}) of the {stack} ends past its "
                    f"{length} positions"
                )
        self._target_rows[stack] = self._rows_of(stack, targets)
        return Units(
            self._target_rows[stack],
            sources,
            pooling=self._question.pooling,
            device=block.values.device,
        )

    def _label_tokens(self) -> None:
        """Make tokens of a text the encoder's side, or that of the only decoder, unless spans were
        given."""
        words = self.item is not None and self._question.units == "word"
        tokens = replace(self.prepared.text_tokens, units="word" if words else "token")
        if self.prepared.source_tokens is not None:
            self._encoder = self._encoder or tokens.sources()
        else:
            self.prepared.tokens, self._decoder = tokens, self._encoder

    def _both_sides(self, stack: str) -> tuple[list[Span], list[Span]]:
        if stack == "decoder" and self._decoder is not None:
            return self._decoder, self._decoder
        if stack == "decoder" and self.prepared.audio_tokens is not None:
            return self.prepared.audio_tokens.units(self.prepared.decoder_tokens, self._heard)
        encoder = self._encoder or []
        targets = encoder if stack == "encoder" else self.prepared.decoder_tokens.targets()
        sources = self.prepared.decoder_tokens.sources() if stack == "decoder" else encoder
        return targets, sources

    def _rows_of(self, stack: str, spans: list[Span]) -> list[Span]:
        """The targets asked for."""
        targets = self._question.targets
        asked = targets.get(stack) if isinstance(targets, Mapping) else targets
        if asked is None:
            return spans
        if isinstance(asked, str):
            return self._rows_of_target(stack, spans, asked)
        if not len(asked) or not all(0 <= index < len(spans) for index in asked):
            raise InputError(
                f"targets={list(asked)}: the {stack} has {len(spans)} target units, 0 to "
                f"{len(spans) - 1}"
            )
        return [spans[index] for index in asked]

    def _rows_of_target(self, stack: str, spans: list[Span], asked: str) -> list[Span]:
        """Rows of the target word, and of the position that predicts the deciding token: it may lie
        before the target."""
        if asked != "target" or self.item is None or self.item.target is None:
            raise InputError(
                f"targets={asked!r}: expected indices, or 'target' with a clip that has a target "
                "word"
            )
        tokens = self.prepared.tokens
        decides = tokens.deciding_row if tokens is not None and stack != "encoder" else None
        rows = [
            span
            for span in spans
            if span.word == self.item.target or (decides is not None and decides in span.positions)
        ]
        if not rows:
            raise InputError(f"{self.item.name}: the target word has no unit in the {stack}")
        return rows


class ClipView(View):
    """A clip, for a model that hears: frames or words of the sound, tokens of the text."""

    item: Clip
    item_type = Clip
    takes = "a Clip (speechmix.Clip.from_file)"
    allowed_units = AUDIO_UNITS

    @property
    def feeds_decoder(self) -> bool:
        if self._model.tokenizer is None:
            return False
        return provided_decoder_text(self._model, self.item) is not None or self._is_written

    def prepare(self, stacks: Sequence[str]) -> None:
        self.item.validate()
        self.prepared = self._model.family.prepare(self._model, self.item, tuple(stacks))
        grid, heard = (
            self._model.grid(len(self.item.audio(self._model.sample_rate))),
            self.prepared.audio_tokens,
        )
        if heard is not None and "decoder" in stacks:
            spans_on = partial(audio_spans, self.item, request=self._question)
            self._heard = (
                heard.of_frames(self._encoder) if self._encoder else heard.of_clip(grid, spans_on)
            )
        self._encoder = self._encoder or audio_spans(self.item, grid, self._question)

    def provenance(self) -> JsonObject:
        clip = self.item
        return {
            "clip": clip.name,
            "fingerprint": clip.fingerprint,
            "sound": clip.sound,
            "language": clip.language,
            "text": clip.text,
            "words": [word.as_list() for word in clip.words or ()],
            "cue": stored_cue(clip.cue_words),
            "target": clip.target,
            "foil": clip.foil,
            "alignment": clip.alignment,
            **_in_pieces(clip),
            **self._fed_to_decoder(),
        }


class SentenceView(View):
    """A text, for a model that reads: words or tokens, and those of its translation."""

    item: Sentence
    item_type = Sentence
    takes = "a text (a string or speechmix.Sentence)"
    allowed_units = TEXT_UNITS

    @property
    def feeds_decoder(self) -> bool:
        return self.item.translation is not None or self._is_written

    def prepare(self, stacks: Sequence[str]) -> None:
        written = None
        if (
            self.item.translation is None
            and set(stacks) & {"decoder", "cross"}
            and "cross" in self._model.stacks
        ):
            written, self.item = (
                generate_text(self._model, self.item),
                self._model.translate(self.item),
            )
        self.prepared = self._model.family.prepare(self._model, self.item, tuple(stacks))
        if written is not None:
            feed_generated_text(self._model, self.prepared, written)
        self._label_tokens()

    def provenance(self) -> JsonObject:
        told = {name: getattr(self.item, name) for name in ("text", "target", "foil")}
        told |= {
            "clip": self.item.name,
            "fingerprint": self.item.fingerprint,
            "cue": stored_cue(self.item.cue_words),
        }
        return {**_NOTHING, **told, **_in_pieces(self.item), **self._fed_to_decoder()}


class InputsView(View):
    """Prepared inputs of one clip or text: frames or tokens, or given spans."""

    def __init__(self, model: Model, item: Inputs, question: MixRequest):
        super().__init__(model, item, question)
        self._inputs = item

    @property
    def feeds_decoder(self) -> bool:
        return self._model.capabilities.text_input in self._inputs

    def prepare(self, stacks: Sequence[str]) -> None:
        self.prepared = prepared_from(self._inputs, self._model)
        if not self._model.hears:
            self._label_tokens()
        elif self.prepared.audio_tokens is not None and "decoder" in stacks:
            heard = self.prepared.audio_tokens
            self._heard = heard.of_frames(self._encoder) if self._encoder else heard.each_window()

    def provenance(self) -> JsonObject:
        return {
            **_NOTHING,
            "fingerprint": fingerprint_of_inputs(self._inputs),
            **self._fed_to_decoder(),
        }


_VIEWS: dict[str, type[ClipView] | type[SentenceView]] = {"audio": ClipView, "text": SentenceView}
_NOTHING: JsonObject = dict.fromkeys(
    (
        "clip",
        "fingerprint",
        "sound",
        "language",
        "text",
        "words",
        "cue",
        "target",
        "foil",
        "alignment",
    )
)


def _in_pieces(item: Clip | Sentence) -> dict[str, list[int]]:
    """Which words are in several pieces; nothing where none is."""
    words: Sequence[Word | TextWord] = item.words or ()
    indices = [index for index, word in enumerate(words) if word.pieces]
    return {"in_pieces": indices} if indices else {}
