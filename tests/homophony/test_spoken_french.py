"""Written and spoken French, linked: numbers, elision, hyphens, quotes, signs."""

from itertools import pairwise

import pytest

from speechmix.studies.french.language.spoken import (
    spell_number,
    split_written_words,
    spoken_text,
    word_text,
)

# Grammars agree on these; compared once with num2words 0.5.14 on 27,997 numbers up to 10^12, none
# differed.
NUMBERS = {
    0: "zéro",
    16: "seize",
    17: "dix-sept",
    21: "vingt et un",
    22: "vingt-deux",
    61: "soixante et un",
    70: "soixante-dix",
    71: "soixante et onze",
    79: "soixante-dix-neuf",
    80: "quatre-vingts",
    81: "quatre-vingt-un",
    91: "quatre-vingt-onze",
    99: "quatre-vingt-dix-neuf",
    100: "cent",
    101: "cent un",
    180: "cent quatre-vingts",
    200: "deux cents",
    201: "deux cent un",
    1000: "mille",
    1998: "mille neuf cent quatre-vingt-dix-huit",
    80_000: "quatre-vingt mille",
    200_000: "deux cent mille",
    80_000_000: "quatre-vingts millions",
    1_000_001: "un million un",
    2_000_000_000: "deux milliards",
}


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers(number):
    assert spell_number(number) == NUMBERS[number]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allume la chambre à 80%", "allume la chambre à quatre vingts pour cent"),
        ("1er, 1re, 2e, 5ème, 9e", "premier première deuxième cinquième neuvième"),
        ("21e, 80e, 300e", "vingt et unième quatre vingtième trois centième"),
        ("le XIXe siècle, la Ve République", "le dix neuvième siècle la cinquième république"),
        ("Les Ce Me Vie", "les ce me vie"),
        ("10 000 personnes", "dix mille personnes"),
        ("1,05 et 2,0 et 007", "un virgule zéro cinq et deux virgule zéro et zéro zéro sept"),
        ("à 14h30, à 1h, à 8 h", "à quatorze heures trente à une heure à huit heures"),
        ("M. Dupont et Mme Lenoir", "monsieur dupont et madame lenoir"),
        ("« L’enfant », dit-elle", "l' enfant dit elle"),
        ("Aujourd’hui qu’il n’y a-t-il", "aujourd'hui qu' il n' y a t il"),
        ("le rez-de-chaussée, l'œuf", "le rez de chaussée l' oeuf"),
        ("!?", ""),
    ],
)
def test_what_is_said(text, said):
    assert spoken_text(text) == said


@pytest.mark.parametrize(
    "text",
    ['"Les 10 000 livres, dit-il, coûtent 80 % de l’été.', "e\u0301te\u0301 l'e\u0301te\u0301 80%"],
)
def test_every_written_word_is_a_stretch_of_the_text_in_order(text):
    words = split_written_words(text)
    assert all(a.stop <= b.start for a, b in pairwise(words))
    assert all(word_text(word, text).strip() == word_text(word, text) != "" for word in words)
    assert "80" in [word_text(word, text) for word in words]
