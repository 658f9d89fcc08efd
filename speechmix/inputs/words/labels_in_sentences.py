"""Labels of words inside sentences: told apart where they are repeated, and with one period at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from .word_lookup import normalize_word


def number_repeated(
    labels: Sequence[str], fold: Callable[[str], str] = normalize_word
) -> list[str]:
    """Labels with their occurrence, where a word is there several times; by default case and punctuation aside.

    Examples
    --------
    >>> number_repeated(["Ever", "tried,", "ever", "failed."])
    ['Ever (1)', 'tried,', 'ever (2)', 'failed.']
    """
    words = [fold(label) for label in labels]
    counts, occurrences = Counter(words), Counter[str]()
    numbered = []
    for label, word in zip(labels, words, strict=True):
        occurrences[word] += 1
        numbered.append(f"{label} ({occurrences[word]})" if counts[word] > 1 else label)
    return numbered


def name_in_sentence(label: str) -> str:
    """A label without its own punctuation, which the sentence around it would double.

    Examples
    --------
    >>> name_in_sentence("light,"), name_in_sentence("tried, (own sound)"), name_in_sentence("(end)")
    ('light', 'tried (own sound)', '(end)')
    """
    return re.sub(r"(?<=\w)[.,;:]+(?= \(|$)", "", label)


def end_sentence(sentence: str) -> str:
    """A sentence with its period, unless the label that it ends in has one.

    Examples
    --------
    >>> end_sentence("It is failed."), end_sentence("It is failed"), end_sentence("It is 'failed.'")
    ('It is failed.', 'It is failed.', "It is 'failed.'")
    """
    return sentence if sentence.rstrip("'\"”»)").endswith((".", "!", "?", "…")) else f"{sentence}."
