"""Words and their text: which word is where, and what is in one of the two alone."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

import speechmix
from speechmix.inputs.words.multipart_words import join_words
from speechmix.inputs.words.timed_words import Word
from speechmix.inputs.words.words_in_text import cut_text, describe_differences, locate_words


def in_text(words: str | list[str], text: str) -> list[str | None]:
    """What of the text each word is."""
    labels = words.split() if isinstance(words, str) else words
    return [span and text[slice(*span)] for span in locate_words(labels, text)]


def timed(words: str) -> list[Word]:
    return [Word(word, 0.1 * i, 0.1 * i + 0.1) for i, word in enumerate(words.split())]


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("er Ever tried", "Ever tried.", [None, "Ever", "tried"]),
        ("um a number", "a number", [None, "a", "number"]),
        ("the w words we're", "the words we’re", ["the", None, "words", "we’re"]),
        ("les les chats", "les chats", [None, "les", "chats"]),
        ("ina in a", "in a", [None, "in", "a"]),
        ("foot ball football", "football", [None, None, "football"]),
        ("les <unk> spn chats", "les bons chats", ["les", None, None, "chats"]),
        ("a [noise] noise", "a noise", ["a", None, "noise"]),
    ],
)
def test_a_word_that_is_not_in_the_text_moves_no_other(words, text, found):
    assert in_text(words, text) == found


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("l' enfant", "L’enfant", ["L’", "enfant"]),
        ("do n't", "don't", ["do", "n't"]),
        ("J 'aime", "J'aime", ["J", "'aime"]),
        ("$43 ,000", "$43,000!", ["$43", ",000"]),
        ("日 えー 本 語", "「日本語」は", ["日", None, "本", "語"]),
        ("ฉัน ไป", "ฉันไปตลาด", ["ฉัน", "ไป"]),
        ("50 % , (oui)", "50 %, (oui)", ["50", "%", ",", "(oui)"]),
        ("ice-cream", "ice cream", ["ice cream"]),
        ("LIVRES", "« Livres. »", ["Livres"]),
        ("Kaffee שלום", "Kaf\u00adfee \u200fשלום\u200f", ["Kaf\u00adfee", "שלום\u200f"]),
        ("été हिन्दी", unicodedata.normalize("NFD", "été हिन्दी"), None),
    ],
)
def test_spellings_and_parts_of_words(words, text, found):
    expected = text.split() if found is None else found
    assert in_text(words, text) == expected


def test_differences_are_named_once_each():
    words = timed("er Ever er [*] , tried")
    assert describe_differences(words, "Ever failed tried.") == (
        "'er', '[*]' are not in the text; 'failed' is not among the words"
    )
    assert describe_differences(timed("ever tried"), "Ever tried!") == ""


@pytest.mark.parametrize(
    ("kept", "part"),
    [
        ([0, 1, 2], "Bon, « nos maisons ! »"),
        ([0], "Bon,"),
        ([1], "« nos"),
        ([1, 2], "« nos maisons ! »"),
    ],
)
def test_a_part_of_a_text_keeps_the_punctuation_of_its_words(kept, part):
    assert cut_text(timed("bon nos maisons"), kept, "Bon, « nos maisons ! »") == part


def test_a_cut_keeps_the_text_of_what_remains():
    clip = speechmix.Clip.from_array(
        np.zeros(16_000), 16_000, text="Nos, maisons!", words=timed("nos maisons")
    )
    assert clip.cut(0, 1).text == "Nos, maisons!"
    assert clip.cut(0.1, 1).text == "maisons!"
    assert clip.replace(text=None).cut(0, 1).text == "nos maisons"


def test_words_in_a_row_are_without_noise_and_in_some_scripts_without_blanks():
    assert join_words(timed("nos <unk> spn [*] maisons")) == "nos maisons"
    assert join_words(timed("日 本 語")) == "日本語"


def test_other_unicode_of_the_same_text_is_the_same_clip():
    def clip(text: str) -> speechmix.Clip:
        words = [("déjà", 0.1, 0.3), (text.split()[1], 0.3, 0.5)]
        return speechmix.Clip.from_array(
            np.zeros(16_000), 16_000, text=text, words=words, foil=text.split()[1]
        )

    other = clip("dé\u00adjà e\u0301te\u0301\u200e")
    assert other.text == "déjà été"
    assert other.fingerprint == clip("déjà été").fingerprint
    sentence = speechmix.Sentence("des e\u0301te\u0301s", target="étés", foil="e\u0301te\u0301")
    assert (sentence.text, sentence.foil) == ("des étés", "été")
    assert sentence.fingerprint == sentence.replace(text="des étés", foil="été").fingerprint


def test_what_is_stored_of_words_that_are_not_in_the_text_is_computed_again():
    clip = speechmix.Clip.from_array(
        np.zeros(16_000), 16_000, text="nos maisons", words=timed("nos maisons")
    )
    assert "words_in_text" not in clip.annotations
    assert "words_in_text" in clip.replace(words=timed("euh nos maisons")).annotations
    assert "words_in_text" in clip.replace(text=None, words=timed("nos [*]")).annotations
