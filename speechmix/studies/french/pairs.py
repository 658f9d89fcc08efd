"""Results of mining a sentence: homophone pairs, dropped candidates and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...files.json_files import JsonObject
from .language.french_tokens import lookup_key

Range = tuple[int, int]


class HomophonePair(NamedTuple):
    """A cue, and the target whose spelling it decides.

    Parameters
    ----------
    template : str
    cue, target : (int, int)
        Half-open ranges of characters in the text as given; of a cue of several words that of the
        first.
    cue_form, target_form : str
        As written there.
    foil : str or None
        The target's spelling in the other number (where there is none that sounds the same: in
        another person or tense), or with another meaning; None where it is not known. Lower case, œ
        as written in the text's own word if that has one.
    number : {"s", "p", ""}
        "" where the cue tells a meaning.
    person : str
        "1", "2" or "3"; of a noun, "".
    tense : str
        Mood and tense of a verb, such as "ind:pre"; of a noun, "".
    lemma : str
    contrast : str
        One of `speechmix.studies.french.contrasts.CONTRASTS`; "invariant", or "" without a foil.
    meaning : str
        What the target means, where the cue tells that and no number (there: "place").
    audible : bool
        Whether the cue's own sound tells the contrast: les always, il and ils only before a vowel,
        unless the person differs.
    liaison : bool
        Whether in one member of the contrast a liaison sounds at the target's onset (les‿amis, so
        une amie, too; ils‿aiment, so il aime, too), so that the target's own audio can betray which
        it is.
    distance : int
        From cue to target in words; 1 for neighbours.
    numeral : bool
        Whether a number word stands between and tells as much as the cue (les deux chats).
    attractor : bool
        Whether a noun, determiner or pronoun of the other number stands between (le fils des
        voisins arrive; il les voit).
    via, via_form
        The noun between, for determiner and verb.
    further_cues : tuple of (int, int)
        Further words of the cue: the noun, where determiner and noun are the cue of the verb.
        `cue_form` has them all.
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
    contrast: str
    meaning: str
    audible: bool
    liaison: bool
    distance: int
    numeral: bool
    attractor: bool
    via: Range | None = None
    via_form: str | None = None
    further_cues: tuple[Range, ...] = ()


class DroppedCandidate(NamedTuple):
    """A candidate that is no pair, and why."""

    reason: str
    template: str
    cue: Range
    target: Range
    cue_form: str
    target_form: str


@dataclass(frozen=True, slots=True)
class MinedSentence:
    """What a sentence gave: `pairs` in the order of the text, and what was `dropped_candidates`."""

    pairs: list[HomophonePair]
    dropped_candidates: list[DroppedCandidate]


def count_pairs(mined: Iterable[MinedSentence]) -> list[JsonObject]:
    """Count pairs by template, contrast, number and cue form, and those that the cue's sound tells.

    The rows have template, contrast, number, cue (lower case), pairs, audible, liaison; within
    template, contrast and number the most frequent comes first.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = {}
    for sentence in mined:
        for pair in sentence.pairs:
            group = (
                pair.template,
                pair.contrast,
                pair.number,
                lookup_key(pair.cue_form.replace("’", "'")),
            )
            counts.setdefault(group, Counter()).update(
                pairs=1, audible=pair.audible, liaison=pair.liaison
            )

    def sort_key(item: tuple[tuple[str, str, str, str], Counter[str]]) -> tuple[object, ...]:
        (template, contrast, number, cue), counter = item
        return template, contrast, number == "p", -counter["pairs"], cue

    return [
        {
            **dict(zip(_GROUP_COLUMNS, group, strict=True)),
            **{name: counter[name] for name in _COUNT_COLUMNS},
        }
        for group, counter in sorted(counts.items(), key=sort_key)
    ]


_GROUP_COLUMNS, _COUNT_COLUMNS = (
    ("template", "contrast", "number", "cue"),
    ("pairs", "audible", "liaison"),
)
