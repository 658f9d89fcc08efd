"""Does il stand for nobody? il y a, il faut, il fait froid, il est dix heures, il me semble voir,
il peut y avoir.

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
_IMPERSONAL_BEFORE = {
    # "parer" is paraître without its circumflex (il parait que)
    "que": frozenset(
        "sembler paraître parer arriver suffire importer convenir apparaître résulter ressortir "
        "rester être".split()
    ),
    "de": frozenset("convenir suffire importer plaire déplaire tarder".split()),
    "un": frozenset("exister rester manquer suffire arriver venir survenir".split()),
}
_COUNTS = frozenset("un une des plusieurs aucun aucune nul nulle rien".split())
# Il peut y avoir, il doit être midi: il belongs to the infinitive behind these.
_WITH_INFINITIVE = frozenset("pouvoir devoir aller sembler paraître".split())
_EXPERIENCERS = frozenset("me m' te t' nous vous lui leur".split())
_ABOUT = frozenset("près de d' environ presque plus moins déjà".split())
# Il est difficile de partir: these are said of what is done, not of him who does it.
_OF_DEEDS = frozenset(
    """
    possible impossible difficile facile nécessaire utile inutile permis défendu interdit urgent rare superflu logique normal
    important essentiel indispensable préférable souhaitable juste injuste naturel évident inconcevable dangereux agréable
    recommandé conseillé obligatoire bon
    """.split()
)
_COPULAS = frozenset("être devenir sembler paraître".split())
_SEASONS = frozenset("froid chaud beau nuit jour noir sombre doux frais bon mauvais".split())
_HOURS = frozenset("temps tard tôt midi minuit".split())


def is_impersonal(kinds: Sequence[WordKind], pronoun: int, verb: int) -> bool:
    """Whether il stands for nobody: il y a, il faut, il s'agit, il fait froid, il est dix heures,
    il semble que.

    Parameters
    ----------
    kinds : sequence of WordKind
    pronoun, verb : int
        Indices of il and of its verb, with clitics between them.
    """
    lemmas = kinds[verb].verbs
    clitics = {kind.key for kind in kinds[pronoun + 1 : verb]}
    if (
        lemmas & IMPERSONAL_VERBS
        or ("y" in clitics and "avoir" in lemmas)
        or ("s'" in clitics and "agir" in lemmas)
    ):
        return True
    if "valoir" in lemmas and verb + 1 < len(kinds) and kinds[verb + 1].key == "mieux":
        return True
    if "en" in clitics and (
        kinds[verb].key in ("soit", "fût") or lemmas & {"résulter", "ressortir"}
    ):
        return True  # quoi qu'il en soit, il en résulte
    if "rester" in lemmas and clitics & _EXPERIENCERS:
        return True  # il me reste
    infinitive = _infinitive_behind(kinds, verb)
    if infinitive is not None and lemmas & _WITH_INFINITIVE:
        if clitics & _EXPERIENCERS and lemmas & _COPULAS:
            return True  # il me semble voir
        return is_impersonal(kinds, verb, infinitive)
    if "être" in lemmas and _is_hour(kinds[verb + 1 : verb + 7]):
        return True
    behind = [
        kind
        for kind in kinds[verb + 1 : verb + 6]
        if kind.key in _HOURS or not (kind.before_adjective or kind.filler or _is_adverb(kind))
    ]
    if [kind.key for kind in behind[:2]] == ["à", "peine"]:
        behind = behind[2:]
    if not behind:
        return False
    if "avoir" in lemmas and behind[0].verbs:
        mieux = "mieux" in {kind.key for kind in kinds[verb + 1 : verb + 3]}
        if behind[0].verbs <= IMPERSONAL_VERBS or (mieux and "valoir" in behind[0].verbs):
            return True  # il a fallu, il aurait mieux valu
    if "faire" in lemmas and behind[0].key in _SEASONS:
        return True
    second = behind[1].key if len(behind) > 1 else ""
    if (
        lemmas & _COPULAS
        and not clitics & {"se", "s'"}
        and behind[0].key in _OF_DEEDS
        and second in ("de", "d'")
    ):
        return True
    counts = len(behind) > 1 and (second in _COUNTS or behind[1].counted)
    if (
        counts
        and "être" in lemmas
        and behind[0].past_participle
        and behind[0].verbs & _IMPERSONAL_BEFORE["un"]
    ):
        return True  # il est arrivé un
    if "être" in lemmas:
        is_hour = second in ("heure", "heures") and not behind[0].preposition
        return (
            behind[0].key in _HOURS
            or is_hour
            or (bool(behind[0].adjective_bits) and second in ("que", "qu'"))
        )
    key = (
        "que" if behind[0].key in ("que", "qu'") else "de" if behind[0].key in ("de", "d'") else ""
    )
    if not key and (behind[0].key in _COUNTS or behind[0].counted):
        key = "un"
    return bool(lemmas & _IMPERSONAL_BEFORE.get(key, frozenset()))


def _infinitive_behind(kinds: Sequence[WordKind], verb: int) -> int | None:
    """Index of an infinitive behind a verb, over adverbs and clitics."""
    for index in range(verb + 1, min(verb + 6, len(kinds))):
        kind = kinds[index]
        if kind.infinitive > kind.noun + kind.adjective:
            return index
        if not (kind.clitic or _is_adverb(kind)):
            return None
    return None


def _is_hour(behind: Sequence[WordKind]) -> bool:
    """Whether what stands behind a verb says the time: (près de) huit heures."""
    first = next(
        (index for index, kind in enumerate(behind) if kind.key not in _ABOUT), len(behind)
    )
    counted = behind[first : first + 2]
    return (
        bool(counted)
        and not counted[0].preposition
        and [kind.key for kind in counted[1:]] in (["heure"], ["heures"])
    )


def _is_adverb(kind: WordKind) -> bool:
    return kind.key == "pas" or (
        kind.adverb > 0 and kind.adverb > kind.noun + kind.adjective + kind.finite
    )
