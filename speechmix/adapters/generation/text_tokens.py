"""Tokenize a `Sentence` for a text model: token ids, and the word of each token by characters.

Translate a sentence greedily by a sequence-to-sequence model of text, to be fed to its decoder.

In: a trained model with its language-model head, and a sentence without a translation. Out: the
sentence with one; or its ids and text.

Generate decoder text, once each, for items that bring none.

In: a trained model with its language-model head, and a clip without a text (or a sentence without a
translation). Out: a `GeneratedText`. `Model.generated_texts` holds it for a model as it is (its
`fingerprint`), and a run stores it in its folder. A random twin generates none; it is fed what the
trained model generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError
from ...files.cache_keys import digest
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.multipart_words import refuse_multipart_word
from ...inputs.words.spans import label_unknown
from ..transformers_types import Tokenizer
from .decoder_context import GeneratedText
from .model_inputs import PreparedInputs, Tokens

if TYPE_CHECKING:
    from ...inputs.sentences.sentence import Sentence
    from ...inputs.words.cue_and_target import TextWord
    from ..model import Model
    from .decoder_context import GeneratedText


MASK = "<mask>"
_POSITION_TABLE_NAMES = ("position_embeddings", "wpe", "embed_positions")
_WORD_START_MARK = "▁"  # how sentencepiece marks the start of a word


def prepare_sentence(model: Model, sentence: Sentence, stacks: tuple[str, ...]) -> PreparedInputs:
    """Inputs of a model with one stack of tokens, encoder or decoder."""
    inputs, tokens = encode_sentence(model, sentence)
    if "decoder" in model.stacks:
        return PreparedInputs(inputs, tokens=_add_foil_token(model, sentence, tokens))
    return PreparedInputs(inputs, source_tokens=tokens)


def prepare_translation(
    model: Model, sentence: Sentence, stacks: tuple[str, ...]
) -> PreparedInputs:
    """Inputs of a sequence-to-sequence model; the decoder is fed the sentence's translation."""
    inputs, tokens = encode_sentence(model, sentence)
    prepared = PreparedInputs(inputs, source_tokens=tokens)
    if not set(stacks) & {"decoder", "cross"}:
        return prepared
    if sentence.translation is None:
        raise InputError(f"{sentence.name!r}: the decoder needs a text to write: give translation=")
    tokens, ids = _translation_tokens(model, sentence, sentence.translation)
    prepared.inputs["decoder_input_ids"] = torch.tensor([tokens.ids])
    target = _target_word(sentence)
    if sentence.foil is not None and target is not None and target.part == "translation":
        _, foil_ids = _translation_tokens(
            model, sentence, _replace_target_by_foil(sentence, target, "translation")
        )
        tokens = _add_deciding_token(tokens, ids, foil_ids, sentence)
    prepared.tokens = tokens
    return prepared


def encode_sentence(model: Model, sentence: Sentence) -> tuple[dict[str, torch.Tensor], Tokens]:
    """What the model is fed for a sentence's text (and pair), a batch of one, and its tokens."""
    tokenizer = _require_tokenizer(model)
    texts = [
        _insert_mask_token(model, text)
        for text in (sentence.text, sentence.pair)
        if text is not None
    ]
    options = (
        {"return_tensors": "pt", "return_offsets_mapping": True}
        if tokenizer.is_fast
        else {"return_tensors": "pt"}
    )
    encoding = tokenizer(*texts, **options)
    offsets = encoding.pop("offset_mapping", None)
    ids = encoding["input_ids"][0].tolist()
    if not ids:
        raise InputError(f"{model.name}: its tokenizer makes no tokens of {sentence.text!r}")
    position_limit = max_positions(model)
    if position_limit is not None and len(ids) > position_limit:
        raise InputError(
            f"{sentence.text[:40]!r}...: {len(ids)} tokens, and {model.name} has {position_limit} positions: "
            "cut the text"
        )
    text_indices = encoding.sequence_ids(0) if tokenizer.is_fast else _token_parts(tokenizer, ids)
    offsets = (
        offsets[0].tolist()
        if offsets is not None
        else _locate_pieces(tokenizer, ids, text_indices, texts)
    )
    words = [
        None
        if text_index is None
        else _find_word(
            sentence.words,
            characters,
            ("text", "pair")[text_index],
            _mask_shifts(model, sentence, text_index),
        )
        for characters, text_index in zip(offsets, text_indices, strict=True)
    ]
    kinds = ["special" if text_index is None else "token" for text_index in text_indices]
    accepted_names = {"input_ids", "attention_mask", "token_type_ids"}
    tensors = {name: value for name, value in encoding.items() if name in accepted_names}
    if "token_type_ids" in tensors and not getattr(model.config, "type_vocab_size", 0):
        del tensors["token_type_ids"]
    labels = _token_labels(tokenizer, ids, offsets, text_indices, texts)
    unknown_words = {
        word for word, id_ in zip(words, ids, strict=True) if id_ == tokenizer.unk_token_id
    }
    word_labels = [
        label_unknown(word.text, tokenizer.unk_token) if index in unknown_words else word.text
        for index, word in enumerate(sentence.words)
    ]
    return tensors, Tokens(ids, labels, words, kinds, word_labels=word_labels)


def max_positions(model: Model) -> int | None:
    """Length of the table of positions that a text is read with; None where positions are
    computed."""
    for name, submodule in model.base.named_modules():
        if (
            isinstance(submodule, torch.nn.Embedding)
            and name.rpartition(".")[2] in _POSITION_TABLE_NAMES
        ):
            # BART's table begins two rows early; RoBERTa's positions begin behind its padding.
            skipped_count = (
                getattr(submodule, "offset", 0)
                if submodule.padding_idx is None
                else submodule.padding_idx + 1
            )
            return submodule.num_embeddings - skipped_count
    return None


def _token_labels(
    tokenizer: Tokenizer,
    ids: list[int],
    offsets: Sequence[tuple[int, int]],
    text_indices: list[int | None],
    texts: list[str],
) -> list[str]:
    """Tokens as they are written in the text, where they are found there; with what the model reads
    instead, where it does not know them: *game ([UNK])*."""
    names = tokenizer.convert_ids_to_tokens(ids)
    written_texts = [
        "" if text_index is None else texts[text_index][a:b].strip()
        for (a, b), text_index in zip(offsets, text_indices, strict=True)
    ]
    return [
        label_unknown(text, name) if text and token_id == tokenizer.unk_token_id else text or name
        for text, name, token_id in zip(written_texts, names, ids, strict=True)
    ]


def _require_tokenizer(model: Model) -> Tokenizer:
    if model.tokenizer is None:
        raise InputError(
            f"{model.name} was loaded without a tokenizer, so it cannot be given text: load it "
            "with processor=tokenizer, "
            "or pass prepared inputs"
        )
    return model.tokenizer


def _insert_mask_token(model: Model, text: str) -> str:
    """The model's own mask token in place of <mask>."""
    if MASK not in text:
        return text
    mask = getattr(model.tokenizer, "mask_token", None)
    if mask is None:
        raise InputError(
            f"{model.name} has no mask token: a text with {MASK} is for masked language models"
        )
    return text.replace(MASK, mask)


def _mask_shifts(model: Model, sentence: Sentence, text_index: int) -> list[tuple[int, int]]:
    """(character, how much longer the text is from there on): the mask token has another length
    than <mask>."""
    text = (sentence.text, sentence.pair)[text_index] or ""
    extra_length = len(getattr(model.tokenizer, "mask_token", None) or MASK) - len(MASK)
    return [(i, extra_length) for i in range(len(text)) if text.startswith(MASK, i)]


def _find_word(
    words: tuple[TextWord, ...],
    characters: tuple[int, int],
    text_field: str,
    shifts: list[tuple[int, int]],
) -> int | None:
    """Index of the word that shares characters with a token."""
    start, stop = characters
    for index, word in enumerate(words):
        for begin, end in word.ranges if word.part == text_field else ():
            start_shift = sum(
                extra_length for mask_start, extra_length in shifts if mask_start < begin
            )
            end_shift = start_shift + sum(
                extra_length for mask_start, extra_length in shifts if mask_start == begin
            )
            if max(start, begin + start_shift) < min(stop, end + end_shift):
                return index
    return None


def _token_parts(tokenizer: Tokenizer, ids: list[int]) -> list[int | None]:
    """0 for text tokens, None for special ones (tokenizers without offsets; they take no pairs
    here)."""
    special_ids = set(tokenizer.all_special_ids) - {getattr(tokenizer, "mask_token_id", None)}
    return [None if i in special_ids else 0 for i in ids]


def _locate_pieces(
    tokenizer: Tokenizer, ids: list[int], text_indices: list[int | None], texts: list[str]
) -> list[tuple[int, int]]:
    """Each piece's characters, found left to right in the text; an empty range where it is not
    found."""
    if len(texts) > 1:
        raise InputError(
            f"{type(tokenizer).__name__} gives no character offsets: pairs of texts are not "
            "supported"
        )
    text, search_start, piece_ranges = texts[0].lower(), 0, []
    for token, text_index in zip(tokenizer.convert_ids_to_tokens(ids), text_indices, strict=True):
        piece = token.replace(_WORD_START_MARK, " ").strip().lower()
        piece_start = text.find(piece, search_start) if text_index is not None and piece else -1
        piece_ranges.append(
            (piece_start, piece_start + len(piece))
            if piece_start >= 0
            else (search_start, search_start)
        )
        search_start = piece_ranges[-1][1]
    return piece_ranges


def _add_foil_token(model: Model, sentence: Sentence, tokens: Tokens) -> Tokens:
    target = _target_word(sentence)
    if sentence.foil is None or target is None:
        return tokens
    text = _replace_target_by_foil(sentence, target, "text")
    foil_sentence = replace(sentence, text=text, cue=None, target=None, foil=None)
    return _add_deciding_token(
        tokens, tokens.ids, encode_sentence(model, foil_sentence)[1].ids, sentence
    )


def _target_word(sentence: Sentence) -> TextWord | None:
    return sentence.words[sentence.target] if isinstance(sentence.target, int) else None


def _replace_target_by_foil(sentence: Sentence, target: TextWord, text_field: str) -> str:
    """One part of a sentence with its foil in the target's place."""
    if target.part != text_field:
        raise InputError(
            f"{sentence.name!r}: the target {target.text!r} is in the {target.part}, not in the "
            f"{text_field}"
        )
    refuse_multipart_word(target, "its foil", where=repr(sentence.name))
    text = getattr(sentence, text_field)
    result: str = text[: target.start] + sentence.foil + text[target.stop :]
    return result


def _add_deciding_token(
    tokens: Tokens, ids: list[int], foil_ids: list[int], sentence: Sentence
) -> Tokens:
    if ids == foil_ids:
        raise InputError(
            f"{sentence.name!r}: the foil {sentence.foil!r} is spelled like the target"
        )
    return tokens.with_deciding_token(
        ids, foil_ids
    )  # where nothing ends the text, the longer spelling may leave no token to decide


def _translation_tokens(
    model: Model, sentence: Sentence, translation: str
) -> tuple[Tokens, list[int]]:
    """Teacher-forced decoder input for a translation; and the same ids with what the last position
    predicts."""
    tokenizer = _require_tokenizer(model)
    options = {"return_offsets_mapping": True} if tokenizer.is_fast else {}
    encoding = tokenizer(text_target=translation, **options)
    labels: list[int] = encoding["input_ids"]
    ids = [*_shift_labels(model, labels), labels[-1]]
    text_indices = _token_parts(tokenizer, labels)
    offsets = encoding.get("offset_mapping") or _locate_pieces(
        tokenizer, labels, text_indices, [translation]
    )
    words = [
        None if text_index is None else _find_word(sentence.words, characters, "translation", [])
        for characters, text_index in zip(offsets, text_indices, strict=True)
    ]
    token_labels = tokenizer.convert_ids_to_tokens(ids[:1]) + _token_labels(
        tokenizer, labels, offsets, text_indices, [translation]
    )
    kinds = [
        "special",
        *("special" if text_index is None else "token" for text_index in text_indices),
    ]
    return Tokens(ids[:-1], token_labels, [None, *words], kinds, label_offset=1), ids


def _shift_labels(model: Model, labels: list[int]) -> list[int]:
    """Decoder input for these labels, as the model itself makes it in training."""
    shift_function: Any = getattr(model.module, "prepare_decoder_input_ids_from_labels", None)
    if shift_function is not None:
        result: list[int] = shift_function(torch.tensor([labels], device=model.device))[0].tolist()
        return result
    return [model.config.decoder_start_token_id, *labels[:-1]]


def can_generate_text(model: Model) -> bool:
    """True for a trained model with a decoder fed by an encoder (or a prediction network), a
    language-model head and a tokenizer."""
    has_head = getattr(model.module, "can_generate", lambda: False)()
    has_decoder_input = (
        "cross" in model.stacks
        or model.capabilities.is_transducer
        or (model.converses and model.processor is not None)
    )
    return (
        has_head and has_decoder_input and model.tokenizer is not None and model.init == "trained"
    )


def generated_text_key(model: Model, item: Clip | Sentence) -> str:
    """Hash of what decides what a model writes about an item."""
    item_values = (
        [item.audio_hash, item.language] if isinstance(item, Clip) else [item.text, item.pair]
    )
    return digest([model.fingerprint, *item_values])


def generate_text(model: Model, item: Clip | Sentence) -> GeneratedText:
    """Generate the text of a clip without one, or the translation of a sentence without one; or
    return what was generated before.

    A model that cannot generate (an untrained twin, a model without a head) is an InputError.
    """
    key = generated_text_key(model, item)
    if key not in model.generated_texts:
        generate = model.family.generate if can_generate_text(model) else None
        if generate is None:
            remedy = "text= (translation= where it translates)" if model.hears else "translation="
            remedy = "answer=" if model.converses else remedy
            raise InputError(
                f"{item.name} has no text to feed the decoder, and {model.label} writes none "
                "itself (a trained model with "
                f"its head does): give {remedy}, or ask for stacks=['encoder']"
            )
        model.generated_texts[key] = generate(model, item)
    return model.generated_texts[key]


_MAX_TRANSLATION_TOKENS = 256


def translate_sentence(model: Model, sentence: Sentence | str) -> Sentence:
    """Return the sentence with the translation that the model itself generates; unchanged if it has
    one. Errors as in `generate_text`."""
    sentence = Sentence(sentence) if isinstance(sentence, str) else sentence
    if sentence.translation is not None:
        return sentence
    generated = generate_text(model, sentence)
    if not generated.text:
        raise InputError(f"{sentence.name!r}: {model.label} writes no text: give translation=")
    return sentence.replace(translation=generated.text)


def generate_translation(model: Model, sentence: Sentence) -> GeneratedText:
    """Greedy search of transformers' own `generate`, which knows the family's rules (a language to
    begin with, no padding)."""
    inputs = {
        name: tensor.to(model.device)
        for name, tensor in encode_sentence(model, sentence)[0].items()
    }
    with model.in_use(model.state_dtype), torch.no_grad():
        limit = min(
            _MAX_TRANSLATION_TOKENS,
            getattr(model.config, "max_position_embeddings", _MAX_TRANSLATION_TOKENS) - 2,
        )
        ids = model.module.generate(
            **inputs,
            num_beams=1,
            do_sample=False,
            max_new_tokens=limit,
            max_length=None,
            min_length=0,
        )[0].tolist()
    has_end_token = ids[-1] == model.tokenizer.eos_token_id
    text = model.tokenizer.decode(ids, skip_special_tokens=True).strip()
    source = f"translation of the model ({model.label}, greedy)"
    ended = has_end_token and len(ids) <= limit  # an end that is forced at the limit is none
    return GeneratedText(tuple(ids[:-1] if has_end_token else ids), 1, text, source, ended)
