"""Words in several pieces: how they are given, joined, refused, written to files and read again."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.audio.frame_grid import FrameGrid
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.formats.word_items import words_from_items
from speechmix.inputs.words.multipart_words import (
    join_words,
    list_parts,
    make_word_request,
    resolve_words_and_roles,
    split_parts,
)
from speechmix.inputs.words.spans import Span, Word, context_spans, word_spans
from speechmix.inputs.words.word_checks import check_words

SAID = [("il", 0.1, 0.2), ("ne", 0.2, 0.3), ("mange", 0.3, 0.6), ("pas", 0.6, 0.8)]
TWICE = "il ne mange pas et ne boit pas"
GRID = FrameGrid.fixed_window(100)
NE_PAS = Word("ne … pas", 0.2, 0.8, pieces=((0.2, 0.3), (0.6, 0.8)))


def clip_of(words=SAID, **facts):
    return speechmix.Clip.from_array(
        np.zeros(16_000, np.float32), 16_000, name="c", words=words, **facts
    )


def texts(words):
    return [word.text for word in words]


class TestOneForm:
    def test_neither_order_nor_how_a_stretch_is_cut_makes_a_difference(self):
        assert Word("a", 0.1, 0.9, pieces=[(0.5, 0.9), (0.1, 0.3)]) == Word.from_pieces(
            "a", [(0.1, 0.2), (0.2, 0.3), (0.5, 0.9)]
        )
        assert Word("a", 0.1, 0.9, pieces=[(0.5, 0.9), (0.1, 0.5)]) == Word("a", 0.1, 0.9)
        assert Span.from_ranges([(4, 9), (1, 4)]) == Span(1, 9)
        assert Span(1, 9, pieces=[[6, 9], [1, 2]]).ranges == ((1, 2), (6, 9))

    def test_pieces_whose_times_were_rounded_touch(self):
        assert check_words([("a", [(0.1, 0.3), (0.3009, 0.5)])])[0].pieces == ()

    def test_what_has_no_pieces_is_shown_as_it_was(self):
        assert repr(Word("a", 0.0, 1.0)) == "Word(text='a', start=0.0, end=1.0, score=None)"
        assert "pieces" not in repr(Span(0, 1))

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                [("a", [(0.0, 0.4), (0.3, 0.6)])],
                r"word 'a': its pieces \[0, 0.4\) and \[0.3, 0.6\) overlap",
            ),
            ([("a", [(0.0, 0.4), (0.5, 0.5)])], r"the empty \[0.5, 0.5\): leave empty ones out"),
            ([("a", [(0.0, 0.4), (0.6, 0.5)])], "the empty"),
            ([("a", [])], "expected pieces"),
            ([("a", [(0.1, "x")])], "pairs of numbers"),
            ([("a", [0.1, 0.3])], "pairs of numbers"),
            (
                [("a", 0.0, 0.9, None, [(0.0, 0.1), (0.5, 0.6)])],
                "reach from 0 to 0.6, but it is said to be from 0 to 0.9",
            ),
            ([("a", [(0.0, 0.4), (1.2, 1.4)])], "starts past the end of the audio"),
            ([("a", [(-0.2, 0.4), (0.5, 0.6)])], "negative time"),
            (
                [("a", [(0.0, 0.2), (0.4, 0.6)]), ("b", 0.3, 0.5)],
                "must not overlap .* share 100 ms",
            ),
            ([("a", [(0.3, 0.4), (0.6, 0.8)]), ("b", 0.1, 0.2)], "in time order"),
            (
                [("a", [(0.0, 0.2), (0.4, 0.6)]), ("b", [(0.1, 0.3), (0.7, 0.8)])],
                "must not overlap",
            ),
        ],
    )
    def test_what_is_no_word_in_pieces(self, words, message):
        with pytest.raises(InputError, match=message):
            clip_of(words)


class TestJoined:
    def test_a_cue_in_two_parts_is_one_word_in_the_first_ones_place(self):
        clip = clip_of(cue="ne ... pas", target="mange")
        assert clip.words == (Word("il", 0.1, 0.2), NE_PAS, Word("mange", 0.3, 0.6))
        assert (clip.cue, clip.cue_words, clip.target) == (1, (1,), 2)

    @pytest.mark.parametrize(
        "request_", ["ne … pas", "Ne...pas", "ne:1 ... pas:1", "1 ... 3", ["ne ... pas"]]
    )
    def test_ways_to_ask(self, request_):
        clip = clip_of(cue=request_, target="mange")
        assert clip.words[clip.cue] == NE_PAS
        again = clip.replace(foil="manges")
        assert (again.words, again.cue, again.target) == (
            clip.words,
            1,
            2,
        )  # known again by its label
        assert clip.replace(words=SAID).words == clip.words
        assert clip.with_words(clip.words).replace(cue="il").words[1] == NE_PAS

    def test_several_words_without_dots_stay_several(self):
        assert clip_of(cue="ne pas").cue == (1, 3)
        assert texts(clip_of(cue=["ne ... pas", "il"], target="mange").words) == [
            "il",
            "ne … pas",
            "mange",
        ]

    def test_occurrences(self):
        words = speechmix.Sentence(TWICE).words
        joined, roles = resolve_words_and_roles(words, {"cue": "ne:2 ... pas:2", "target": "boit"})
        assert texts(joined) == ["il", "ne", "mange", "pas", "et", "ne … pas", "boit"]
        assert roles == {"cue": 5, "target": 6}
        assert joined[5].ranges == ((19, 21), (27, 30))
        both, roles = resolve_words_and_roles(
            joined, {"cue": "1 ... 3", "target": "ne:2 ... pas:2"}
        )
        assert (texts(both)[1], texts(both)[4], roles) == (
            "ne … pas",
            "ne … pas",
            {"cue": 1, "target": 4},
        )

    @pytest.mark.parametrize(
        ("requests", "message"),
        [
            ({"cue": "ne ... pas"}, "'ne' occurs 2 times"),
            ({"cue": "ne:1 ... jamais"}, "'jamais' is not one of the words"),
            ({"cue": "ne:1 ... ne:1"}, "names a word twice"),
            ({"cue": "ne:1 ... pas:1", "target": "ne:1 ... boit"}, "shares the word 'ne'"),
            (
                {"cue": "ne:1 ... pas:1", "target": "ne:1 ... pas:1"},
                "cue and target must be two words",
            ),
        ],
    )
    def test_what_cannot_be_joined(self, requests, message):
        with pytest.raises(InputError, match=message):
            resolve_words_and_roles(speechmix.Sentence(TWICE).words, requests)

    def test_half_of_a_joined_word(self):
        with pytest.raises(
            InputError, match="asks for a part of 'ne … pas', which is one word already"
        ):
            clip_of(cue="ne ... pas").replace(cue="il ... pas")

    def test_words_of_two_texts(self):
        with pytest.raises(InputError, match="lies in two texts, text and pair"):
            speechmix.Sentence("il ne mange", pair="pas lui", cue="ne ... pas")

    def test_a_label_with_dots_is_a_word_as_any(self):
        clip = clip_of([("hm...oui", 0.1, 0.3), ("non", 0.4, 0.5)], cue="hm...oui", target="non")
        assert (clip.cue, clip.words[0]) == (0, Word("hm...oui", 0.1, 0.3))
        assert split_parts("...") == ["..."]

    def test_words_that_come_later_are_joined_then(self):
        waiting = clip_of(None, cue="ne ... pas", target="mange")
        assert waiting.words is None
        assert waiting.with_words(SAID).words[1] == NE_PAS

    def test_as_they_are_said(self):
        words = clip_of(cue="ne ... pas").words
        assert join_words(words) == "il ne mange pas"
        assert [(index, part.text) for index, part in list_parts(words)] == [
            (0, "il"),
            (1, "ne"),
            (2, "mange"),
            (1, "pas"),
        ]
        assert make_word_request(words, (1, 2)) == ["1 … 3", 2]


class TestClipAndSentence:
    def test_a_part_of_a_clip_moves_the_pieces(self):
        part = clip_of(cue="ne ... pas", target="mange").cut(0.15, 0.9)
        assert np.allclose(part.words[0].pieces, [(0.05, 0.15), (0.45, 0.65)])
        assert (part.cue, part.text) == (0, "ne mange pas")
        with pytest.raises(InputError, match="the cue is not wholly between"):
            clip_of(cue="ne ... pas").cut(0.0, 0.7)

    def test_clips_that_differ_in_a_gap_alone_are_two(self):
        whole, joined = (
            clip_of([("il", 0.1, 0.8)], cue="il"),
            clip_of([("il", [(0.1, 0.3), (0.5, 0.8)])], cue="il"),
        )
        assert whole.fingerprint != joined.fingerprint
        assert clip_of(joined.annotations["words"], cue="il").fingerprint == joined.fingerprint
        assert pickle.loads(pickle.dumps(joined)).words == joined.words

    def test_sentences(self):
        sentence = speechmix.Sentence("il ne mange pas", cue="ne ... pas", target="mange")
        other = speechmix.Sentence("il ne mange pas", cue="ne", target="mange")
        assert (sentence.words[1].ranges, sentence.cue, sentence.target) == (
            ((3, 5), (12, 15)),
            1,
            2,
        )
        assert sentence != other
        assert sentence.fingerprint != other.fingerprint
        assert pickle.loads(pickle.dumps(sentence)).words == sentence.words
        assert sentence.replace(text="il ne vit pas", target="vit").words[1].ranges == (
            (3, 5),
            (10, 13),
        )


class TestFrames:
    def test_a_word_has_the_frames_of_its_pieces_and_the_gap_is_silence_or_anothers(self):
        hesitating = [
            Word("il", 0.1, 0.2),
            Word.from_pieces("livres", [(0.4, 0.6), (0.2, 0.3)]),
            Word("la", 0.7, 0.8),
        ]
        spans = word_spans(hesitating, GRID)
        assert [span.ranges for span in spans] == [((5, 10),), ((10, 15), (20, 30)), ((35, 40),)]
        assert len(spans[1]) == 15
        around = context_spans(spans, GRID, 1.0)
        assert [s.ranges for s in around if s.kind == "silence"] == [
            ((0, 5),),
            ((15, 20),),
            ((30, 35),),
            ((40, 50),),
        ]
        assert sorted(p for s in around for p in s.positions) == list(range(100))
        joined = word_spans(clip_of(cue="ne ... pas").words, GRID)
        assert [span.ranges for span in joined] == [((5, 10),), ((10, 15), (30, 40)), ((15, 30),)]

    def test_a_piece_without_a_centre_takes_no_frame_where_another_has_one(self):
        (span,) = word_spans([Word.from_pieces("a", [(0.1, 0.2), (0.301, 0.309)])], GRID)
        assert span.ranges == ((5, 10),)
        (alone,) = word_spans([Word.from_pieces("a", [(0.101, 0.105), (0.111, 0.119)])], GRID)
        assert len(alone) == 1

    def test_pieces_a_moment_apart_are_the_frames_of_one_stretch(self):
        for rounding in ("disjoint", "paper"):
            (cut,) = word_spans(
                [Word.from_pieces("a", [(0.1, 0.2115), (0.2145, 0.5)])], GRID, rounding=rounding
            )
            (whole,) = word_spans([Word("a", 0.1, 0.5)], GRID, rounding=rounding)
            assert (cut.ranges, whole.pieces) == (whole.ranges, ())

    def test_the_published_rule_counts_the_end_frame_of_each_piece(self):
        (span,) = word_spans(
            [Word.from_pieces("a", [(0.1, 0.2), (0.3, 0.4)])], GRID, rounding="paper"
        )
        assert span.ranges == ((5, 11), (15, 21))


class TestFiles:
    def test_json(self, tmp_path):
        path = tmp_path / "w.json"
        items = [
            {"word": "ne … pas", "pieces": [[0.6, 0.8], [0.2, 0.3]], "score": 0.5},
            ["mange", 0.3, 0.6],
        ]
        path.write_text(json.dumps(items), encoding="utf-8")
        assert read_words(path) == [
            Word("ne … pas", 0.2, 0.8, 0.5, NE_PAS.pieces),
            Word("mange", 0.3, 0.6),
        ]
        assert words_from_items([NE_PAS.to_list(), ["ne … pas", [[0.6, 0.8], [0.2, 0.3]]]]) == [
            NE_PAS,
            NE_PAS,
        ]

    @pytest.mark.parametrize(
        "item",
        [["a", [[0.1]]], {"pieces": [[0.1, 0.2]]}, {"word": "a", "pieces": 3}, ["a", [["x", 1]]]],
    )
    def test_json_that_is_no_word(self, item):
        with pytest.raises(InputError, match="words: word 0"):
            words_from_items([item])

    def test_tables_have_a_row_for_each_piece(self, tmp_path):
        path = tmp_path / "w.csv"
        rows = [
            "word,start,end,unit",
            "ne,0.2,0.3,1",
            "mange,0.3,0.6,",
            "pas,0.6,0.8,1",
            "la,0.8,0.9,2",
            "la,0.92,0.95,2",
        ]
        path.write_text("\n".join(rows), encoding="utf-8")
        assert read_words(path) == [
            NE_PAS,
            Word("mange", 0.3, 0.6),
            Word.from_pieces("la", [(0.8, 0.9), (0.92, 0.95)]),
        ]

    @pytest.mark.parametrize("ending", ["TextGrid", "eaf"])
    def test_formats_of_intervals_have_one_for_each_piece(self, tmp_path, ending):
        from speechmix.mixing.maps.score_tiers import write_tier_file

        hesitating = [("il", 0.1, 0.2), ("livres", [(0.2, 0.3), (0.5, 0.6)])]
        for words, labels in (
            (clip_of(cue="ne ... pas").words, texts(clip_of().words)),
            (hesitating, ["il", "livres", "livres"]),
        ):
            path = tmp_path / f"w.{ending}"
            write_tier_file(path, {"words": check_words(words)}, 1.0)
            if ending == "TextGrid":
                assert texts(read_words(path)) == labels
            else:
                assert path.read_text(encoding="utf-8").count("<ANNOTATION_VALUE>") == len(labels)

    def test_a_manifest_asks_for_a_cue_in_two_parts(self, tmp_path):
        import soundfile

        soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
        row = {
            "path": "a.wav",
            "text": "il ne mange pas",
            "words": SAID,
            "cue": "ne ... pas",
            "target": "mange",
        }
        (tmp_path / "m.jsonl").write_text(json.dumps(row), encoding="utf-8")
        (clip,) = speechmix.read_clips(tmp_path / "m.jsonl")
        assert (clip.words[clip.cue], clip.target) == (NE_PAS, 2)
