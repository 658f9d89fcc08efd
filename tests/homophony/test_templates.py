"""Templates: the shipped ones are read, the documented copies are the shipped ones, mistakes are
named."""

from pathlib import Path

import pytest

from speechmix.errors import InputError
from speechmix.studies.french import load_template, load_templates, mine
from speechmix.studies.french import pair_template as module
from speechmix.studies.french.pair_template import CueForm

SHIPPED = Path(module.__file__).parent / "template_files"
DOCUMENTED = Path(__file__).parents[2] / "data_templates" / "french"

GOOD = """
name = "mine"
language = "fr"
relation = "determiner"
[cues.p]
always = ["les"]
[target]
pos = ["NOUN"]
"""


def test_sets():
    assert [t.name for t in load_templates("french")] == [
        "det_noun",
        "det_noun_verb",
        "pronoun_verb",
    ]
    assert [t.name for t in load_templates("french_paper")] == [
        "det_noun_paper",
        "det_noun_verb_paper",
        "pronoun_verb_paper",
    ]
    with pytest.raises(InputError, match="german"):
        load_templates("german")


def test_documented_templates_are_the_shipped_ones():
    sets = ("french", "french_paper", "french_control")
    shipped = {
        file.name: file.read_text(encoding="utf-8")
        for name in sets
        for file in (SHIPPED / name).glob("*.toml")
    }
    documented = {file.name: file.read_text(encoding="utf-8") for file in DOCUMENTED.glob("*.toml")}
    assert shipped == documented


def test_names_agree_with_files():
    for file in SHIPPED.glob("*/*.toml"):
        assert load_template(file).name == file.stem == load_template(file.stem).name


def test_defaults(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    template = load_template(tmp_path / "mine.toml")
    assert template.cues["les"] == CueForm("p", "always")
    assert (
        template.max_words_between,
        template.partner_contrasts,
        template.missing_partner_action,
    ) == (8, (), "drop")
    assert template.allow_capitalized_cue
    assert not template.require_first_candidate


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('relation = "determiner"', "", "relation must be a text"),
        ('always = ["les"]', 'always = ["Les"]', "write cues in lower case, 'les'"),
        ('pos = ["NOUN"]', 'pos = ["NUON"]', "pos must be one of"),
        ('name = "mine"', 'name = "mine"\ncontrasts = ["gender"]', "contrasts must be one of"),
        ('name = "mine"', 'name = "mine"\nlexicon = 3', "lexicon must be a text"),
        ('name = "mine"', "", "name must be a text"),
        ("[cues.p]", "[cues.plural]", "must be one of"),
        ('always = ["les"]', 'sometimes = ["les"]', "must be one of"),
        ('always = ["les"]', 'always = "les"', "must be a list of texts"),
        ('always = ["les"]', 'always = ["les"]\nnever = ["les"]', "listed twice"),
        ('[cues.p]\nalways = ["les"]', "", "no cue forms"),
        ('pos = ["NOUN"]', "", "pos must be a list of texts"),
        ('pos = ["NOUN"]', 'pos = ["NOUN"]\npartner = ["gender"]', "partner must be one of"),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\nwithout_partner = "ask"',
            "without_partner must be one of",
        ),
        ('pos = ["NOUN"]', 'pos = ["NOUN"]\n[between]\nwords_at_most = -1', "words_at_most"),
        ('name = "mine"', 'name = "mine"\nnome = 1', "unknown entry nome"),
        ('name = "mine"', "name = ", "not valid TOML"),
        ('name = "mine"', "name = " + "[" * 20_000, "not valid TOML: nested too deeply"),
        ('name = "mine"', 'name = "mine"\ndescription = [3]', "description must be a text"),
        ('pos = ["NOUN"]', 'pos = ["NOUN"]\n[target.endings]\np = 5', "p must be a list of texts"),
        ('pos = ["NOUN"]', 'pos = ["NOUN"]\n[target.endings]\nplural = ["s"]', "must be one of"),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\n[sentence]\nrequire_first_candidate = "no"',
            "require_first_candidate must be true or false",
        ),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\n[noun]\npartner = ["number"]',
            r"\[noun\] needs relation = 'determiner\+subject'",
        ),
        ('name = "mine"', 'name = "mine"\nbalance = ["age"]', "balance must be one of"),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\n[between]\ncoordinated = 1',
            "coordinated must be true or false",
        ),
        (
            'pos = ["NOUN"]',
            'pos = ["NOUN"]\n[between]\nallow_number_marked_noun = 0',
            "allow_number_marked_noun must be true or false",
        ),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    (tmp_path / "mine.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_template(tmp_path / "mine.toml")


def test_the_noun_s_own_rules_are_checked_and_make_a_template_of_its_own(tmp_path):
    text = GOOD.replace('"determiner"', '"determiner+subject"') + '[noun]\npartner = ["number"]\n'
    (tmp_path / "mine.toml").write_text(text)
    noun = load_template(tmp_path / "mine.toml").noun_template
    assert (noun.name, noun.relation, noun.target_pos, noun.partner_contrasts) == (
        "mine",
        "determiner",
        ("NOUN",),
        ("number",),
    )
    (tmp_path / "mine.toml").write_text(text + 'gender = "f"\n')
    with pytest.raises(InputError, match="unknown entry gender"):
        load_template(tmp_path / "mine.toml")


def test_missing_file_and_unknown_name(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_template(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is not one of"):
        load_template("det_nouns")


def test_the_published_list_of_nouns_is_compared_as_written():
    """The published script drops le ciel, and lets œil pass: its list has oeil."""
    det_noun = load_template("det_noun_paper")
    assert [
        pair.target_form for pair in mine("Je vois le ciel et un œil.", templates=[det_noun]).pairs
    ] == ["œil"]
    assert "not published" not in "".join(
        path.read_text(encoding="utf-8") for path in DOCUMENTED.glob("*.toml")
    )


def test_the_published_list_of_verbs():
    pronoun_verb = load_template("pronoun_verb_paper")
    found = mine("Il adapte le livre.", templates=[pronoun_verb])
    assert not found.pairs
    assert [one.reason for one in found.dropped_candidates] == ["form is excluded by the template"]
