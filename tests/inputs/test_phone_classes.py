"""Classes of phones against the rows of the IPA chart, written down here by hand."""

import sys

import pytest

from speechmix.errors import InputError, MissingExtraError
from speechmix.inputs.words import phone_labels as phone_classes
from speechmix.inputs.words.phone_labels import PHONE_CLASSES, articulatory_features, phone_class

pytest.importorskip("panphon", reason="the extra `phones` is not installed")

# The International Phonetic Alphabet (revised to 2020), pulmonic consonants and vowels.
CHART = {
    "stop": "p b t d ʈ ɖ c ɟ k ɡ q ɢ ʔ",
    "nasal": "m ɱ n ɳ ɲ ŋ ɴ",
    "trill": "ʙ r ʀ",
    "tap": "ⱱ ɾ ɽ",
    "fricative": "ɸ β f v θ ð s z ʃ ʒ ʂ ʐ ç ʝ x ɣ χ ʁ ħ ʕ h ɦ ɬ ɮ ɕ ʑ ʍ",
    "approximant": "ʋ ɹ ɻ j ɰ l ɭ ʎ ʟ w ɥ",
    "vowel": "i y ɨ ʉ ɯ u ɪ ʏ ʊ e ø ɘ ɵ ɤ o ə ɛ œ ɜ ɞ ʌ ɔ æ ɐ a ɶ ɑ ɒ",
    "affricate": "tʃ dʒ t͡s d͡z t͜ʃ pf tɕ ʧ ʤ ʦ ʣ ʨ ʥ",
}
# What aligners write: espeak-ng, MFA, WebMAUS.
WRITTEN = {
    "vowel": "ˈɑ̃ e- ɔ̃ iː oʊ aj ɚ ɝː ᵻ ũ a˥",
    "stop": "g tʰ t̪ kʷ p̚ b̚ ɓ ǀ",
    "nasal": "n̩ m̥ ŋː",
    "approximant": "l̩ ɫ ɐ̯",
    "fricative": "s̺ ʃʲ",
}


def test_classes_are_those_of_the_chart():
    for table in (CHART, WRITTEN):
        for name, labels in table.items():
            assert {label: phone_class(label) for label in labels.split()} == dict.fromkeys(
                labels.split(), name
            )
    assert set(CHART) == set(PHONE_CLASSES)


def test_features_of_minimal_pairs():
    for voiced, voiceless in ("bp", "dt", "ɡk", "zs", "ʒʃ", "vf"):
        first, second = articulatory_features(voiced), articulatory_features(voiceless)
        assert {name for name in first if first[name] != second[name]} == {"voi"}
    assert articulatory_features("ɑ̃")["nas"] == 1 > articulatory_features("ɑ")["nas"]
    assert articulatory_features("oʊ") == articulatory_features("o")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", "there is no phone in it"),
        ("ˈ", "there is no phone in it"),
        ("AH0", "no IPA symbol 'AH0' is known"),
        ("a8", "no IPA symbol '8' is known"),
        ("spn", "several phones"),
        ("ks", "several phones"),
    ],
)
def test_a_label_that_is_no_phone_is_refused_with_its_place(label, message):
    with pytest.raises(InputError, match=r"clip 'a', 1\.20 s: .*" + message):
        phone_class(label, where="clip 'a', 1.20 s")


def test_without_panphon_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "panphon", None)
    phone_classes._feature_table.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"classes of phones needs panphon.*phones"):
            phone_class("a")
    finally:
        phone_classes._feature_table.cache_clear()
