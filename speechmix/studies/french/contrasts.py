"""Classify a homophone pair: kind of contrast, audible cue, informative onset.

In: who the target and its other spelling speak of ("3s", "3p", "1s"), and what stands before the
target. Out: one of `CONTRASTS`, and two truth values, judged alike for both members of a contrast:
what holds for *ils aiment* does for *il aime*.
"""

from __future__ import annotations

NUMBER, NUMBER_ACROSS_PERSONS, PERSON, TENSE = "number", "number_across_persons", "person", "tense"
IMPERSONAL, WORD = "impersonal", "word"
# The order is that of preference, where a spelling has partners of several kinds.
CONTRASTS = (NUMBER, NUMBER_ACROSS_PERSONS, PERSON, TENSE, IMPERSONAL, WORD)
NUMBER_CONTRASTS = (NUMBER, NUMBER_ACROSS_PERSONS)
# No contrast at all: spelled alike in both numbers (temps).
INVARIANT = "invariant"


def verb_contrast(person: str, other_person: str) -> str:
    """Return what two finite forms of a verb differ in, by person and number such as "3s".

    They have the same where mood or tense alone differ.

    Examples
    --------
    >>> [verb_contrast(*persons) for persons in (("3s", "3p"), ("1s", "3p"), ("3s", "1s"), ("3s", "3s"))]
    ['number', 'number_across_persons', 'person', 'tense']
    """
    if person == other_person:
        return TENSE
    if person[1] == other_person[1]:
        return PERSON
    return NUMBER if person[0] == other_person[0] else NUMBER_ACROSS_PERSONS


def is_audible(contrast: str, audible_when: str, *, is_before_vowel: bool) -> bool:
    """Say whether the cue's sound tells which member of the contrast it goes with.

    `contrast` is one of `CONTRASTS`; "" of a target without a partner counts as number.
    `audible_when`, "always", "before_vowel" or "never", says when the cue's form sounds different
    in the other number; `is_before_vowel` is of the word behind the cue.

    Notes
    -----
    *il* and *ils* sound alike before a consonant, but both sound different from *je* and *tu*:
    where the person differs too, or alone, every cue can be heard. No cue says a tense, and *il* of
    *il y avait* has no plural.

    Examples
    --------
    >>> is_audible("number", "before_vowel", is_before_vowel=False), is_audible("person", "before_vowel", is_before_vowel=False)
    (False, True)
    """
    if contrast in (TENSE, IMPERSONAL) or audible_when == "never":
        return False
    return (
        contrast in (NUMBER_ACROSS_PERSONS, PERSON) or audible_when == "always" or is_before_vowel
    )


def is_onset_informative(
    relation: str, *, previous_word_agrees: bool, starts_with_vowel: bool
) -> bool:
    """Say whether a liaison may make the target's onset differ in the other member of the contrast.

    Between a noun and its verb (les amis arrivent) nobody makes a liaison today, in either number
    (Delattre's "very rare"); in every other relation it can sound. `previous_word_agrees` says
    whether the word right before the target is the cue, or changes with it (an adjective does, a
    clitic does not: in ils les aiment and il les aime the same *les* precedes). `starts_with_vowel`
    is of the target.

    Notes
    -----
    So *une amie* counts as *des amies* does, *cette idée* as *ces idées*, *il aime* as *ils
    aiment*: one member has a liaison consonant, the other has none or another, and the onset
    differs.

    Examples
    --------
    >>> onset = {"previous_word_agrees": True, "starts_with_vowel": True}
    >>> is_onset_informative("determiner", **onset), is_onset_informative("determiner+subject", **onset)
    (True, False)
    """
    return relation != "determiner+subject" and previous_word_agrees and starts_with_vowel
