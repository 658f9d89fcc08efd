"""Tokens keep their places in the text as given, whatever it holds."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmix.studies.french.language.spoken import begins_with_vowel, is_numeral, tokenize


def keys(text):
    return [token.key for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L’œuf, dit-il.", ["l'", "oeuf", ",", "dit", "-il", "."]),
        ("Y a-t-il quelqu'un ?", ["y", "a", "-t-il", "quelqu'un", "?"]),
        ("donne-le-moi", ["donne", "-le", "-moi"]),
        ("aujourd’hui, lorsqu'il", ["aujourd'hui", ",", "lorsqu'", "il"]),
        ("c'est-à-dire vingt-deux grands-mères", ["c'est-à-dire", "vingt-deux", "grands-mères"]),
        ("un rendez-vous", ["un", "rendez-vous"]),
        ("ju~ jupe", ["ju~", "jupe"]),
        ("« Les chats » !", ["«", "les", "chats", "»", "!"]),
        ("", []),
        ("  \n", []),
    ],
)
def test_tokens(text, expected):
    assert keys(text) == expected


def test_decomposed_text_keeps_its_own_places():
    text = unicodedata.normalize("NFD", "L’été, les âmes")
    tokens = tokenize(text)
    assert [token.key for token in tokens] == ["l'", "été", ",", "les", "âmes"]
    assert [unicodedata.normalize("NFC", text[t.start : t.stop]).lower() for t in tokens][
        1
    ] == "été"


@given(
    st.text(alphabet=st.sampled_from("leàé'’- -œŒ.,«\u0301\u200b\x00~_1Ltiq\ud800"), max_size=60)
    | st.text(max_size=60)
)
def test_places_are_in_order_and_in_the_text(text):
    stop = 0
    for token in tokenize(text):
        assert stop <= token.start < token.stop <= len(text)
        stop = token.stop


@pytest.mark.parametrize("unit", ["-la", "a'", "euh ", "les ", "il ne ", "(", "\x00"])
def test_a_megabyte_takes_no_square_time(unit):
    assert tokenize("le" + unit * (1_000_000 // len(unit)))


def test_numerals():
    assert all(map(is_numeral, ("deux", "vingt-et-un", "quatre-vingts", "1914")))
    assert not any(map(is_numeral, ("deuxième", "grand-mère", "")))


@pytest.mark.parametrize(
    "word", "ami homme héroïne habit hiver œuvre yeux île herbe hôtel heure huile".split()
)
def test_vowel_first(word):
    assert begins_with_vowel(word.replace("œ", "oe"))


@pytest.mark.parametrize(
    "word", "chat héros haricot hibou onze oui yaourt hache homard hiérarchie huit haut".split()
)
def test_consonant_first(word):
    assert not begins_with_vowel(word)
