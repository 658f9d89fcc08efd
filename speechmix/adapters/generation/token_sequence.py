"""Tokens of a text or decoder, each with its label and word.

Input position p of a decoder holds token p and predicts token p + 1. So, behind an encoder, a
word's *source columns* are the positions that hold its tokens, and its *target rows* the positions
one earlier, which predict them (Mohebbi et al. 2023). text_tokens.py makes the tokens of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ...inputs.words.multipart_words import split_parts
from ...inputs.words.spans import Span
from ..transformers_types import Tokenizer

_READING = re.compile(r" \((?:<\S+>|\[\S+\])\)$")  # "([UNK])", "(<unk>)" behind a label


@dataclass(frozen=True)
class Tokens:
    """Tokens that a model is fed, one position each, and the labels of its maps' rows and columns.

    `labels`, `words` (index of the clip's or sentence's word, None for special tokens) and `kinds`
    ("token", "special", "padding") have an entry for each of the T ids, and one more with
    `label_offset` 1. That offset says which token labels a target row: the one its position holds
    (0, texts), or the next, which it predicts (1, decoders behind an encoder). `word_labels` are
    the words as text, for units="word". `deciding_index` is the first token in which target and
    foil differ (it may be the end of text; the position before it predicts it), and `foil_id` the
    foil's token there.
    """

    ids: list[int]
    labels: list[str]
    words: list[int | None]
    kinds: list[str]
    label_offset: int = 0
    word_labels: Sequence[str] = ()
    units: str = "token"
    deciding_index: int | None = None
    foil_id: int | None = None

    @classmethod
    def from_ids(
        cls,
        ids: list[int],
        tokenizer: Tokenizer = None,
        *,
        mask: Sequence[int] | None = None,
        label_offset: int = 0,
    ) -> Tokens:
        """Tokens of prepared inputs: words are not known, nor what the last position predicts.
        `mask` [T] is 0 for padding."""
        special_ids = set(getattr(tokenizer, "all_special_ids", ())) - {
            getattr(tokenizer, "mask_token_id", None)
        }
        if tokenizer is None:
            labels = [str(i) for i in ids]
        else:
            labels = (
                [tokenizer.decode([i]) for i in ids]
                if label_offset
                else tokenizer.convert_ids_to_tokens(ids)
            )
        kinds = [
            "padding" if not is_shown else "special" if i in special_ids else "token"
            for i, is_shown in zip(ids, mask or [1] * len(ids), strict=True)
        ]
        return cls(
            ids,
            [*labels, *["<next>"] * label_offset],
            [None] * (len(ids) + label_offset),
            [*kinds, *["special"] * label_offset],
            label_offset,
        )

    @property
    def n_prefix(self) -> int:
        """How many special tokens come before the text: they are given, not predicted."""
        return next(
            (index for index, kind in enumerate(self.kinds) if kind == "token"), len(self.ids)
        )

    @property
    def deciding_row(self) -> int | None:
        """Position that predicts the deciding token; None where none decides, or nothing predicts
        it."""
        return self.deciding_index - 1 if self.deciding_index else None

    def sources(self) -> list[Span]:
        """Columns, by what positions hold: tokens, or words with special tokens between them;
        padding is no unit."""
        return self._list_spans(0)

    def targets(self) -> list[Span]:
        """Rows, by what positions hold or predict (`label_offset`)."""
        return self._list_spans(self.label_offset)

    def position_span(self, position: int, *, label_offset: int = 0) -> Span:
        """One position as a unit, labelled with the token that it holds, or the one that it
        predicts."""
        token = position + label_offset
        return Span(
            position, position + 1, self.labels[token], self.kinds[token], self.words[token]
        )

    def with_deciding_token(self, ids: Sequence[int], foil_ids: Sequence[int]) -> Tokens:
        """Return the tokens with the one that decides between two spellings; unchanged where one is
        the other's beginning.

        `ids` and `foil_ids` are all tokens with the target and with the foil; of a decoder also the
        one that the last position predicts.
        """
        deciding_index = first_difference(ids, foil_ids)
        return (
            self
            if deciding_index is None
            else replace(self, deciding_index=deciding_index, foil_id=foil_ids[deciding_index])
        )

    def _list_spans(self, label_offset: int) -> list[Span]:
        spans = []
        span_indices: dict[
            int, int
        ] = {}  # which span a word is: one in several parts goes on behind others
        for (kind, word), positions in groupby(
            range(len(self.ids)), key=lambda p: self._kind_and_word(p + label_offset)
        ):
            if kind == "padding":
                continue
            start, *later_positions = positions
            if word is None or self.units == "token":
                spans += [
                    self.position_span(p, label_offset=label_offset)
                    for p in (start, *later_positions)
                ]
                continue
            tokens = (start, start + len(later_positions) + 1)
            if word in span_indices and len(split_parts(self.word_labels[word])) > 1:
                spans[span_indices[word]] = spans[span_indices[word]].with_ranges(
                    [*spans[span_indices[word]].ranges, tokens]
                )
            else:
                span_indices[word] = len(spans)
                spans.append(Span(*tokens, self.word_labels[word], "word", word))
        return spans

    def _kind_and_word(self, token: int) -> tuple[str, int | None]:
        return self.kinds[token], self.words[token]


def label_unknown(text: str, unknown_token: str) -> str:
    """Label a word or token that a model does not know: as it is written, and what the model reads.

    Examples
    --------
    >>> label_unknown("game", "[UNK]"), written_label("game ([UNK])"), written_label("game")
    ('game ([UNK])', 'game', 'game')
    """
    return f"{text} ({unknown_token})"


def written_label(label: str) -> str:
    """A label as it is written in the text, without what the model reads instead."""
    return _READING.sub("", label)


def first_difference(ids: Sequence[int], others: Sequence[int]) -> int | None:
    """Index of the first token in which two texts differ; None where one is the other's beginning.

    Examples
    --------
    >>> first_difference([4, 8, 2], [4, 9, 6, 2])
    1
    """
    return next(
        (index for index, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), None
    )
