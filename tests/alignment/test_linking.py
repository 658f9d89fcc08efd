"""Word times carried from what an aligner heard to what is written."""

import pytest

from speechmix.errors import AlignmentError
from speechmix.inputs.words.spans import Word
from speechmix.studies.french.sentence_alignment import link_words


def times(words):
    return [(word.text, round(word.start, 3), round(word.end, 3)) for word in words]


def test_the_same_words_keep_their_times_and_scores():
    heard = [Word("les", 0.1, 0.3, 0.5), Word("livres", 0.4, 0.9, 0.7)]
    assert link_words([("Les", "les"), ("livres", "livres")], heard) == (
        Word("Les", 0.1, 0.3, 0.5),
        Word("livres", 0.4, 0.9, 0.7),
    )


def test_elided_words_share_one_heard_word_by_letters():
    written = [("l'", "l'"), ("amie", "amie")]
    assert times(link_words(written, [Word("l'amie", 0.0, 0.5)])) == [
        ("l'", 0.0, 0.1),
        ("amie", 0.1, 0.5),
    ]
    assert times(link_words(written, [Word("l'", 0.0, 0.2), Word("amie", 0.2, 0.5)])) == [
        ("l'", 0.0, 0.2),
        ("amie", 0.2, 0.5),
    ]


def test_a_number_takes_the_time_of_all_its_words():
    heard = [
        Word("à", 0.0, 0.1),
        *(Word(w, i / 10, (i + 1) / 10, 0.5) for i, w in enumerate(("quatre", "vingts"), 1)),
    ]
    assert times(link_words([("à", "à"), ("80", "quatre vingts")], heard)) == [
        ("à", 0.0, 0.1),
        ("80", 0.1, 0.3),
    ]


def test_unknown_labels_stand_for_the_words_that_were_not_named():
    heard = [Word("le", 0.0, 0.2), Word("<unk>", 0.3, 0.7), Word("dort", 0.8, 1.0)]
    written = [("le", "le"), ("schtroumpf", "schtroumpf"), ("bleu", "bleu"), ("dort", "dort")]
    assert times(link_words(written, heard))[1:3] == [("schtroumpf", 0.3, 0.5), ("bleu", 0.5, 0.7)]


def test_a_small_difference_in_spelling_is_forgiven_and_another_text_is_not():
    assert times(link_words([("clef", "clef")], [Word("cleff", 0.0, 0.5)])) == [("clef", 0.0, 0.4)]
    with pytest.raises(AlignmentError, match="expected the word 'livres'"):
        link_words(
            [("les", "les"), ("livres", "livres")], [Word("les", 0.0, 0.2), Word("chats", 0.3, 0.9)]
        )


def test_repeated_words_stay_in_order():
    heard = [Word(text, i, i + 1) for i, text in enumerate(("les", "uns", "les", "autres"))]
    assert [word.start for word in link_words([(w.text, w.text) for w in heard], heard)] == [
        0,
        1,
        2,
        3,
    ]
