"""Where the cue is in a sentence of BLiMP: by how its paradigm was built, or by a dependency parse.

In: the words of an acceptable sentence, the index of its target, and what kind of word the cue is
(the values of `PARADIGMS`). Out: the indices of the cue's words, none if there is none; and the
number of the target.

The two ways differ in "A lot of cashiers have": by construction the cue is the noun that agrees,
"cashiers"; a parse says "lot". Of an antecedent all words are the cue, as the first mention of the
published study's coreference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InputError, MissingExtraError
from ...inputs.sentences.sentence import Sentence

_DEMONSTRATIVES = {"this": "singular", "that": "singular", "these": "plural", "those": "plural"}
_DETERMINERS = {*_DEMONSTRATIVES, *"a an the some all most many every each no few several".split()}
_SINGULAR_DETERMINERS = {"this", "that", "a", "an", "every", "each"}
_VERB_NUMBERS = {"is": "singular", "was": "singular", "has": "singular", "does": "singular"}
_VERB_NUMBERS |= {"are": "plural", "were": "plural", "have": "plural", "do": "plural"}
_SUBJECT_RELATIONS = ("nsubj", "nsubjpass", "nsubj:pass", "csubj")


def find_cue_by_construction(cue_kind: str, words: list[str], target: int) -> tuple[int, ...]:
    """Indices of the cue's words.

    Examples
    --------
    >>> find_cue_by_construction("head of the subject", "A niece of most senators has left .".split(), 5)
    (1,)
    >>> find_cue_by_construction("antecedent", "A lot of girls cure themselves .".split(), 5)
    (0, 1, 2, 3)
    """
    lowered_words = [word.lower() for word in words]
    if (
        cue_kind == "determiner"
    ):  # this (good) sketch: there may be another demonstrative in the subject
        return tuple([i for i in range(target) if lowered_words[i] in _DEMONSTRATIVES][-1:])
    if cue_kind == "noun":  # the object ends the sentence, compounds have their head last
        return tuple([i for i in range(target + 1, len(words)) if words[i][0].isalnum()][-1:])
    if (
        cue_kind == "head of the subject"
    ):  # A niece of most senators has: the noun before "of" or "about"
        return tuple([i - 1 for i in range(1, target) if lowered_words[i] in ("of", "about")][:1])
    if cue_kind == "subject":  # A lot of cashiers impress: the noun before the verb
        return (target - 1,) if target else ()
    noun_index = (
        3
        if lowered_words[:3] == ["a", "lot", "of"]
        else 1
        if lowered_words[0] in _DETERMINERS
        else 0
    )
    stop = noun_index + 1
    while stop < target and words[stop][0].isupper():  # Harvard University
        stop += 1
    return tuple(range(stop)) if stop <= target else ()


def find_cue_by_dependency(
    cue_kind: str, text: str, target: int, parse: Callable[[str], Any]
) -> tuple[int, ...]:
    """Indices of the cue's words from a parse: the determiner's head, the noun's determiner, the
    verb's subject.

    Parameters
    ----------
    parse : callable
        Gives the tokens of a text, with spaCy's attributes i, idx, dep_ and head.
    """
    words = Sentence(text).words
    tokens = list(parse(text))
    word_index_by_token = {
        token.i: next((i for i, word in enumerate(words) if token.idx < word.stop), len(words) - 1)
        for token in tokens
    }
    target_token = next((token for token in tokens if word_index_by_token[token.i] == target), None)
    if target_token is None:  # a token of the parse may take in two words
        return ()
    if cue_kind == "noun":
        cue_tokens = [target_token.head] if target_token.dep_ == "det" else []
    elif cue_kind == "determiner":
        cue_tokens = [
            token for token in tokens if token.head.i == target_token.i and token.dep_ == "det"
        ]
    else:
        governors = {target_token.i, target_token.head.i}
        if cue_kind == "antecedent":  # the reflexive may hang on a preposition of the verb
            governors.add(target_token.head.head.i)
        cue_tokens = [
            token
            for token in tokens
            if token.dep_ in _SUBJECT_RELATIONS
            and token.head.i in governors
            and word_index_by_token[token.i] < target
        ][:1]
        if cue_kind == "antecedent" and cue_tokens:
            head = cue_tokens[0].i
            cue_tokens = [
                token
                for token in tokens
                if head in (token.i, *_list_ancestors(token))
                and word_index_by_token[token.i] < target
            ]
    return tuple(dict.fromkeys(word_index_by_token[token.i] for token in cue_tokens))


def _list_ancestors(token: Any) -> list[int]:
    """Indices of the token's head, that one's head, ... up to the root, which is its own head."""
    ancestor_indices = []
    while token.head.i != token.i:
        token = token.head
        ancestor_indices.append(token.i)
    return ancestor_indices


def target_number(cue_kind: str, words: list[str], target: int, foil: str) -> str:
    """Number of the target, "singular" or "plural"."""
    lowered_words = [word.lower() for word in words]
    form = lowered_words[target]
    if cue_kind == "antecedent":
        return "plural" if form == "themselves" else "singular"
    if cue_kind == "noun":
        return _DEMONSTRATIVES.get(form, "singular")
    if cue_kind == "determiner":
        numbers = [
            _DEMONSTRATIVES[word] for word in lowered_words[:target] if word in _DEMONSTRATIVES
        ]
        return numbers[-1] if numbers else "singular" if len(form) < len(foil) else "plural"
    return _VERB_NUMBERS.get(form) or (
        "singular" if len(form) > len(foil) else "plural"
    )  # a regular verb: the one with -s


def is_plural_subject(subject: list[str]) -> bool:
    """Whether a subject with a determiner has a noun in -s: "those drivers", "a lot of
    pedestrians", "the Clintons"."""
    subject = [word.lower() for word in subject]
    is_quantified = (
        subject[:3] == ["a", "lot", "of"] or subject[0] in _DETERMINERS - _SINGULAR_DETERMINERS
    )
    return (
        is_quantified
        and len(subject) > 1
        and subject[-1].endswith("s")
        and not subject[-1].endswith("ss")
    )


def load_spacy_pipeline(model: str = "en_core_web_sm") -> Callable[[str], Any]:
    """Return a spaCy pipeline, for `read_blimp(parse=...)`.

    Raises
    ------
    MissingExtraError
        If spaCy is not installed.
    InputError
        If the pipeline is not there.
    """
    try:
        import spacy
    except ImportError as error:
        raise MissingExtraError("spacy", "spacy", "finding cues by dependency") from error
    try:
        return spacy.load(model)
    except OSError as error:
        raise InputError(
            f"expected the spaCy pipeline {model!r}: python -m spacy download {model} ({error})"
        ) from error
