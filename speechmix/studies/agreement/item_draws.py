"""Which items are scored: those whose words are one token each, as many as are asked for."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ...adapters.transformers_types import Tokenizer
from ...errors import InputError
from ...inputs.clips.rows import RejectedRow
from ...inputs.sentences.sentence import Sentence
from .blimp import BlimpItem


def one_token_items(
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
    single : list of BlimpItem
    rejected : list of Rejected
    """
    single, rejected = [], []
    for item in items:
        word = Sentence(item.text).words[item.target]
        before = item.text[: word.start].rstrip()
        counts = {form: _tokens_added(tokenizer, before, form) for form in (word.text, item.foil)}
        odd = [form for form, count in counts.items() if count != 1]
        if not odd:
            single.append(item)
            continue
        shown = ", ".join(
            f"{form!r} is {f'{n} tokens' if (n := counts[form]) else 'unknown'}" for form in odd
        )
        role = (
            "target and foil are"
            if len(odd) == 2
            else "target is"
            if odd == [word.text]
            else "foil is"
        )
        rejected.append(
            RejectedRow(
                item.name, f"{role} not one token", f"{shown} for {type(tokenizer).__name__}"
            )
        )
    return single, rejected


def draw_items(
    items: Iterable[BlimpItem], most: int | None = None, *, seed: int = 0
) -> list[BlimpItem]:
    """Draw up to `most` items of each paradigm, as many singular as plural ones as far as there
    are.

    Without replacement (the published code drew with it, so that copies of an item could be drawn),
    in the order of `items`, and the same for the same seed. Everything if `most` is None.
    """
    items = list(items)
    if most is None:
        return items
    if most < 1:
        raise InputError(f"expected at least one item per paradigm to draw, found {most}")
    drawn: set[str] = set()
    for paradigm in dict.fromkeys(item.paradigm for item in items):
        draw = random.Random(f"{seed} {paradigm}")
        here = [item for item in items if item.paradigm == paradigm]
        sides = [
            [item.name for item in here if (item.number == "plural") is plural]
            for plural in (False, True)
        ]
        sides = [draw.sample(names, len(names)) for names in sorted(sides, key=len)]
        few = sides[0][: most // 2]
        drawn.update(few + sides[1][: most - len(few)])
    return [item for item in items if item.name in drawn]


def _tokens_added(tokenizer: Tokenizer, before: str, form: str) -> int:
    """How many tokens the form adds to the text before it; 0 if it is unknown to the tokenizer."""
    ids, longer = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (before, f"{before} {form}".strip())
    )
    if longer[: len(ids)] != ids:  # merged across the space: not a token of its own
        return 2
    added = longer[len(ids) :]
    return (
        0 if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in added else len(added)
    )
