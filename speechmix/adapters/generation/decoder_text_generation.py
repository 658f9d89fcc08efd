"""Generate decoder text, once each, for items that bring none.

In: a trained model with its language-model head, and a clip without a text (or a sentence without a
translation). Out: a `GeneratedText`. `Model.generated_texts` holds it for a model as it is (its
`fingerprint`), and a run stores it in its folder. A random twin generates none; it is fed what the
trained model generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.cache_keys import digest
from ...inputs.clips.clip import Clip

if TYPE_CHECKING:
    from ...inputs.sentences.sentence import Sentence
    from ..model import Model
    from .decoder_context import GeneratedText


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
