"""The label that a classifier gives, as the one thing that it writes.

In: a classifier of sounds or texts and an item. Out: a `Writing` of one token, the label, whose
sources are the words (or segments, or tokens) of the item. Logits of labels count as those of one
position, so the label is compared with other labels as a token is with other tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...inputs.clips.clip import Clip
from ...interventions.decision import tokens_as_sources, words_as_sources
from ...mixing.measures.token_objectives import (
    check_maps_reach_label,
    label_index,
    label_names,
    label_position,
)
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from .contrasts import Contrast
from .decoder_drafts import padding_sources
from .generated_tokens import (
    Draft,
    SourceUnit,
    Writing,
    make_open_decision,
    read_logits,
    read_probabilities,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.sentences.sentence import Sentence


def write_label(
    model: Model, item: Clip | Sentence, *, label: str | None, by_token: bool
) -> Writing:
    """The label that a classifier gives an item, or the one that is asked about (by its name, or
    its number from 0)."""
    view = make_view(model, item, MixRequest(units="word" if model.hears else "token"))
    view.prepare(tuple(model.stacks))
    stack = model.capabilities.input_stack
    spans = tuple(view.sources(stack))
    if by_token and not model.hears:
        item_sources = tokens_as_sources(spans)
    else:
        item_sources = words_as_sources(spans, [word.text for word in item.words or ()])
    decision = make_open_decision(model, item, view.prepared, {stack: item_sources})
    times = {span.word: (span.onset, span.offset, span.times) for span in spans}
    sources = [
        SourceUnit("sound", source, *times[source.index])
        if model.hears
        else SourceUnit("read", source)
        for source in item_sources
    ]
    sources += padding_sources(spans)
    logits, labels = read_logits(decision), label_names(model)
    index = int(logits[0].argmax()) if label is None else label_index(model, label)
    tokens = read_probabilities(model, [Draft(index, labels[index], 0, 0)], logits)
    by = f"label of the model ({model.label})" if label is None else "given"
    units = spans if model.hears else None
    words = (labels[index],)
    return Writing(decision, tokens, words, tuple(sources), labels[index], by, units, logits)


def contrast_with_label(writing: Writing, foil: int) -> Contrast:
    """The label against another one."""
    labels, label = label_names(writing.model), writing.tokens[0]
    probability = float(writing.logits[0].softmax(dim=-1)[foil])
    return Contrast(0, label.id, foil, label.label, labels[foil], probability)


def label_rows(writing: Writing) -> list[int]:
    """Positions of the last layer that a label is read from: one, or all those of the sources.

    Raises
    ------
    InputError
        As `check_maps_reach_label`.
    """
    check_maps_reach_label(writing.model)
    row = label_position(writing.model, writing.decision.prepared)
    if row is not None:
        return [row]
    return [position for unit in writing.sources for position in unit.source.positions]
