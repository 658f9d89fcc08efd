"""What a model generated, token by token: probability, runners-up, and possible sources.

In: a model's inputs with the tokens that it wrote on them, and its logits. Out: a `Writing`, whose
tokens make words and whose `SourceUnit`s (words of the sound, words of a text that is read, what
was written before) can be removed. Each kind of model has a file that makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.emission_paths import PATH_FRAMES
from ...adapters.generation.model_inputs import HashedInputs, PreparedInputs
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
