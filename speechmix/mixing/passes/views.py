"""Views: what a model is fed for a clip, a text or prepared inputs, and which spans are the rows
and columns of each stack.

In: one item that `mix` was given. Out: a `View`, by `make_view`; a clip, a text and prepared inputs
differ in their view alone. A `Span` (inputs) is one labelled unit; a view says which of them are a
stack's targets and sources; a measure's `Units` (measures) are those as bare ranges of positions.
The encoder's side is words, frames, tokens or given spans; the decoder's side is its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ...adapters.generation.generated_texts import (
    generate_text,
)
from ...adapters.generation.transcription import feed_generated_text, provided_decoder_text
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import cue_to_json
from ...inputs.words.text_words import TextWord
from ...inputs.words.timed_words import Word
from .prepared_inputs import fingerprint_of_inputs, prepared_from
from .request import AUDIO_UNITS, TEXT_UNITS, MixRequest
from .requested_spans import audio_spans
from .view import Item, View


def make_view(model: Model, item: Item, question: MixRequest) -> View:
    """View of one item, not yet prepared for the stacks.

    Raises
    ------
    InputError
        If the model takes nothing of the kind.
    """
    if isinstance(item, Mapping):
        return InputsView(model, item, question)
    kind = _VIEWS[model.capabilities.input_kind]
    item = Sentence(item) if isinstance(item, str) and kind is SentenceView else item
    if not isinstance(item, kind.item_type):
        raise InputError(f"{model.name} takes {kind.takes} or prepared inputs, found {item!r:.80}")
    if question.units not in kind.allowed_units:
        raise InputError(
            f"units should be one of {kind.allowed_units} for {model.name}, found "
            f"{question.units!r}"
        )
    return kind(model, item, question)


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
            self._sound_spans = (
                heard.of_frames(self._encoder) if self._encoder else heard.of_clip(grid, spans_on)
            )
        self._encoder = self._encoder or audio_spans(self.item, grid, self._question)

    def provenance(self) -> JsonObject:
        clip = self.item
        return {
            "clip": clip.name,
            "fingerprint": clip.fingerprint,
            "sound": clip.audio_hash,
            "language": clip.language,
            "text": clip.text,
            "words": [word.to_list() for word in clip.words or ()],
            "cue": cue_to_json(clip.cue_words),
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
        fed_stacks = set(stacks) & set(self._model.capabilities.decoder_stacks)
        if self.item.translation is None and fed_stacks:
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
            "cue": cue_to_json(self.item.cue_words),
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
            self._sound_spans = (
                heard.of_frames(self._encoder) if self._encoder else heard.each_window()
            )

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
