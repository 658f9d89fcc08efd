"""Tokens that a decoder wrote, behind its prompt or prefix, as drafts, words and sources: what all
writers share.

In: ids as the decoder was fed them. Out: `Draft`s, each chosen one position earlier than it is fed,
the words they spell, and what was written before as sources of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..adapters.generation.decoder_prefix import first_timestamp_id
from ..errors import InputError
from ..interventions.removable_sources import Source
from .generated_tokens import (
    END,
    Draft,
    SourceUnit,
    Writing,
    group_pieces,
    label_of,
    with_probabilities,
)

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.words.spans import Span
    from ..interventions.decision import Decision


def text_sources(
    drafts: Sequence[Draft], words: Sequence[str], *, by_token: bool
) -> list[SourceUnit]:
    """What was written before as sources: words, or single tokens."""
    fed = [draft for draft in drafts if draft.fed_at is not None and draft.word is not None]
    if by_token:
        return [
            SourceUnit(
                "written", Source(place, draft.label, (draft.fed_at or 0,), word_index=draft.word)
            )
            for place, draft in enumerate(fed)
        ]
    positions: dict[int, list[int]] = {}
    for draft in fed:
        positions.setdefault(draft.word or 0, []).append(draft.fed_at or 0)
    return [
        SourceUnit("written", Source(word, words[word], tuple(places), word_index=word))
        for word, places in positions.items()
    ]


def pieces_of(model: Model, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, spaces kept; of a character in several tokens the last has
    all of it."""
    pieces, before = [], ""
    for stop in range(1, len(ids) + 1):
        text = model.tokenizer.decode(
            list(ids[:stop]), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        complete = text.rstrip("\ufffd") if stop < len(ids) else text
        pieces.append(complete[len(before) :])
        before = complete
    return pieces


def drafts_of_ids(
    model: Model, ids: Sequence[int], n_prefix: int, *, ended: bool, ahead: int = 1
) -> tuple[list[Draft], list[str]]:
    """Tokens behind a prefix, each chosen one position earlier than it is fed; and the end, where
    the text has one."""
    own = list(ids[n_prefix:])
    owners, words = group_pieces(pieces_of(model, own))
    timestamps = first_timestamp_id(model) if model.prefix.timestamps else None
    drafts = [
        Draft(id_, label_of(model, id_), n_prefix + place - ahead, word, n_prefix + place)
        for place, (id_, word) in enumerate(zip(own, owners, strict=True))
        if timestamps is None or id_ < timestamps
    ]
    if ended:
        drafts.append(Draft(model.tokenizer.eos_token_id, END, len(ids) - ahead, None))
    return drafts, words


def finished(
    model: Model,
    decision: Decision,
    drafts: Sequence[Draft],
    words: Sequence[str],
    sources: Sequence[SourceUnit],
    logits: Tensor,
    by: str,
    spans: Sequence[Span] | None = None,
) -> Writing:
    if all(draft.word is None and draft.label != END for draft in drafts):
        raise InputError(
            f"{decision.name}: {model.label} writes nothing, so there is no word to explain; give "
            "text="
        )
    tokens = with_probabilities(model, drafts, logits)
    text, places = " ".join(words), None if spans is None else tuple(spans)
    return Writing(decision, tokens, tuple(words), tuple(sources), text, by, places, logits)
