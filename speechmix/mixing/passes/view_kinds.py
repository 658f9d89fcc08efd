"""Views of a clip, a sentence or prepared inputs.

In: one item of `mix`. Out: a `View`, by `make_view`; a clip, a text and prepared inputs differ in
their view alone. A `Span` (inputs) is one labelled unit; a view says which of them are a stack's
targets and sources; a measure's `Units` (measures) are those as bare ranges of positions. The
encoder's side is words, frames, tokens or given spans; the decoder's side is its tokens.

Prepared inputs: tensors that somebody else made of one clip or text, checked, with the tokens
that they hold.

In: tensors by the name of the module's argument. Out: `PreparedInputs`, and a hash of all that it holds.

The mask of a masked language model in the place of a sentence's target word.

In: a model and a sentence with a target. Out: the sentence that the model reads, and what is read
at the mask. A masked model that reads its target copies it; what it predicts from context is seen
behind the mask alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from ...adapters.generation.audio_prompt import locate_audio_tokens
from ...adapters.generation.greedy_generation import feed_generated_text, provided_decoder_text
from ...adapters.generation.model_inputs import HashedInputs, PreparedInputs, Tokens
from ...adapters.generation.text_tokens import MASK, generate_text
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import TextWord, cue_to_json
from ...inputs.words.multipart_words import make_word_request, refuse_multipart_word
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import tiers_to_json
from ..measures.token_objectives import Objective
from .item_view import Item, View, audio_spans, can_generate_decoder_text, spans_at_positions
from .request import AUDIO_UNITS, TEXT_UNITS, MixRequest, ObjectiveOption


def check_prepared_inputs(inputs: Inputs, model: Model) -> PreparedInputs:
    """Prepared inputs of one clip or text, checked, with their tokens."""
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    _check_inputs(tensors, model)
    prepared = PreparedInputs(
        tensors, audio_hash=inputs.audio_hash if isinstance(inputs, HashedInputs) else None
    )
    if "input_ids" in tensors:
        ids = _list_ids(tensors["input_ids"])
        mask = tensors["attention_mask"][0].tolist() if "attention_mask" in tensors else None
        tokens = Tokens.from_ids(ids, model.tokenizer, mask=mask)
        if model.capabilities.stack_by_side.get("text") == "encoder":
            prepared.source_tokens = tokens
        else:
            prepared.tokens = tokens
        if model.capabilities.has_audio_tokens:
            prepared.audio_tokens = locate_audio_tokens(model, ids)
    if "decoder_input_ids" in tensors:
        prepared.tokens = Tokens.from_ids(
            _list_ids(tensors["decoder_input_ids"]), model.tokenizer, label_offset=1
        )
    return prepared


def _list_ids(ids: torch.Tensor) -> list[int]:
    """List the ids [1, T], or the first of several codebooks [1, T, C], which is the text's."""
    result: list[int] = (ids[0] if ids.ndim == 2 else ids[0, :, 0]).tolist()
    return result


def _check_inputs(tensors: Mapping[str, torch.Tensor], model: Model) -> None:
    batch_sizes = {name: len(tensor) for name, tensor in tensors.items()}
    if not tensors or set(batch_sizes.values()) != {1}:
        raise InputError(
            f"prepared inputs should hold one clip, a batch of 1; found {batch_sizes or 'nothing'}"
        )
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"prepared input {name!r} holds NaN or infinity")
    expected = model.family.tiny_inputs(model.config)
    main_input = next(iter(expected))
    if (
        main_input not in tensors
        or tensors[main_input].is_floating_point() != expected[main_input].is_floating_point()
    ):
        number_kind = "floating-point" if expected[main_input].is_floating_point() else "whole"
        types = ", ".join(f"{name} ({tensor.dtype})" for name, tensor in tensors.items())
        raise InputError(
            f"{model.name} takes {main_input!r} as {number_kind} numbers; found {types}"
        )


def inputs_fingerprint(inputs: Inputs) -> str:
    """Hash of prepared inputs: names, types, shapes and every number."""
    tensors = {
        name: torch.as_tensor(value).detach().cpu().contiguous() for name, value in inputs.items()
    }
    value_hashes = {
        name: hashlib.blake2b(tensor.view(-1).view(torch.uint8).numpy().data)
        for name, tensor in tensors.items()
    }
    return digest(
        {
            name: [str(tensor.dtype), list(tensor.shape), value_hashes[name].hexdigest()]
            for name, tensor in tensors.items()
        }
    )[:16]


def make_view(model: Model, item: Item, request: MixRequest, stacks: Sequence[str]) -> View:
    """Make the view of one item, prepared for these stacks; an InputError if the model takes no
    such item."""
    view_type, item = _check_item(model, item, request)
    return view_type(model, item, request, stacks)


def _check_item(model: Model, item: Item, request: MixRequest) -> tuple[type[View], Item]:
    """Return the view of an item that the model takes in these units, and the item."""
    if isinstance(item, Mapping):
        return InputsView, item
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
    return view_type, item


def feeds_decoder(model: Model, item: Item, request: MixRequest) -> bool:
    """Whether an item has, or the model generates, what is fed to a decoder behind an encoder."""
    view_type, item = _check_item(model, item, request)
    return view_type.feeds_decoder(model, item)


def resolve_stacks(model: Model, items: Sequence[Item], request: MixRequest) -> tuple[str, ...]:
    """Requested stacks in the model's order; by default those that the items reach, which must be
    the same."""
    if request.stacks is not None:
        unknown_stacks = set(request.stacks) - set(model.stacks)
        if unknown_stacks or not request.stacks:
            raise InputError(
                f"{model.name} has the stacks {list(model.stacks)}; asked for "
                f"{sorted(set(request.stacks))}"
            )
        return tuple(name for name in model.stacks if name in request.stacks)
    reachable_stacks = {
        tuple(
            name
            for name in model.stacks
            if name == "encoder"
            or "encoder" not in model.stacks
            or feeds_decoder(model, item, request)
        )
        for item in items
    }
    if len(reachable_stacks) > 1:
        raise InputError(
            "clips with and without text cannot share a forward pass: say stacks=, or "
            "clips_at_once=1"
        )
    return reachable_stacks.pop()


class ClipView(View):
    """A clip, for a speech model: frames or words of the sound, tokens of the text."""

    item: Clip
    item_type = Clip
    accepted_inputs = "a Clip (speechmix.Clip.from_file)"
    allowed_units = AUDIO_UNITS

    @classmethod
    def feeds_decoder(cls, model: Model, item: Clip) -> bool:
        if model.tokenizer is None:
            return False
        has_text = provided_decoder_text(model, item) is not None
        return has_text or can_generate_decoder_text(model, item)

    def _prepare(self, stacks: Sequence[str]) -> None:
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

    @classmethod
    def feeds_decoder(cls, model: Model, item: Sentence) -> bool:
        return item.translation is not None or can_generate_decoder_text(model, item)

    def _prepare(self, stacks: Sequence[str]) -> None:
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

    def __init__(self, model: Model, item: Inputs, request: MixRequest, stacks: Sequence[str]):
        self._inputs = item
        super().__init__(model, item, request, stacks)

    @classmethod
    def feeds_decoder(cls, model: Model, item: Inputs) -> bool:
        return model.capabilities.text_input in item

    def _prepare(self, stacks: Sequence[str]) -> None:
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


def is_masked_model(model: Model) -> bool:
    """Whether a model reads a text whose target may be masked."""
    has_mask = getattr(model.tokenizer, "mask_token", None) is not None
    return has_mask and model.output_kind == "masked"


def replace_target_by_mask(sentence: Sentence) -> tuple[Sentence, ObjectiveOption | None]:
    """The sentence with a mask for the target, and the spelling (two, with a foil) that is read
    there."""
    if not isinstance(sentence.target, int):
        return sentence, None
    target = sentence.words[sentence.target]
    if target.text == MASK:
        return sentence, "log_probability"
    refuse_multipart_word(target, "a mask in its place", where=sentence.name or sentence.text)
    text = getattr(sentence, target.part)
    masked_text = {target.part: text[: target.start] + MASK + text[target.stop :]}
    cue = make_word_request(sentence.words, sentence.cue_words) if sentence.cue_words else None
    spellings = (target.text,) if sentence.foil is None else (target.text, sentence.foil)
    return sentence.replace(**masked_text, cue=cue, target=sentence.target, foil=None), spellings


def mask_target(
    model: Model, item: Item, objectives: Sequence[ObjectiveOption | Objective]
) -> tuple[Item, list[ObjectiveOption | Objective]]:
    """Return the item with its target masked and the objectives that are read there, where a masked
    model predicts the target.

    Only a `Sentence` with a target changes, and only if the model has a mask token. "auto",
    "logit", "contrast" or spellings read the target, so that it is masked. Position numbers and
    functions read the text unchanged; together with one of the former they read the masked text.
    """
    reads_target = [_reads_target(objective) for objective in objectives]
    if not (isinstance(item, Sentence) and any(reads_target) and is_masked_model(model)):
        return item, list(objectives)
    masked, spellings = replace_target_by_mask(item)
    if masked is item or spellings is None:  # no target, or the mask itself
        return item, list(objectives)
    mask_objectives: dict[str, ObjectiveOption] = (
        {"auto": spellings, "logit": spellings[:1]} if isinstance(spellings, tuple) else {}
    )
    if item.foil is not None:
        mask_objectives["contrast"] = spellings
    return masked, [
        mask_objectives.get(objective, objective) if isinstance(objective, str) else objective
        for objective in objectives
    ]


def _reads_target(objective: object) -> bool:
    """Whether an objective is a name or a spelling: then what it reads is the target."""
    if isinstance(objective, str):
        return True
    return (
        isinstance(objective, Sequence)
        and len(objective) > 0
        and all(isinstance(word, str) for word in objective)
    )
