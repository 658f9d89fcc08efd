"""What gradient measures explain: one number of the model's output about the target word.

In: `mix(objective=)`, a model and its clip, sentence or prepared inputs. Out: an `Objective`, a
differentiable function of the model's output, with the label of the map's only row. With z the
logits, t the target's token at position p and f the foil's:

    logit = z_p[t]        probability = softmax(z_p)[t]        contrast = z_p[t] - z_p[f] = log p(t) - log p(f)
    ctc   = log p(text) - log p(text without the target word)
    contrast of a CTC model = log p(text) - log p(text with the foil in the target's place)
    log_probability = sum over the target's tokens of log softmax(z_p)[t]; of a CTC model log p(text)

The objective of a CTC model: the probability of a whole transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...adapters.generation.decoder_text import text_with_foil, token_behind_text
from ...adapters.generation.greedy_generation import transcribe
from ...adapters.generation.model_inputs import first_difference
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import join_words, refuse_multipart_word
from ...inputs.words.spans import Span
from ..maps.numerics import ctc_log_probability
from .token_objectives import (
    Objective,
    contrast_or_logit,
    require_head,
    require_target,
    token_logits,
    token_objective,
    tokens_objective,
)

if TYPE_CHECKING:
    from ...adapters.generation.model_inputs import PreparedInputs, Tokens
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from ...inputs.sentences.sentence import Sentence


def explains_whole_text(kind: str, clip: Clip | Sentence) -> bool:
    """Whether the number is the log-probability of the whole text: segments of a sound have no
    target."""
    has_segments = isinstance(clip, Clip) and clip.has_segments and clip.target is None
    return has_segments and kind in ("auto", "log_probability")


def require_text(model: Model, clip: Clip | Sentence, pieces: Sequence[object]) -> None:
    """Raise an InputError if the text of a clip has no words or tokens: the model writes nothing."""
    if not pieces:
        raise InputError(
            f"{clip.name}: {model.label} writes nothing for this sound, so there is no word to "
            "explain: give text="
        )


def written_text_objective(
    model: Model, clip: Clip | Sentence, prepared: PreparedInputs
) -> Objective:
    """Log-probability of all text tokens that a decoder is fed, each given those before it."""
    tokens, audio_tokens = prepared.decoder_tokens, prepared.audio_tokens
    answer_position = None if audio_tokens is None else audio_tokens.answer_position
    first = tokens.n_prefix if answer_position is None else answer_position
    places = [place for place in range(first, len(tokens.ids)) if tokens.kinds[place] == "token"]
    require_text(model, clip, places)
    label = " ".join(tokens.labels[place] for place in places)
    ids, positions = [tokens.ids[place] for place in places], [place - 1 for place in places]
    return tokens_objective(ids, positions, label)


def transcript_objective(kind: str, words: tuple[str, ...], model: Model, clip: Clip) -> Objective:
    """CTC: how much likelier the transcript is than without the target, or than with its foil."""
    if not type(model.module).__name__.endswith("ForCTC") or model.tokenizer is None:
        raise ModelError(
            f"{model.name}: expected a model with a CTC head and its tokenizer, found "
            f"{type(model.module).__name__}; or give "
            f"objective= as a function of the model's output{model.missing_processor}"
        )
    if kind in ("logit", "probability") or words:
        raise InputError(
            f"objective={words or kind!r} is for models with tokens; a CTC model has 'ctc', "
            "'contrast' and "
            "'log_probability', or (frame, token)"
        )
    if explains_whole_text(kind, clip):
        kind, texts = "log_probability", [clip.text or transcribe(model, clip)]
        require_text(model, clip, texts[0].split())
        span = Span(0, 1, texts[0], "word")
    else:
        target, clip_words = require_target(clip), clip.words or ()
        kind = {"auto": "ctc" if clip.foil is None else "contrast"}.get(kind, kind)
        kind = contrast_or_logit(kind, clip.foil, clip)
        foil_clip = clip.replace(foil="") if kind == "ctc" else clip
        texts = [clip.text or join_words(clip_words)]
        texts += [] if kind == "log_probability" else [" ".join(text_with_foil(foil_clip).split())]
        word = clip_words[target]
        span = Span(0, 1, word.text, "word", target, word.start, word.end, times=word.pieces)
    labels = [model.tokenizer(text).input_ids if text else [] for text in texts]

    def function(output: ModelOutput) -> Tensor:
        scores, blank = token_logits(output).log_softmax(dim=-1), model.config.pad_token_id
        text_scores, *other_scores = (
            torch.stack(
                [
                    ctc_log_probability(row, ids, blank=blank) if ids else row[:, blank].sum()
                    for row in scores
                ]
            )
            for ids in labels
        )
        return text_scores - other_scores[0] if other_scores else text_scores

    return Objective(function, span, {"kind": kind, "texts": texts, "label": span.label})


def resolve_objective(
    option: Any, model: Model, clip: Clip | Sentence | None, prepared: PreparedInputs
) -> Objective:
    """Resolve the option `objective` of `mix` for one clip, sentence, or prepared inputs (None).

    An `Objective` is returned as it is. A callable is called with the output of the model with its
    head, for a batch of one, and returns a scalar. A model without a head is a ModelError; an
    objective that needs a target or foil that the item lacks is an InputError.
    """
    require_head(model)
    if isinstance(option, Objective):
        return option
    if callable(option):
        return Objective(
            lambda output: _apply_to_rows(option, output),
            Span(0, 1, "objective", "token"),
            {"kind": "given"},
        )
    if model.has_label_head:
        return _classifier_objective(option, model, prepared)
    if not isinstance(option, str) and isinstance(option[0], int):
        return token_objective("contrast" if len(option) == 3 else "logit", model, *option)
    if clip is None:
        raise InputError(
            f"objective={option!r} with prepared inputs: no target is known, so say what the "
            "number is, as "
            "objective=(position, token id), (position, token id, foil's id) or a function of the "
            "model's output"
        )
    kind, words = (option, ()) if isinstance(option, str) else ("auto", tuple(option))
    decoding = model.capabilities.decoding
    if isinstance(clip, Clip) and decoding == "frames":
        return transcript_objective(kind, words, model, clip)
    if kind == "ctc":
        raise InputError(
            f"objective='ctc' is for models with a CTC head; {model.name} has tokens: 'logit', "
            "'contrast'"
        )
    if isinstance(clip, Clip) or decoding == "cross-attention":
        return _decoder_objective(kind, words, model, clip, prepared)
    return _text_objective(kind, words, model, clip, prepared)


def one_position_advice(model: Model) -> str:
    """Objectives to request instead of one that is not read at one position of a model's output."""
    if model.has_label_head:
        return (
            "The label of a sound is read off a mean of several positions: ask gradient_input or "
            "integrated_gradients, split its logit with "
            "speechmix.logit_contributions(model, item, measure='decompx' or 'lrp'), or remove "
            "words with speechmix.ablate_input or speechmix.shapley"
        )
    if model.capabilities.decoding == "frames":
        return (
            "Give (frame, token id) or (frame, token id, foil's id), or explain letter by "
            "letter with speechmix.explain"
        )
    return (
        "Ask for 'logit' or 'contrast' of a token, or give (position, token id) or (position, "
        "token id, foil's id)"
    )


def _apply_to_rows(function: Callable[[ModelOutput], Tensor], output: ModelOutput) -> Tensor:
    """Values [n] of a function of one example's output."""
    tensors = {name: value for name, value in output.items() if isinstance(value, Tensor)}
    n = len(next(iter(tensors.values())))
    values = [
        function(type(output)(**{name: value[i : i + 1] for name, value in tensors.items()}))
        for i in range(n)
    ]
    for value in values:
        differentiable = isinstance(value, Tensor) and (
            value.requires_grad or not torch.is_grad_enabled()
        )
        if not differentiable or value.numel() != 1:
            raise InputError(
                "objective= as a function should return a tensor of one number that depends on the "
                "output"
            )
    return torch.stack([value.reshape(()) for value in values])


def _word_objective(
    model: Model, tokens: Tokens, target: int, label: str, *, prediction_offset: int
) -> Objective:
    """Log-probability of a word: of each of its tokens, given those before it (or, in a masked
    model, those around it)."""
    token_indices = [
        token_index
        for token_index, word in enumerate(tokens.words[: len(tokens.ids)])
        if word == target
    ]
    ids = [tokens.ids[token_index] for token_index in token_indices]
    positions = [token_index - prediction_offset for token_index in token_indices]
    return tokens_objective(ids, positions, label, target)


def _decoder_objective(
    kind: str, words: tuple[str, ...], model: Model, clip: Clip | Sentence, prepared: PreparedInputs
) -> Objective:
    """At the position that decides between target and foil, or predicts the target's first
    token."""
    if words:
        raise InputError(
            f"{clip.name}: objective={words!r} is for text models with one stack; give target= and "
            "foil= instead"
        )
    if explains_whole_text(kind, clip):
        return written_text_objective(model, clip, prepared)
    target = require_target(clip)
    tokens, label = prepared.decoder_tokens, (clip.words or ())[target].text
    kind = contrast_or_logit(kind, clip.foil, clip)
    deciding_index = tokens.deciding_index
    if deciding_index is None and kind != "contrast":
        deciding_index = next((p for p, word in enumerate(tokens.words) if word == target), None)
    if not deciding_index:
        raise InputError(
            f"{clip.name}: no token that the decoder writes decides the target {label!r}: the "
            "target should be a word of "
            "the transcript or translation, and a foil should differ from it in a token"
        )
    if kind == "log_probability":
        return _word_objective(model, tokens, target, label, prediction_offset=1)
    token = (
        tokens.ids[deciding_index]
        if deciding_index < len(tokens.ids)
        else token_behind_text(model)[0]
    )
    return token_objective(
        kind, model, deciding_index - 1, token, tokens.foil_id, label=label, word=target
    )


def _text_objective(
    kind: str, words: tuple[str, ...], model: Model, sentence: Sentence, prepared: PreparedInputs
) -> Objective:
    """Masked language models: at the position of the target (or the mask). Causal ones: one position
    earlier."""
    causal = model.capabilities.decoding == "causal"
    tokens = prepared.text_tokens
    masks = [
        p
        for p, token in enumerate(tokens.ids)
        if token == getattr(model.tokenizer, "mask_token_id", None)
    ]
    word = (
        tokens.words[masks[0]]
        if sentence.target is None and len(masks) == 1 and not causal
        else None
    )
    word = require_target(sentence) if word is None else word
    foil = words[1] if len(words) == 2 else None if words else sentence.foil
    kind = contrast_or_logit(kind, foil, sentence)
    token_index = next((p for p, owner in enumerate(tokens.words) if owner == word), None)
    is_masked = token_index in masks
    if is_masked and not words and token_index is not None:
        if kind == "contrast":
            raise InputError(
                f"{sentence.name!r}: the target is masked, so a contrast needs both spellings: "
                "objective=(word, word)"
            )
        return token_objective(
            kind, model, token_index, _likeliest_token(model, prepared, token_index), word=word
        )
    ids = _respelled_token_ids(model, sentence, word, words[0]) if words else tokens.ids
    foil_ids = ids if foil is None else _respelled_token_ids(model, sentence, word, foil)
    if is_masked and {len(ids), len(foil_ids)} != {len(tokens.ids)}:
        raise InputError(
            f"{words} should be one token each in {model.name}, for one mask stands for them"
        )
    if foil is not None:
        token_index = first_difference(ids, foil_ids)
    label = words[0] if words else sentence.words[word].text
    if (
        kind == "log_probability"
        and not words
        and token_index is not None
        and token_index >= causal
    ):
        return _word_objective(model, tokens, word, label, prediction_offset=int(causal))
    if token_index is None or (causal and token_index == 0):
        reason = (
            "is the first token, which nothing predicts"
            if token_index == 0
            else "is decided by no token"
        )
        raise InputError(
            f"{sentence.name!r}: the target {label!r} {reason}: choose another target, foil or "
            "objective"
        )
    return token_objective(
        kind,
        model,
        token_index - causal,
        ids[token_index],
        foil_ids[token_index],
        label=label,
        word=word,
    )


def _classifier_objective(option: Any, model: Model, prepared: PreparedInputs) -> Objective:
    """Objective of a classifier: of the label that it predicts, or of those that are named."""
    from .token_objectives import label_objective

    kind, names = (option, ()) if isinstance(option, str) else ("auto", tuple(option))
    return label_objective(kind, names, model, prepared)


def _likeliest_token(model: Model, prepared: PreparedInputs, position: int) -> int:
    """The token that the model itself finds likeliest at a position."""
    with model.in_use(), torch.no_grad():
        output = model.module(
            **{name: tensor.to(model.device) for name, tensor in prepared.inputs.items()}
        )
    return int(token_logits(output)[0, position].argmax())


def _respelled_token_ids(model: Model, sentence: Sentence, word: int, spelling: str) -> list[int]:
    """Token ids of the sentence with another word in the target's place."""
    word_span = sentence.words[word]
    refuse_multipart_word(
        word_span, "another spelling in its place", where=sentence.name or sentence.text
    )
    text = getattr(sentence, word_span.part)
    changed_texts = {word_span.part: text[: word_span.start] + spelling + text[word_span.stop :]}
    changed_sentence = replace(sentence, **changed_texts, cue=None, target=None, foil=None)
    prepared = model.family.prepare(model, changed_sentence, tuple(model.stacks))
    return prepared.text_tokens.ids
