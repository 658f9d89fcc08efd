"""Views of a clip, a sentence or prepared inputs.

In: one item of `mix`. Out: a `View`, by `make_view`; a clip, a text and prepared inputs differ in
their view alone. A `Span` (inputs) is one labelled unit; a view says which of them are a stack's
targets and sources; a measure's `Units` (measures) are those as bare ranges of positions. The
encoder's side is words, frames, tokens or given spans; the decoder's side is its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ...adapters.generation.decoder_text_generation import (
    generate_text,
)
from ...adapters.generation.greedy_generation import feed_generated_text, provided_decoder_text
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import cue_to_json
from ...inputs.words.sentence_word import TextWord
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import tiers_to_json
from .item_view import Item, View
from .prepared_inputs import check_prepared_inputs, inputs_fingerprint
from .request import AUDIO_UNITS, TEXT_UNITS, MixRequest
from .requested_spans import audio_spans, spans_at_positions


def make_view(model: Model, item: Item, request: MixRequest) -> View:
    """Make the view of one item, not yet prepared for the stacks; an InputError if the model takes
    no such item."""
    if isinstance(item, Mapping):
        return InputsView(model, item, request)
    view_type = _VIEWS[model.capabilities.input_kind]
    item = Sentence(item) if isinstance(item, str) and view_type is SentenceView else item
    if not isinstance(item, view_type.item_type):
        raise InputError(
            f"{model.name} takes {view_type.accepted_inputs} or prepared inputs, found {item!r:.80}"
        )
    if request.units not in view_type.allowed_units:
        raise InputError(
            f"units should be one of {view_type.allowed_units} for {model.name}, found "
            f"{request.units!r}"
        )
    return view_type(model, item, request)


class ClipView(View):
    """A clip, for a speech model: frames or words of the sound, tokens of the text."""

    item: Clip
    item_type = Clip
    accepted_inputs = "a Clip (speechmix.Clip.from_file)"
    allowed_units = AUDIO_UNITS

    @property
    def has_decoder_input(self) -> bool:
        if self._model.tokenizer is None:
            return False
        return provided_decoder_text(self._model, self.item) is not None or self._can_generate

    def prepare(self, stacks: Sequence[str]) -> None:
        self.item.validate()
        self.prepared = self._model.family.prepare(self._model, self.item, tuple(stacks))
        grid, audio_tokens = (
            self._model.grid(len(self.item.audio(self._model.sample_rate))),
            self.prepared.audio_tokens,
        )
        if audio_tokens is not None and "decoder" in stacks:
            make_spans = partial(audio_spans, self.item, request=self._request)
            self._audio_spans = (
                audio_tokens.convert_frame_spans(self._encoder_spans)
                if self._encoder_spans
                else audio_tokens.list_clip_spans(grid, make_spans)
            )
        self._encoder_spans = self._encoder_spans or spans_at_positions(
            audio_spans(self.item, grid, self._request), grid
        )

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
            **({"tiers": tiers_to_json(clip.tiers)} if clip.tiers else {}),
            **_unit_roles(clip),
            **_multipart_words(clip),
            **self._decoder_provenance(),
        }


class SentenceView(View):
    """A text, for a text model: words or tokens, and those of its translation."""

    item: Sentence
    item_type = Sentence
    accepted_inputs = "a text (a string or speechmix.Sentence)"
    allowed_units = TEXT_UNITS

    @property
    def has_decoder_input(self) -> bool:
        return self.item.translation is not None or self._can_generate

    def prepare(self, stacks: Sequence[str]) -> None:
        generated_text = None
        decoder_stacks = set(stacks) & set(self._model.capabilities.decoder_stacks)
        if self.item.translation is None and decoder_stacks:
            generated_text, self.item = (
                generate_text(self._model, self.item),
                self._model.translate(self.item),
            )
        self.prepared = self._model.family.prepare(self._model, self.item, tuple(stacks))
        if generated_text is not None:
            feed_generated_text(self._model, self.prepared, generated_text)
        self._label_tokens()

    def provenance(self) -> JsonObject:
        provenance = {name: getattr(self.item, name) for name in ("text", "target", "foil")}
        provenance |= {
            "clip": self.item.name,
            "fingerprint": self.item.fingerprint,
            "cue": cue_to_json(self.item.cue_words),
        }
        return {
            **_EMPTY_PROVENANCE,
            **provenance,
            **_multipart_words(self.item),
            **self._decoder_provenance(),
        }


class InputsView(View):
    """Prepared inputs of one clip or text: frames or tokens, or given spans."""

    def __init__(self, model: Model, item: Inputs, request: MixRequest):
        super().__init__(model, item, request)
        self._inputs = item

    @property
    def has_decoder_input(self) -> bool:
        return self._model.capabilities.text_input in self._inputs

    def prepare(self, stacks: Sequence[str]) -> None:
        self.prepared = check_prepared_inputs(self._inputs, self._model)
        if not self._model.hears:
            self._label_tokens()
        elif self.prepared.audio_tokens is not None and "decoder" in stacks:
            audio_tokens = self.prepared.audio_tokens
            self._audio_spans = (
                audio_tokens.convert_frame_spans(self._encoder_spans)
                if self._encoder_spans
                else audio_tokens.list_window_spans()
            )

    def provenance(self) -> JsonObject:
        return {
            **_EMPTY_PROVENANCE,
            "fingerprint": inputs_fingerprint(self._inputs),
            **self._decoder_provenance(),
        }


_VIEWS: dict[str, type[ClipView] | type[SentenceView]] = {"audio": ClipView, "text": SentenceView}
_EMPTY_PROVENANCE: JsonObject = dict.fromkeys(
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


def _unit_roles(clip: Clip) -> JsonObject:
    """Requests for the phones or syllables that are cue and target; nothing where none is."""
    requests: JsonObject = {name: role.request for name, role in clip.unit_roles.items()}
    return {"unit_roles": requests} if requests else {}


def _multipart_words(item: Clip | Sentence) -> dict[str, list[int]]:
    """Which words are in several pieces; nothing where none is."""
    words: Sequence[Word | TextWord] = item.words or ()
    word_indices = [index for index, word in enumerate(words) if word.pieces]
    return {"in_pieces": word_indices} if word_indices else {}
