"""Explain the words that a page uses, in a list below its summary.

In: the first screen, title and parts of a page. Out: the first screen with the explanations of
those words that the page uses, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from .html_page import FirstScreen, Item, Part, Picture, SortableTable, TermList

# Word: (pattern that finds it on the page, explanation). In the order of the list.
_WORDS = {
    "homophony": (
        r"homophon",
        "Words with different spellings sound the same, such as French lettre and lettres.",
    ),
    "pair": (
        r"\b(of|share) (a|the) pair\b|\beach pair\b",
        "Two clips of one sentence that differ in one property, such as singular and plural.",
    ),
    "cue": (
        r"\bcue\b",
        "The word whose contribution to the target is measured. A left cue is before the target; a "
        "right cue is after it.",
    ),
    "target": (
        r"\btarget\b",
        "The word that receives the contribution. Its other spelling, if there is one, is the foil.",
    ),
    "contribution": (
        r"\bcontribut",
        "Inside the model, vectors represent each word. A measure estimates how much each word "
        "contributes to the target's vector, the target itself included. These shares add up to "
        "100 %. The contribution of the cue is its share.",
    ),
    "Value Zeroing": (
        r"\bvalue.zeroing\b",
        "A measure of contribution. In each layer, a word passes information to other words through "
        "its value vectors. Value Zeroing sets those of one word to zero in one layer. It measures how "
        "much the target's vector changes.",
    ),
    "encoder, decoder, cross-attention (stack)": (
        r"\b(encoder|decoder|cross-attention|stacks?)\b",
        "The encoder processes the sound. The decoder writes the text. Through cross-attention, the "
        "decoder reads the output of the encoder. Each is a stack of layers: steps that compute new "
        "vectors from those of the step before. A CTC model has an encoder only. It predicts a letter, "
        "or none, for each short stretch of sound.",
    ),
    "untrained twin": (
        r"\b(untrained|twins?)\b",
        "A model of the same architecture as the trained model, with random weights.",
    ),
    "ablation": (
        r"\bablat",
        "To ablate the cue, its value vectors are set to zero in the layers of a stack. Then these "
        "layers pass no information from the cue to other words. If spelling needs the cue there, "
        "spelling accuracy falls.",
    ),
    "spelling accuracy": (
        r"\bspelling accuracy\b",
        "The % of clips in which the model prefers the target to its other spelling.",
    ),
    "margin, nat": (
        r"\b(margin|nats?)\b",
        "The margin is log p(target) − log p(other spelling). p is the model's probability. The unit "
        "of log p is the nat. 1 nat is a factor of 2.7.",
    ),
    "mixing strength": (
        r"\bmixing strength\b",
        "How much the target's vector changes if a layer passes nothing from other words to it, "
        "relative to the size of the vector.",
    ),
    "group": (
        r"\bgroups?\b",
        "Clips that belong together, such as those of one speaker or one pair. They are not "
        "independent, so each group counts as one observation.",
    ),
    "deciding position": (
        r"\bdeciding position\b",
        "A model writes text in tokens: letters or parts of words. The deciding position predicts the "
        "first token in which the two spellings differ.",
    ),
    "probe": (
        r"\bprobes?\b",
        "A classifier that predicts a label, such as singular or plural, from the model's vectors.",
    ),
    "source": (
        r"\bsources?\b",
        "A word that contributes to another word: a spoken word (a stretch of the sound), or a word "
        "that the model has already written.",
    ),
    "fill": (
        r"\bfills?\b",
        "What replaces a source that is removed: in the sound, silence or noise, for example; in the "
        "text, a space or another token. Or the word is deleted from the text.",
    ),
}


def add_page_words(first: FirstScreen, title: str, page_sections: Sequence[Part]) -> FirstScreen:
    """Add explanations of the words that a page uses to its first screen.

    Examples
    --------
    >>> add_page_words(FirstScreen(), "A run", [("Figures", ["Dashed: untrained twins."])]).words
    {'untrained twin': 'A model of the same architecture as the trained model, with random weights.'}
    """
    first_items = [first.figure, first.clip]
    texts = [title, *first.notes, *first.warnings, *first.answer]
    texts += [text for item in first_items if item is not None for text in _item_texts(item)]
    for heading, items in page_sections:
        texts += [heading, *(text for item in items for text in _item_texts(item))]
    page_text = "\n".join(texts)
    words = {
        word: explanation
        for word, (pattern, explanation) in _WORDS.items()
        if re.search(pattern, page_text, re.IGNORECASE)
    }
    return replace(first, words=words)


def _item_texts(item: Item) -> Iterator[str]:
    """Yield the texts of an item that a reader sees."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, TermList):
        yield from item.terms
        yield from item.terms.values()
    elif isinstance(item, Picture):
        yield item.caption
    elif isinstance(item, (pd.DataFrame, SortableTable)):
        table = item.table if isinstance(item, SortableTable) else item
        yield from map(str, table.columns)
        for name in table:
            if table[name].dtype.kind == "O":
                yield from map(str, table[name].unique())
    else:
        for name in ("heading", "summary", "text"):
            yield str(getattr(item, name, ""))
