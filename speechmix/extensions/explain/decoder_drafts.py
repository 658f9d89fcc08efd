"""Turn decoder tokens into drafts, words and sources.

In: ids as the decoder was fed them. Out: `Draft`s, each chosen one position earlier than it is fed,
the words they spell, and what was written before as sources of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from torch import Tensor

from ...adapters.generation.decoder_text import decoding_options, first_timestamp_id, split_prompt
from ...adapters.generation.emission_paths import best_ctc_path
from ...errors import InputError
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...interventions.decision import Source
from .generated_tokens import (
    END,
    PADDING_SIDE,
    Draft,
    SourceUnit,
    Writing,
    read_probabilities,
    token_label,
)

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.words.spans import Span
    from ...interventions.decision import Decision


def text_sources(
    drafts: Sequence[Draft], words: Sequence[str], *, by_token: bool
) -> list[SourceUnit]:
    """What was written before as sources: words, or single tokens."""
    fed = [draft for draft in drafts if draft.fed_at is not None and draft.word is not None]
    if by_token:
        return [
            SourceUnit(
                "written",
                Source(token_index, draft.label, (draft.fed_at or 0,), word_index=draft.word),
            )
            for token_index, draft in enumerate(fed)
        ]
    positions: dict[int, list[int]] = {}
    for draft in fed:
        positions.setdefault(draft.word or 0, []).append(draft.fed_at or 0)
    return [
        SourceUnit("written", Source(word, words[word], tuple(word_positions), word_index=word))
        for word, word_positions in positions.items()
    ]


def padding_sources(spans: Sequence[Span]) -> list[SourceUnit]:
    """What a fixed window adds behind a sound as a source, where that is a unit."""
    return [
        SourceUnit(PADDING_SIDE, Source(len(spans), span.label, tuple(span.positions)))
        for span in spans
        if span.kind == PADDING_SIDE
    ]


def prompt_sources(model: Model, ids: Sequence[int]) -> list[SourceUnit]:
    """Words of a Whisper's prompt, hotwords included, by the positions of the tokens that spell them.

    A word that the prompt has twice is one source: either of the two would stand in for the other.
    """
    positions = [position for part in split_prompt(model, ids) for position in part]
    if not positions:
        return []
    owners, words = group_pieces(decode_pieces(model, [ids[position] for position in positions]))
    forms = [normalize_transcript(word) or word for word in words]
    positions_by_word: dict[int, list[int]] = {}
    for position, owner in zip(positions, owners, strict=True):
        if owner is not None:
            first = forms.index(forms[owner])
            positions_by_word.setdefault(first, []).append(position)
    return [
        SourceUnit("asked", Source(word, words[word], tuple(word_positions), word_index=word))
        for word, word_positions in positions_by_word.items()
    ]


def decode_pieces(model: Model, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, spaces kept; of a character in several tokens the last has
    all of it."""
    pieces, decoded_text = [], ""
    for stop in range(1, len(ids) + 1):
        text = model.tokenizer.decode(
            list(ids[:stop]),
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
            **decoding_options(model),
        )
        complete = text.rstrip("\ufffd") if stop < len(ids) else text
        pieces.append(complete[len(decoded_text) :])
        decoded_text = complete
    return pieces


def draft_tokens(
    model: Model, ids: Sequence[int], n_prefix: int, *, ended: bool, lookahead: int = 1
) -> tuple[list[Draft], list[str]]:
    """Tokens behind a prefix, each chosen one position earlier than it is fed; and the end, where
    the text has one."""
    text_ids = list(ids[n_prefix:])
    owners, words = group_pieces(decode_pieces(model, text_ids))
    timestamps = first_timestamp_id(model) if model.prefix.timestamps else None
    drafts = [
        Draft(
            id_,
            token_label(model, id_),
            n_prefix + token_index - lookahead,
            word,
            n_prefix + token_index,
        )
        for token_index, (id_, word) in enumerate(zip(text_ids, owners, strict=True))
        if timestamps is None or id_ < timestamps
    ]
    if ended:
        drafts.append(Draft(model.tokenizer.eos_token_id, END, len(ids) - lookahead, None))
    return drafts, words


def make_writing(
    model: Model,
    decision: Decision,
    drafts: Sequence[Draft],
    words: Sequence[str],
    sources: Sequence[SourceUnit],
    logits: Tensor,
    by: str,
    spans: Sequence[Span] | None = None,
) -> Writing:
    if all(draft.word is None and draft.label != END for draft in drafts):
        raise InputError(
            f"{decision.name}: {model.label} writes nothing, so there is no word to explain; give "
            "text="
        )
    tokens = read_probabilities(model, drafts, logits)
    text, audio_spans = " ".join(words), None if spans is None else tuple(spans)
    return Writing(decision, tokens, tuple(words), tuple(sources), text, by, audio_spans, logits)


def draft_letters(model: Model, logits: Tensor) -> tuple[list[Draft], list[str]]:
    """Letters of the greedy path; a run of one letter is written once."""
    scores, ids = logits.log_softmax(dim=-1), logits.argmax(dim=-1).tolist()
    placed = []
    for id_, run in groupby(range(len(ids)), key=ids.__getitem__):
        frames = list(run)
        if id_ != model.config.pad_token_id:
            placed.append((id_, max(frames, key=lambda frame: float(scores[frame, id_]))))
    return _make_letter_drafts(model, placed)


def draft_given_letters(model: Model, logits: Tensor, text: str) -> tuple[list[Draft], list[str]]:
    """Letters of a given text at the frames of its best path."""
    scores, ids = logits.log_softmax(dim=-1), model.tokenizer(text).input_ids
    frames, _ = best_ctc_path(scores.float(), ids, blank=model.config.pad_token_id)
    peaks = [
        max(run, key=lambda frame: float(scores[frame, id_]))
        for id_, run in zip(ids, frames, strict=True)
    ]
    return _make_letter_drafts(model, list(zip(ids, peaks, strict=True)))


def _make_letter_drafts(
    model: Model, placed: Sequence[tuple[int, int]]
) -> tuple[list[Draft], list[str]]:
    delimiter = getattr(model.tokenizer, "word_delimiter_token_id", None)
    special = set(model.tokenizer.all_special_ids) - {delimiter}
    letter_frames = [(id_, frame) for id_, frame in placed if id_ not in special]
    # Without a token between words (SentencePiece: Parakeet, LASR), a piece says that it begins one.
    names = model.tokenizer.convert_ids_to_tokens([id_ for id_, _ in letter_frames])
    owners, words = group_pieces(
        [
            " " if id_ == delimiter else name.replace("▁", " ")
            for (id_, _), name in zip(letter_frames, names, strict=True)
        ]
    )
    drafts = [
        Draft(id_, token_label(model, id_), frame, word)
        for (id_, frame), word in zip(letter_frames, owners, strict=True)
    ]
    return drafts, words


def group_pieces(pieces: Sequence[str]) -> tuple[list[int | None], list[str]]:
    """Which word each piece of a text belongs to, and the words; a space belongs to the word behind
    it.

    Examples
    --------
    >>> group_pieces([" les", " liv", "res", " "])
    ([0, 1, 1, None], ['les', 'livres'])
    """
    owners: list[int | None] = []
    words: list[str] = []
    begins = True
    waiting: list[int] = []  # spaces whose word has not begun
    for piece_index, piece in enumerate(pieces):
        begins = begins or piece[:1].isspace()
        if not piece.strip():
            owners.append(None)
            waiting.append(piece_index)
            begins = begins or bool(piece)
            continue
        if begins:
            words.append("")
        words[-1] += piece.strip()
        for space in waiting:
            owners[space] = len(words) - 1
        owners.append(len(words) - 1)
        begins, waiting = piece[-1:].isspace(), []
    return owners, words
