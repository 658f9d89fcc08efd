"""Translate a sentence greedily by a sequence-to-sequence model of text, to be fed to its decoder.

In: a trained model with its language-model head, and a sentence without a translation. Out: the
sentence with one; or its ids and text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...errors import InputError
from ...inputs.sentences.sentence import Sentence
from .decoder_context import GeneratedText
from .decoder_text_generation import generate_text
from .text_tokens import encode_sentence

if TYPE_CHECKING:
    from ..model import Model

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
