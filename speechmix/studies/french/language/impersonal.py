"""Detect impersonal "il", as in il faut or il y a.

Others are il fait froid, il est dix heures, il me semble voir, il peut y avoir.

In: what kinds of words a sentence has, and where il and its verb are. Out: yes or no. Where both
can be (il était arrivé un lundi, il vient des Vosges), it is taken to: a number that nobody has is
worse than a pair that is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from .words import WordKind

# Nobody is meant by il before these verbs (il faut), or with a clause or a noun behind (il semble
# que, il existe un).
IMPERSONAL_VERBS = frozenset("falloir pleuvoir neiger geler grêler venter bruiner advenir".split())
_IMPERSONAL_VERBS_BY_COMPLEMENT = {
    # "parer" is paraître without its circumflex (il parait que)
    "que": frozenset(
        "sembler paraître parer arriver suffire importer convenir apparaître résulter ressortir "
        "rester être".split()
    ),
    "de": frozenset("convenir suffire importer plaire déplaire tarder".split()),
    "un": frozenset("exister rester manquer suffire arriver venir survenir".split()),
}
_QUANTIFIERS = frozenset("un une des plusieurs aucun aucune nul nulle rien".split())
# Il peut y avoir, il doit être midi: il belongs to the infinitive behind these.
_SEMI_AUXILIARIES = frozenset("pouvoir devoir aller sembler paraître".split())
_EXPERIENCERS = frozenset("me m' te t' nous vous lui leur".split())
_APPROXIMATIONS = frozenset("près de d' environ presque plus moins déjà".split())
# Il est difficile de partir: these are said of what is done, not of him who does it.
_EVALUATIVE_ADJECTIVES = frozenset(
    """
    possible impossible difficile facile nécessaire utile inutile permis défendu interdit urgent rare superflu logique normal
    important essentiel indispensable préférable souhaitable juste injuste naturel évident inconcevable dangereux agréable
    recommandé conseillé obligatoire bon
    """.split()
)
_COPULAS = frozenset("être devenir sembler paraître".split())
_WEATHER_WORDS = frozenset("froid chaud beau nuit jour noir sombre doux frais bon mauvais".split())
_TIME_WORDS = frozenset("temps tard tôt midi minuit".split())


def is_impersonal(kinds: Sequence[WordKind], pronoun_index: int, verb_index: int) -> bool:
    """Say whether il stands for nobody: il y a, il faut, il s'agit, il fait froid, il semble que.

    There may be clitics between il and its verb.
    """
    lemmas = kinds[verb_index].verb_lemmas
    clitics = {kind.key for kind in kinds[pronoun_index + 1 : verb_index]}
    if (
        lemmas & IMPERSONAL_VERBS
        or ("y" in clitics and "avoir" in lemmas)
        or ("s'" in clitics and "agir" in lemmas)
    ):
        return True
    if "valoir" in lemmas and verb_index + 1 < len(kinds) and kinds[verb_index + 1].key == "mieux":
        return True
    if "en" in clitics and (
        kinds[verb_index].key in ("soit", "fût") or lemmas & {"résulter", "ressortir"}
    ):
        return True  # quoi qu'il en soit, il en résulte
    if "rester" in lemmas and clitics & _EXPERIENCERS:
        return True  # il me reste
    infinitive_index = _find_infinitive(kinds, verb_index)
    if infinitive_index is not None and lemmas & _SEMI_AUXILIARIES:
        if clitics & _EXPERIENCERS and lemmas & _COPULAS:
            return True  # il me semble voir
        return is_impersonal(kinds, verb_index, infinitive_index)
    if "être" in lemmas and _is_hour(kinds[verb_index + 1 : verb_index + 7]):
        return True
    following_kinds = [
        kind
        for kind in kinds[verb_index + 1 : verb_index + 6]
        if kind.key in _TIME_WORDS
        or not (kind.can_precede_adjective or kind.is_filler or _is_adverb(kind))
    ]
    if [kind.key for kind in following_kinds[:2]] == ["à", "peine"]:
        following_kinds = following_kinds[2:]
    if not following_kinds:
        return False
    if "avoir" in lemmas and following_kinds[0].verb_lemmas:
        has_mieux = "mieux" in {kind.key for kind in kinds[verb_index + 1 : verb_index + 3]}
        if following_kinds[0].verb_lemmas <= IMPERSONAL_VERBS or (
            has_mieux and "valoir" in following_kinds[0].verb_lemmas
        ):
            return True  # il a fallu, il aurait mieux valu
    if "faire" in lemmas and following_kinds[0].key in _WEATHER_WORDS:
        return True
    second_key = following_kinds[1].key if len(following_kinds) > 1 else ""
    if (
        lemmas & _COPULAS
        and not clitics & {"se", "s'"}
        and following_kinds[0].key in _EVALUATIVE_ADJECTIVES
        and second_key in ("de", "d'")
    ):
        return True
    has_quantity = len(following_kinds) > 1 and (
        second_key in _QUANTIFIERS or following_kinds[1].is_quantity
    )
    if (
        has_quantity
        and "être" in lemmas
        and following_kinds[0].is_past_participle
        and following_kinds[0].verb_lemmas & _IMPERSONAL_VERBS_BY_COMPLEMENT["un"]
    ):
        return True  # il est arrivé un
    if "être" in lemmas:
        is_hour = second_key in ("heure", "heures") and not following_kinds[0].is_preposition
        return (
            following_kinds[0].key in _TIME_WORDS
            or is_hour
            or (bool(following_kinds[0].adjective_bits) and second_key in ("que", "qu'"))
        )
    complement = (
        "que"
        if following_kinds[0].key in ("que", "qu'")
        else "de"
        if following_kinds[0].key in ("de", "d'")
        else ""
    )
    if not complement and (
        following_kinds[0].key in _QUANTIFIERS or following_kinds[0].is_quantity
    ):
        complement = "un"
    return bool(lemmas & _IMPERSONAL_VERBS_BY_COMPLEMENT.get(complement, frozenset()))


def _find_infinitive(kinds: Sequence[WordKind], verb_index: int) -> int | None:
    """Index of an infinitive behind a verb, over adverbs and clitics."""
    for index in range(verb_index + 1, min(verb_index + 6, len(kinds))):
        kind = kinds[index]
        if kind.infinitive_frequency > kind.nominal_frequency:
            return index
        if not (kind.is_clitic or _is_adverb(kind)):
            return None
    return None


def _is_hour(following_kinds: Sequence[WordKind]) -> bool:
    """Whether what stands behind a verb says the time: (près de) huit heures."""
    first_index = next(
        (index for index, kind in enumerate(following_kinds) if kind.key not in _APPROXIMATIONS),
        len(following_kinds),
    )
    time_kinds = following_kinds[first_index : first_index + 2]
    return (
        bool(time_kinds)
        and not time_kinds[0].is_preposition
        and [kind.key for kind in time_kinds[1:]] in (["heure"], ["heures"])
    )


def _is_adverb(kind: WordKind) -> bool:
    return kind.key == "pas" or (
        kind.adverb_frequency > 0
        and kind.adverb_frequency > kind.nominal_frequency + kind.finite_frequency
    )
