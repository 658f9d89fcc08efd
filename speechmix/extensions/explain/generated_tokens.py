"""What a model generated, token by token: probability, runners-up, and possible sources.

In: a model's inputs with the tokens that it wrote on them, and its logits. Out: a `Writing`, whose
tokens make words and whose `SourceUnit`s (words of the sound, words of a text that is read, what
was written before) can be removed. Each kind of model has a file that makes one.

Turn decoder tokens into drafts, words and sources.

In: ids as the decoder was fed them. Out: `Draft`s, each chosen one position earlier than it is fed,
the words they spell, and what was written before as sources of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.decoder_text import decoding_options, first_timestamp_id, split_prompt
from ...adapters.generation.emission_paths import PATH_FRAMES, best_ctc_path
from ...adapters.generation.model_inputs import HashedInputs, PreparedInputs
from ...errors import InputError
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...interventions.decision import Decision, Source
from ...mixing.measures.token_objectives import Objective, answer_logits, label_names, token_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from ...inputs.words.spans import Span

RUNNERS_UP = 3
PADDING_SIDE = "padding"
SIDES = ("sound", PADDING_SIDE, "read", "asked", "written")
END, BLANK, SPACE = "(end)", "(nothing)", "␣"


@dataclass(frozen=True)
class Candidate:
    """A token that could have been written.

    Parameters
    ----------
    id : int
    label : str
    probability : float
    """

    id: int
    label: str
    probability: float


@dataclass(frozen=True)
class WrittenToken:
    """A token that a model wrote.

    Parameters
    ----------
    id : int
    label : str
    position : int
        Whose logits it was chosen by: of a decoder the one before its own; of a CTC model the frame
        where the letter is likeliest.
    probability : float
        Softmax of the model's logits there.
    runners_up : tuple of Candidate
        The likeliest others, first first.
    word : int or None
        Index of the written word that it is part of; None of the end of text.
    fed_at : int or None
        Position at which it is fed to the model again; None if it never is.
    """

    id: int
    label: str
    position: int
    probability: float
    runners_up: tuple[Candidate, ...]
    word: int | None
    fed_at: int | None = None


@dataclass(frozen=True)
class SourceUnit:
    """Something that a word may have come from.

    Parameters
    ----------
    side : {"sound", "padding", "read", "asked", "written"}
        A word of the clip; what a fixed window adds behind it; a word of the text that the model is
        given; of the prompt; what it wrote before.
    source : Source
    onset, offset : float or None
        Seconds of a word of the sound.
    times : tuple of (float, float)
        Of a word in pieces.
    heard_at : tuple of int
        Positions of a word of the sound in the decoder of an audio language model; those of
        `source` are the encoder's.
    """

    side: str
    source: Source
    onset: float | None = None
    offset: float | None = None
    times: tuple[tuple[float, float], ...] = ()
    heard_at: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def name(self) -> str:
        """The label, with the side of what may be spelled like a word of the sound."""
        return f"{self.label} ({self.side})" if self.side in ("asked", "written") else self.label

    @property
    def stack(self) -> str:
        """On which side of the model's maps it is, where there is an encoder."""
        return "decoder" if self.side in ("asked", "written") else "encoder"

    def positions_in(self, stack: str) -> tuple[int, ...]:
        """Where it stands in a stack."""
        return self.heard_at if stack == "decoder" and self.heard_at else self.source.positions


@dataclass(frozen=True)
class Draft:
    """A token before its probability is known; parameters as of `WrittenToken`."""

    id: int
    label: str
    position: int
    word: int | None
    fed_at: int | None = None


@dataclass(frozen=True, eq=False)
class Writing:
    """What a model wrote about an item.

    Parameters
    ----------
    decision : Decision
        The model with its inputs and their sources; what is read of the logits is put in by whoever
        asks.
    tokens : tuple of WrittenToken
    words : tuple of str
        As written.
    sources : tuple of SourceUnit
    text : str
    by : str
        Who wrote it: the model, or the caller.
    spans : tuple of Span, or None
        Units of the encoder's side of a model that hears.
    logits : Tensor [T, V]
        Of the run on these inputs, in double precision.
    """

    decision: Decision
    tokens: tuple[WrittenToken, ...]
    words: tuple[str, ...]
    sources: tuple[SourceUnit, ...]
    text: str
    by: str
    spans: tuple[Span, ...] | None = None
    logits: Tensor = field(default_factory=lambda: torch.empty(0), repr=False)

    @property
    def model(self) -> Model:
        return self.decision.model

    @property
    def by_frame(self) -> bool:
        """Whether tokens are read at frames of the sound, as letters of a CTC model are."""
        return self.model.output_kind == "frames"

    def encoder_position(self, position: int) -> int:
        """Frame of the encoder that is read at a position: of a transducer the emitting frame."""
        frames = self.decision.prepared.inputs.get(PATH_FRAMES)
        return position if frames is None else int(frames[0, position])

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What the model is fed, as prepared inputs for `mix`."""
        prepared = self.decision.prepared
        return HashedInputs(prepared.inputs, prepared.audio_hash)


def make_open_decision(
    model: Model,
    item: Clip | Sentence,
    prepared: PreparedInputs,
    sources: dict[str, tuple[Source, ...]],
) -> Decision:
    """A decision of which nothing is read yet."""
    from ...inputs.words.spans import Span

    return Decision(model, item, prepared, Objective(token_logits, Span(0, 1)), sources)


def read_logits(decision: Decision) -> Tensor:
    """Return logits [T, V] in double precision; encoder states are kept for later runs."""
    inputs = decision.prepared.inputs
    if decision.can_share_encoder:
        inputs = decision.with_encoder_states(inputs, decision.encoder_output)
    return decision.read_output(inputs, lambda output: answer_logits(output)[0].double().cpu())


def read_probabilities(
    model: Model, drafts: Sequence[Draft], logits: Tensor
) -> tuple[WrittenToken, ...]:
    """Tokens with how likely they were, and the likeliest others."""
    tokens = []
    for draft in drafts:
        probabilities = logits[draft.position].softmax(dim=-1)
        likeliest = probabilities.topk(min(RUNNERS_UP + 1, len(probabilities)))
        others = [
            Candidate(id_, token_label(model, id_), probability)
            for id_, probability in zip(
                likeliest.indices.tolist(), likeliest.values.tolist(), strict=True
            )
            if id_ != draft.id
        ]
        probability = float(probabilities[draft.id])
        tokens.append(
            WrittenToken(
                draft.id,
                draft.label,
                draft.position,
                probability,
                tuple(others[:RUNNERS_UP]),
                draft.word,
                draft.fed_at,
            )
        )
    return tuple(tokens)


def token_label(model: Model, id_: int) -> str:
    """A token as it is shown: its text; a CTC model's blank, the end of text and a space by
    name."""
    if model.has_label_head:
        return label_names(model)[id_]
    tokenizer = model.tokenizer
    if model.capabilities.is_transducer and id_ == model.config.blank_token_id:
        return BLANK
    if model.capabilities.decoding == "frames":
        name = str(tokenizer.convert_ids_to_tokens(id_))
        spaces = (getattr(tokenizer, "word_delimiter_token", None), "▁")
        return BLANK if id_ == model.config.pad_token_id else SPACE if name in spaces else name
    if id_ == tokenizer.eos_token_id:
        return END
    if id_ in tokenizer.all_special_ids:
        return str(tokenizer.convert_ids_to_tokens(id_))
    text = tokenizer.decode([id_])
    return (
        _spell_bytes(str(tokenizer.convert_ids_to_tokens(id_)))
        if "\ufffd" in text
        else text.strip() or SPACE
    )


def _spell_bytes(piece: str) -> str:
    """A part of a character as its bytes, which a byte-level vocabulary spells by letters that it
    does not mean.

    Examples
    --------
    >>> _spell_bytes("\u00c3"), _spell_bytes("\u0120\u00c3"), _spell_bytes("<0xC3>")
    ('<0xC3>', '<0x20><0xC3>', '<0xC3>')
    """
    # The others are moved behind these, in order.
    spelled = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in spelled)
    byte_of = {chr(byte): byte for byte in spelled} | {
        chr(256 + byte_index): byte for byte_index, byte in enumerate(others)
    }
    if piece.isascii() or not set(piece) <= byte_of.keys():
        return piece
    return "".join(f"<0x{byte_of[letter]:02X}>" for letter in piece)


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
