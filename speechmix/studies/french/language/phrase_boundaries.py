"""Where a name, a phrase with a preposition, an insertion and a relative clause end.

In: the tokens of a sentence and what kinds of words they are. Out: indices of words. `subjects`
steps over these on the way from a noun to its verb.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .french_tokens import Token
from .words import CONJUNCTIONS, WordKind

# Two words that stand anywhere, and are no verb (en fait) and no noun (au final) there.
ADVERBIAL_PAIRS = frozenset(
    tuple(pair.split())
    for pair in (
        "en fait|au final|du coup|en effet|par exemple|en général|au moins|au fond|d' accord|de "
        "nouveau|sans doute|en plus"
    ).split("|")
)
_AUXILIARIES = frozenset(("avoir", "être"))
_MAX_INSERTION_WORDS = 6  # words between two commas


FindNounOfDeterminer = Callable[[int], "int | None"]


class PhraseBoundaries:
    """Ends of the phrases and clauses of a sentence.

    `find_noun` takes the index of a determiner and returns that of its noun, or None.
    """

    def __init__(
        self, tokens: Sequence[Token], kinds: Sequence[WordKind], find_noun: FindNounOfDeterminer
    ):
        self._tokens, self._kinds, self._find_noun = tokens, kinds, find_noun

    def find_name_end(self, start_index: int) -> int | None:
        """Last word of a name: words with a capital, or one that the lexicon lacks (transcripts
        have no capitals)."""
        kinds, index = self._kinds, start_index
        while (
            index < len(kinds) and self._tokens[index].is_capitalized and not kinds[index].is_sign
        ):
            index += 1
        if index == start_index and not kinds[index].is_known and not kinds[index].is_sign:
            index += 1
        return index - 1 if index > start_index else None

    def find_phrase_last_word(self, preposition: int) -> int | None:
        """Noun that ends a phrase with a preposition: d'anglais, du petit jardin, à cette heure;
        None if there is none."""
        kinds, index = self._kinds, preposition + 1
        is_contracted = kinds[preposition].key in ("du", "des", "au", "aux")
        if index >= len(kinds):
            return None
        if is_contracted:
            return self._find_noun(preposition) if kinds[preposition].determiner_bits else index
        if kinds[index].determiner_bits:
            return self._find_noun(index)
        while index < len(kinds) and (kinds[index].is_prenominal or kinds[index].is_quantity):
            index += 1
        if index >= len(kinds) or kinds[index].is_sign or kinds[index].is_function_word:
            return None
        name_end = self.find_name_end(index)
        if name_end is not None:
            return name_end
        return index if kinds[index].noun_bits or kinds[index].infinitive_frequency else None

    def find_closing_comma(self, opening_comma: int) -> int | None:
        """Comma that ends an insertion of a few words without a verb of its own (ma meilleure amie,
        donc Manon, me dit)."""
        kinds = self._kinds
        for index in range(
            opening_comma + 1, min(opening_comma + _MAX_INSERTION_WORDS + 2, len(kinds))
        ):
            word = kinds[index]
            if word.key == ",":
                return index if index > opening_comma + 1 else None
            is_strong_verb = (
                word.persons
                and word.finite_frequency
                > word.nominal_frequency + word.participle_frequency + word.adverb_frequency
            )
            if (
                word.is_sign
                or word.subject_person
                or word.key == "et"
                or is_strong_verb
                or (index == opening_comma + 1 and word.determiner_bits)
            ):
                return None
        return None

    def find_resumption_after_relative(self, pronoun: int) -> int | None:
        """Where the clause goes on behind a relative clause: behind its comma, or at the second
        finite verb."""
        kinds, verb_count, index = self._kinds, 0, pronoun + 1
        has_auxiliary = False
        while index < len(kinds):
            word = kinds[index]
            if word.key == "," and verb_count:
                return index + 1
            if word.is_sign or word.key in CONJUNCTIONS:
                return None
            if index + 1 < len(kinds) and (word.key, kinds[index + 1].key) in ADVERBIAL_PAIRS:
                index += 1
            elif word.determiner_bits and not (word.is_clitic and kinds[index - 1].is_clitic):
                noun_index = self._find_noun(index)
                index = index if noun_index is None else noun_index
            elif (
                word.persons
                and word.finite_frequency > word.nominal_frequency
                and not word.is_preposition
            ):
                if not (has_auxiliary and word.is_past_participle):
                    verb_count += 1
                    has_auxiliary = bool(word.verb_lemmas & _AUXILIARIES)
                if (
                    verb_count == 2
                    and not kinds[index - 1].is_clitic
                    and not kinds[index - 1].subject_person
                ):
                    return index
            index += 1
        return None
