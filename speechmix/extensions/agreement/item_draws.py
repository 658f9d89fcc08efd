"""Which items are scored: those whose words are one token each, as many as are asked for."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ...adapters.transformers_types import Tokenizer
from ...errors import InputError
from ...inputs.clips.corpus_row import RejectedRow
from ...inputs.sentences.sentence import Sentence
from .blimp import BlimpItem


def select_one_token_items(
    items: Iterable[BlimpItem], tokenizer: Tokenizer
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Keep the items whose target and foil are one token each, so that one mask or one logit stands
    for either.

    A form is one token if the sentence up to it is exactly one token longer than the sentence
    before it, and that token is not the unknown one. So word starts that depend on the space before
    them are judged as they will be read.

    Parameters
    ----------
    items : iterable of BlimpItem
    tokenizer : transformers tokenizer

    Returns
    -------
    usable_items : list of BlimpItem
    rejected : list of RejectedRow
    """
    usable_items, rejected = [], []
    for item in items:
        word = Sentence(item.text).words[item.target]
        prefix = item.text[: word.start].rstrip()
        counts = {
            form: _count_added_tokens(tokenizer, prefix, form) for form in (word.text, item.foil)
        }
        multi_token_forms = [form for form, count in counts.items() if count != 1]
        if not multi_token_forms:
            usable_items.append(item)
            continue
        description = ", ".join(
            f"{form!r} is {f'{token_count} tokens' if (token_count := counts[form]) else 'unknown'}"
            for form in multi_token_forms
        )
        role = (
            "target and foil are"
            if len(multi_token_forms) == 2
            else "target is"
            if multi_token_forms == [word.text]
            else "foil is"
        )
        rejected.append(
            RejectedRow(
                item.name, f"{role} not one token", f"{description} for {type(tokenizer).__name__}"
            )
        )
    return usable_items, rejected


def draw_items(
    items: Iterable[BlimpItem], max_items: int | None = None, *, seed: int = 0
) -> list[BlimpItem]:
    """Draw up to `max_items` items of each paradigm, as many singular as plural ones as far as there
    are.

    Without replacement (the published code drew with it, so that copies of an item could be drawn),
    in the order of `items`, and the same for the same seed. Everything if `max_items` is None.
    """
    items = list(items)
    if max_items is None:
        return items
    if max_items < 1:
        raise InputError(f"expected at least one item per paradigm to draw, found {max_items}")
    drawn_names: set[str] = set()
    for paradigm in dict.fromkeys(item.paradigm for item in items):
        generator = random.Random(f"{seed} {paradigm}")
        paradigm_items = [item for item in items if item.paradigm == paradigm]
        names_by_number = [
            [item.name for item in paradigm_items if (item.number == "plural") is is_plural]
            for is_plural in (False, True)
        ]
        names_by_number = [
            generator.sample(names, len(names)) for names in sorted(names_by_number, key=len)
        ]
        smaller_draw = names_by_number[0][: max_items // 2]
        drawn_names.update(smaller_draw + names_by_number[1][: max_items - len(smaller_draw)])
    return [item for item in items if item.name in drawn_names]


def _count_added_tokens(tokenizer: Tokenizer, prefix: str, form: str) -> int:
    """How many tokens the form adds to the text before it; 0 if it is unknown to the tokenizer."""
    ids, extended_ids = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (prefix, f"{prefix} {form}".strip())
    )
    if extended_ids[: len(ids)] != ids:  # merged across the space: not a token of its own
        return 2
    added_ids = extended_ids[len(ids) :]
    return (
        0
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in added_ids
        else len(added_ids)
    )
