"""What mining a sentence gives: pairs of cue and target with places, candidates that were dropped with reasons, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .french.text import key_of

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A cue, and the target whose spelling it decides.

    Parameters
    ----------
    template : str
    cue, target : (int, int)
        Half-open ranges of characters in the text as given; of a cue of several words that of the first.
    cue_form, target_form : str
        As written there.
    foil : str or None
        The target's spelling in the other number (where there is none that sounds the same: in another person); None
        where it is not known. Lower case, œ as written in the text's own word if that has one.
    number : {"s", "p"}
    person : str
        "1", "2" or "3"; of a noun, "".
    tense : str
        Mood and tense of a verb, such as "ind:pre"; of a noun, "".
    lemma : str
    differs : str
        What the foil differs in: "number", "person", or "" without a foil.
    audible : bool
        Whether the cue's own sound tells: les always, ils only before a vowel.
    liaison : bool
        Whether a liaison consonant of the word before sounds at the target's onset (les‿amis, un‿ami, ils‿aiment), so
        that the target's own audio can betray the number.
    distance : int
        From cue to target in words; 1 for neighbours.
    via, via_form
        The noun between, for determiner and verb.
    further_cues : tuple of (int, int)
        Further words of the cue: the noun, where determiner and noun are the cue of the verb. `cue_form` has them all.
    """

    template: str
    cue: Range
    target: Range
    cue_form: str
    target_form: str
    foil: str | None
    number: str
    person: str
    tense: str
    lemma: str
    differs: str
    audible: bool
    liaison: bool
    distance: int
    via: Range | None = None
    via_form: str | None = None
    further_cues: tuple[Range, ...] = ()


class Dropped(NamedTuple):
    """A candidate that is no pair, and why."""

    reason: str
    template: str
    cue: Range
    target: Range
    cue_form: str
    target_form: str


@dataclass(frozen=True, slots=True)
class Mined:
    """What a sentence gave: `pairs` in the order of the text, and what was `dropped`."""

    pairs: list[Pair]
    dropped: list[Dropped]


def count_pairs(mined: Iterable[Mined]) -> list[dict]:
    """Count pairs by template, number and cue form, and how many of them the cue's sound tells.

    Returns
    -------
    list of dict
        template, number, cue (lower case), pairs, audible, liaison; most frequent first within template and number.

    Examples
    --------
    >>> from speechmix.homophony import mine
    >>> count_pairs([mine("Les chats et les amis.")])
    [{'template': 'det_noun', 'number': 'p', 'cue': 'les', 'pairs': 2, 'audible': 2, 'liaison': 1}]
    """
    counts: dict[tuple[str, str, str], Counter] = {}
    for sentence in mined:
        for pair in sentence.pairs:
            counter = counts.setdefault(
                (pair.template, pair.number, key_of(pair.cue_form.replace("’", "'"))), Counter()
            )
            counter.update(pairs=1, audible=pair.audible, liaison=pair.liaison)
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] == "p", -item[1]["pairs"], item[0][2]))
    return [
        {"template": template, "number": number, "cue": cue, **{name: counter[name] for name in _COUNTED}}
        for (template, number, cue), counter in ordered
    ]


_COUNTED = ("pairs", "audible", "liaison")
