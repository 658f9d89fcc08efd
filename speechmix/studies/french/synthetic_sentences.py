"""Singular and plural French sentences that differ in sound only at the cue.

Out: `PairText`s, the singular and the plural wording of one sentence with the places of target and cue. The target is
the first word that is spelled, but not pronounced, differently in the plural:
left cue   la **carte** (tombe) / les **cartes** (tombent)               the determiner tells, before the target
right cue  sans **livre** royal / sans **livres** royaux                 the adjective tells, after the target
           **leur** chat est là / **leurs** chats sont là                the verb tells; leur/leurs, quel/quels are homophones
For leur and quel the target is the determiner, not the noun: once a decoder has written "leurs", its own text gives the
noun's number away, and only the first homophone depends on the sound that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import InputError

SPLITS = ("train", "test")
SIDES = ("left", "right")

# Consonant first (no liaison), plural = singular + s with the same sound, no two of them
# homophones.
_MASCULINE_NOUNS = """
    livre volet chat voisin jardin ballon bouton camion numéro carton citron crayon dessin facteur garçon jouet lapin
    mouton fantôme papillon parfum panier secret poisson poulet bâton robot tambour tigre violon médecin fruit légume
    musée nuage costume
""".split()
_FEMININE_NOUNS = """
    carte maison lumière lampe table porte fenêtre voiture valise fleur plante poire pomme tomate vache guitare girafe jambe
    jupe lettre leçon lune machine musique moto nappe photo piscine planche poule sœur chanson chaussure chemise clé
    forêt
""".split()
# The control: nothing changes in the noun, whatever the cue says.
_INVARIANT_MASCULINE_NOUNS = "tapis bras colis prix".split()
_INVARIANT_FEMININE_NOUNS = "souris voix noix".split()

# Held-out voices share no family with a training voice (steph, steph2, ...).
_BASE_VOICE = "fr-fr"
_VOICE_VARIANTS = {
    "train": """
        f1 f2 f3 f5 m1 m2 m3 m4 m6 m8 Alex Alicia Andrea Andy Annie Diogo Gene Henrique Hugo Jacky Lee Marco Michael Mike
        adam anika antonio aunty belinda benjamin boris caleb croak ed edward grandma grandpa ian john marcelo max miguel
        norbert paul pedro quincy rob robert sandro shelby travis victor whisper whisperf zac
    """.split(),
    "test": "f4 m5 m7 linda michel steph".split(),
}

# (masculine, feminine, plural); without ce/ces and son/ses, which are homophones in the plural.
_DETERMINERS = (
    ("le", "la", "les"),
    ("un", "une", "des"),
    ("mon", "ma", "mes"),
    ("notre", "notre", "nos"),
)
_SILENT_VERBS = "tombe reste passe manque brille tremble".split()
_RIGHT_VERBS = (
    ("est là", "sont là"),
    ("va là", "vont là"),
    ("sera là", "seront là"),
    ("vient", "viennent"),
    ("dort", "dorment"),
)
_ADJECTIVES = "royal normal local brutal vertical spécial".split()
_BARE_PHRASES = ("sans", "pas de")

TEMPLATES = {"left": ("noun", "noun verb"), "right": ("noun adjective", "leur", "quel")}


@dataclass(frozen=True)
class PairText:
    """One sentence in the singular and in the plural.

    `cue` and `target` are indices of words, and `side` ("left" or "right") is where the cue is,
    seen from the target. `template` is one of `TEMPLATES`, `noun` is in the singular, and `control`
    says that it is spelled alike in both numbers.
    """

    singular: str
    plural: str
    cue: int
    target: int
    side: str
    template: str
    noun: str
    control: bool = False


def split_nouns(split: str, *, gender: str | None = None) -> list[str]:
    """Return the singular nouns of a split; every ninth is held out for "test".

    Invariant nouns are not among them. `gender` ("m" or "f") selects some.
    """
    _check_split(split)
    by_gender = {"m": _MASCULINE_NOUNS, "f": _FEMININE_NOUNS}
    if gender is not None:
        by_gender = {gender: by_gender[gender]}
    is_test = split == "test"
    return [
        noun
        for nouns in by_gender.values()
        for i, noun in enumerate(nouns)
        if (i % 9 == 8) == is_test
    ]


def split_voices(split: str) -> list[str]:
    """espeak-ng voices of a split; those of "test" are never trained on."""
    _check_split(split)
    return [f"{_BASE_VOICE}+{variant}" for variant in _VOICE_VARIANTS[split]]


def invariant_nouns(*, gender: str | None = None) -> list[str]:
    """Nouns whose plural is spelled like the singular (*souris*)."""
    return {
        "m": _INVARIANT_MASCULINE_NOUNS,
        "f": _INVARIANT_FEMININE_NOUNS,
        None: _INVARIANT_MASCULINE_NOUNS + _INVARIANT_FEMININE_NOUNS,
    }[gender]


def random_pair_text(
    random: np.random.Generator, *, side: str, nouns_of: str, control: bool = False
) -> PairText:
    """Draw a template and its words.

    `side` is "left" or "right", `nouns_of` the split whose nouns are used. `control` takes an
    invariant noun, in a template whose target is the noun.
    """
    if side not in SIDES:
        raise InputError(f"side must be one of {SIDES}, found {side!r}")
    templates = [name for name in TEMPLATES[side] if not control or name not in ("leur", "quel")]
    template = templates[random.integers(len(templates))]
    gender = "m" if template == "noun adjective" or random.random() < 0.5 else "f"
    choices = invariant_nouns(gender=gender) if control else split_nouns(nouns_of, gender=gender)
    noun = choices[random.integers(len(choices))]
    singular, plural, cue, target = _WORDINGS[template](
        random, noun, noun if control else f"{noun}s", gender
    )
    return PairText(singular, plural, cue, target, side, template, noun, control)


_Wording = tuple[str, str, int, int]  # singular, plural, indices of cue and target


def _make_noun_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    masculine, feminine, plural = _DETERMINERS[random.integers(len(_DETERMINERS))]
    return f"{masculine if gender == 'm' else feminine} {noun}", f"{plural} {plural_noun}", 0, 1


def _make_noun_verb_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural, cue, target = _make_noun_wording(random, noun, plural_noun, gender)
    verb = _SILENT_VERBS[random.integers(len(_SILENT_VERBS))]
    return f"{singular} {verb}", f"{plural} {verb}nt", cue, target


def _make_noun_adjective_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    phrase = _BARE_PHRASES[random.integers(len(_BARE_PHRASES))]
    adjective = _ADJECTIVES[random.integers(len(_ADJECTIVES))]
    target = len(phrase.split())
    return (
        f"{phrase} {noun} {adjective}",
        f"{phrase} {plural_noun} {adjective[:-1]}ux",
        target + 1,
        target,
    )


def _make_leur_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural = _RIGHT_VERBS[random.integers(len(_RIGHT_VERBS))]
    return f"leur {noun} {singular}", f"leurs {plural_noun} {plural}", 2, 0


def _make_quel_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural = _RIGHT_VERBS[random.integers(len(_RIGHT_VERBS))]
    word = "quel" if gender == "m" else "quelle"
    return f"{word} {noun} {singular}", f"{word}s {plural_noun} {plural}", 2, 0


_WORDINGS: dict[str, Callable[[np.random.Generator, str, str, str], _Wording]] = {
    "noun": _make_noun_wording,
    "noun verb": _make_noun_verb_wording,
    "noun adjective": _make_noun_adjective_wording,
    "leur": _make_leur_wording,
    "quel": _make_quel_wording,
}


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise InputError(f"split must be one of {SPLITS}, found {split!r}")
