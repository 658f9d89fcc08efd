"""The mask of a masked language model in the place of a sentence's target word.

In: a model and a sentence with a target. Out: the sentence that the model reads, and what is read
at the mask. A masked model that reads its target copies it; what it predicts from context is seen
behind the mask alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...adapters.generation.text_tokens import MASK
from ...adapters.model import Model
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.multipart_words import make_word_request, refuse_multipart_word
from ..measures.token_objectives import Objective
from .item_view import Item
from .request import ObjectiveOption


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

    Examples
    --------
    A model without a mask token, or an item without a target, leaves both as they are.
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
