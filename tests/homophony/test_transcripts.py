"""Right at its own place, not just somewhere; and which decoder positions hold and predict it."""

import pytest

from speechmix.adapters.generation.decoder_text import decoder_tokens
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.studies.french.transcript_comparison import (
    compare_transcript,
    cue_and_target_positions,
    normalized_words,
    token_ranges,
)
from tests.conftest import trained

pytest.importorskip("jiwer", reason="word error rates need the extra speechmix[french]")


def place(reference, transcript, word):
    start = reference.index(word)
    found = compare_transcript(reference, transcript).find_span((start, start + len(word)))
    return None if found is None else transcript[slice(*found)]


def test_the_normaliser_is_french():
    assert [word for word, _ in normalized_words("L’Été, à 80 % : où ?")] == [
        "l",
        "été",
        "à",
        "quatre",
        "vingts",
        "pour",
        "cent",
        "où",
    ]
    assert compare_transcript("il a été là", "il a ete la").error_count == 2
    assert compare_transcript("« L'œuf, reste-t-il ? »", "l’oeuf reste t il").error_count == 0


def test_a_word_elsewhere_does_not_count():
    assert place("les livres et le livre", "les livres et le livre.", "livres") == "livres"
    assert place("les livres sont là", "le livre des livres sont là", "livres") == "livres"
    assert place("les chats et les livres", "les livres et les livre", "livres") is None
    assert place("le chat voit les chats", "les chats voit les chats", "chat") is None


def test_the_second_occurrence_is_the_second():
    reference, transcript = "les amis et les voisins", "les amis et le voisin"
    found = compare_transcript(reference, transcript)
    assert found.find_span((0, 3)) == (0, 3)
    assert found.find_span((12, 15)) is None


def test_insertions_before_it_do_not_matter():
    assert place("elle voit les livres", "oh elle elle voit bien les livres", "livres") == "livres"
    assert (
        compare_transcript("elle voit les livres", "oh elle elle voit bien les livres").error_count
        == 3
    )


def test_compounds_need_all_their_parts():
    assert place("le rez-de-chaussée", "le rez de chaussée", "rez-de-chaussée") == "rez de chaussée"
    assert place("le rez-de-chaussée", "le raie de chaussée", "rez-de-chaussée") is None


def test_nothing_written_and_nothing_said():
    found = compare_transcript("les livres", "")
    assert (found.error_count, found.word_count, found.find_span((0, 3))) == (2, 2, None)
    with pytest.raises(InputError, match="no words"):
        compare_transcript("!", "les")


def test_positions_are_those_of_the_decoder_tokens():
    model = trained("tiny-french-whisper")
    clip = bundled.clips()[0]
    tokens = decoder_tokens(model, clip)
    ranges = token_ranges(model, clip, clip.text)
    assert len(ranges) == len(tokens.ids)
    cue, target = (clip.text.index(clip.words[i].text) for i in (clip.cue, clip.target))
    places = (
        (cue, cue + len(clip.words[clip.cue].text)),
        (target, target + len(clip.words[clip.target].text)),
    )
    columns, rows = cue_and_target_positions(ranges, places[:1], places[1])
    held = {
        word: [p for p, one in enumerate(tokens.words[:-1]) if one == word]
        for word in (clip.cue, clip.target)
    }
    assert columns == held[clip.cue]
    assert rows == [position - 1 for position in held[clip.target]]
    assert rows == [span.start for span in tokens.targets() if span.word == clip.target]


def test_ctc_has_no_positions():
    model = trained("tiny-french-ctc")
    assert token_ranges(model, bundled.clips()[0], "les") is None
    assert cue_and_target_positions(None, (0, 1), (1, 2)) == ([], [])
