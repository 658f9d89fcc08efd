"""One class for tokens: of texts, whose rows are what is held, and of decoders, whose rows are what
comes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speechmix.adapters.generation.model_inputs import Tokens, first_difference
from speechmix.inputs.words.spans import Span
from speechmix.inputs.words.words_in_text import locate_words

KINDS = ["special", "token", "token", "token", "special", "padding", "padding"]
TEXT = Tokens(
    [2, 11, 12, 13, 3, 0, 0],
    ["[CLS]", "un", "##do", "it", "[SEP]", "[PAD]", "[PAD]"],
    [None, 0, 0, 1, None, None, None],
    KINDS,
    word_labels=["undo", "it"],
)
DECODER = Tokens(
    [50, 51, 7, 8],
    ["<start>", "<fr>", "les", "livres", "<end>"],
    [None, None, 0, 1, None],
    ["special", "special", "token", "token", "special"],
    label_offset=1,
)


def labels(spans: list[Span]) -> list[str]:
    return [span.label for span in spans]


class TestUnits:
    def test_tokens_one_by_one_and_padding_is_none(self):
        assert labels(TEXT.sources()) == ["[CLS]", "un", "##do", "it", "[SEP]"]
        assert [span.kind for span in TEXT.sources()] == [
            "special",
            "token",
            "token",
            "token",
            "special",
        ]
        assert [span.word for span in TEXT.sources()] == [None, 0, 0, 1, None]

    def test_words_with_special_tokens_between_them(self):
        words = replace(TEXT, units="word").sources()
        assert words == [
            Span(0, 1, "[CLS]", "special"),
            Span(1, 3, "undo", "word", 0),
            Span(3, 4, "it", "word", 1),
            Span(4, 5, "[SEP]", "special"),
        ]

    @pytest.mark.parametrize("units", ["word", "token"])
    def test_rows_of_a_text_are_its_columns(self, units):
        tokens = replace(TEXT, units=units)
        assert tokens.targets() == tokens.sources()

    def test_rows_of_a_decoder_are_what_its_positions_predict(self):
        assert labels(DECODER.sources()) == ["<start>", "<fr>", "les", "livres"]
        assert labels(DECODER.targets()) == ["<fr>", "les", "livres", "<end>"]
        assert [(span.start, span.stop, span.word) for span in DECODER.targets()] == [
            (0, 1, None),
            (1, 2, 0),
            (2, 3, 1),
            (3, 4, None),
        ]
        assert [span.kind for span in DECODER.targets()] == ["special", "token", "token", "special"]

    def test_the_prefix_is_what_comes_before_the_text(self):
        assert (TEXT.n_prefix, DECODER.n_prefix) == (1, 2)


class TestDecidingToken:
    def test_first_difference_and_its_row(self):
        tokens = DECODER.with_deciding_token([*DECODER.ids, 99], [50, 51, 7, 9, 10, 99])
        assert (tokens.deciding_index, tokens.foil_id, tokens.deciding_row) == (3, 9, 2)

    def test_the_end_of_text_may_decide(self):
        """ "livre" is decided by what follows it."""
        tokens = DECODER.with_deciding_token([*DECODER.ids, 99], [*DECODER.ids, 60, 99])
        assert (tokens.deciding_index, tokens.foil_id, tokens.deciding_row) == (4, 60, 3)

    def test_no_token_decides_where_nothing_ends_the_text(self):
        tokens = TEXT.with_deciding_token([4, 5], [4, 5, 6])
        assert tokens is TEXT
        assert tokens.deciding_row is None

    def test_nothing_predicts_the_first_token(self):
        assert replace(TEXT, deciding_index=0, foil_id=3).deciding_row is None

    def test_first_difference(self):
        assert first_difference([], [1]) is None
        assert first_difference([1, 2], [1, 2]) is None
        assert first_difference([3, 2], [1, 2]) == 0


class TestPreparedInputs:
    class Tokenizer:
        all_special_ids = (1, 2, 9)
        mask_token_id = 9

        def decode(self, ids):
            return f"<{ids[0]}>"

        def convert_ids_to_tokens(self, ids):
            return [f"#{i}" for i in ids]

    def test_text_with_padding_and_a_mask_token(self):
        tokens = Tokens.from_ids([1, 5, 9, 2, 0], self.Tokenizer(), mask=[1, 1, 1, 1, 0])
        assert tokens.labels == ["#1", "#5", "#9", "#2", "#0"]
        assert tokens.kinds == ["special", "token", "token", "special", "padding"]
        assert tokens.words == [None] * 5

    def test_decoder(self):
        tokens = Tokens.from_ids([1, 5, 6], self.Tokenizer(), label_offset=1)
        assert labels(tokens.sources()) == ["<1>", "<5>", "<6>"]
        assert labels(tokens.targets()) == ["<5>", "<6>", "<next>"]
        assert tokens.targets()[-1].kind == "special"

    @pytest.mark.parametrize("label_offset", [0, 1])
    def test_without_a_tokenizer_labels_are_ids(self, label_offset):
        tokens = Tokens.from_ids([4, 5], label_offset=label_offset)
        assert labels(tokens.sources()) == ["4", "5"]
        assert {span.kind for span in tokens.sources()} == {"token"}


def test_words_are_found_left_to_right():
    assert locate_words(["l’ami", "et", "l'ami", "absent"], "L'ami et l’ami") == [
        (0, 5),
        (6, 8),
        (9, 14),
        None,
    ]
