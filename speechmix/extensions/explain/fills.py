"""Replacements for removed sound or text.

In: a `Writing` and the fills that a caller wants. Out: `Fills`. One fill is no evidence: replacing
one written word of the bundled Whisper-style model costs nearly nothing with one letter and 30 nats
where the token is left out. So an effect is the median over fills, with its range. A fill of a text
is named by the token that is really fed: what Whisper's tokenizer calls unknown is its end of text.
A word that a recogniser wrote before is replaced by its best alternatives: without the word the decoder loses its
position in the sound, and writes the removed word again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import InputError
from ...interventions.removals import SOUND_FILLS, fill_token_id
from .generated_tokens import PADDING_SIDE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ...adapters.model import Model
    from .generated_tokens import SourceUnit, Writing

SOUND, TEXT, PROMPT = "sound", "text", "prompt"
REMOVE = "remove"
# Of a word that a recogniser wrote: the words that it could have written there instead.
ALTERNATIVES = ("alternative", "second_alternative")
_ALTERNATIVE_LABELS = ("its best alternative", "its second-best alternative")
DEFAULT_SOUND_FILLS = ("zeros", "noise")
_SOUND_FILL_LABELS = {
    "zeros": "silence",
    "room": "room tone",
    "noise": "noise",
    "word": "another word",
}
_SPECIAL_TOKENS = ("mask", "unk", "pad", "eos", "bos")
_NEUTRAL_TEXTS = (
    " ",
    "e",
    "-",
    ".",
)  # a space, the commonest letter, punctuation: tokens that most tokenizers have
_MOST_CANDIDATES = 100  # likeliest tokens, among which alternatives are looked for
_N_DEFAULT_TOKEN_FILLS = 2  # fills that are a token; removal is the third


@dataclass(frozen=True)
class Fill:
    """What replaces a source.

    Parameters
    ----------
    side : {"sound", "text", "prompt"}
    name : str
        As the caller names it: "zeros", "room", "noise" or "word"; "remove", "mask", "unk", "pad"
        or the text of a token.
    label : str
        For readers: "silence", "removal", or the text of the token that is really fed.
    token : int or None
        Id of the token that is fed; None for a sound and for removal.
    """

    side: str
    name: str
    label: str
    token: int | None = None


@dataclass(frozen=True)
class Fills:
    """The fills of both sides of the input; each source is removed once with each fill of its side.

    Parameters
    ----------
    sound, text, prompt : tuple of Fill
        Empty where the model has no such input, or nothing can replace it. `prompt` is for a prompt beside text that is
        replaced otherwise: words that a Whisper wrote have alternatives, words of its prompt have none.
    """

    sound: tuple[Fill, ...] = ()
    text: tuple[Fill, ...] = ()
    prompt: tuple[Fill, ...] = ()

    @property
    def all(self) -> tuple[Fill, ...]:
        return (*self.sound, *self.text, *self.prompt)

    def of_source(self, source: SourceUnit) -> tuple[Fill, ...]:
        """The fills that can replace a source; none for padding, which has no sound."""
        if source.side == PADDING_SIDE:
            return ()
        if source.side == "asked" and self.prompt:
            return self.prompt
        return self.sound if source.side == SOUND else self.text

    def combinations(self, sources: Sequence[SourceUnit]) -> list[tuple[Fill, ...]]:
        """Fills, one for each side, with which several sources are removed together: each fill at
        least once."""
        used = {self.of_source(source) for source in sources}
        sides = (self.sound, self.text, self.prompt)
        side_fills = [fills for fills in sides if fills and fills in used]
        return [
            tuple(fills[turn % len(fills)] for fills in side_fills)
            for turn in range(max(map(len, side_fills), default=0))
        ]

    @property
    def names(self) -> dict[str, list[str]]:
        """For the provenance of an explanation."""
        return {
            "sound_fill": [fill.label for fill in self.sound],
            "token_fill": [fill.label for fill in self.text],
            **({"prompt_fill": [fill.label for fill in self.prompt]} if self.prompt else {}),
        }


def choose_fills(
    writing: Writing, *, sound: str | Sequence[str] | None, text: str | Sequence[str] | None
) -> Fills:
    """Resolve the fills of an explanation.

    Parameters
    ----------
    writing : Writing
    sound : str or sequence of str, optional
        Some of `SOUND_FILLS`; silence and noise by default.
    text : str or sequence of str, optional
        "remove", "mask", "unk", "pad", or the text of one token. By default two tokens (a mask, an
        unknown token that stands for nothing else, a space, "e", in this order) and removal.

    Raises
    ------
    InputError
        For a fill that is not possible.
    """
    names = _to_names(sound) or DEFAULT_SOUND_FILLS
    if unknown := [name for name in names if name not in SOUND_FILLS]:
        raise InputError(f"sound_fill should be some of {SOUND_FILLS}, found {unknown[0]!r}")
    of_sound = tuple(Fill(SOUND, name, _SOUND_FILL_LABELS[name]) for name in names)
    sides = {source.side for source in writing.sources} - {PADDING_SIDE}
    of_sound = of_sound if SOUND in sides else ()
    if sides == {SOUND}:
        if text is not None:
            raise InputError(
                f"a fill of text, found {text!r}, but {writing.model.name} reads sound only: "
                f"choose among {', '.join(SOUND_FILLS)}"
            )
        return Fills(of_sound)
    of_prompt: tuple[Fill, ...] = ()
    if "asked" in sides and writing.model.capabilities.decoding == "cross-attention":
        of_prompt = tuple(replace(fill, side=PROMPT) for fill in default_text_fills(writing.model))
    if text is None and has_alternatives(writing):
        return Fills(of_sound, tuple(map(_make_alternative, ALTERNATIVES)), of_prompt)
    if text is None:
        return Fills(of_sound, default_text_fills(writing.model))
    names = _to_names(text)
    if set(names) & set(ALTERNATIVES) and not has_alternatives(writing):
        raise InputError(
            f"token_fill={names[0]!r}: only words that a recogniser with a decoder wrote about a sound have alternatives"
        )
    return Fills(
        of_sound,
        tuple(
            _make_alternative(name)
            if name in ALTERNATIVES
            else _make_text_fill(writing.model, name)
            for name in names
        ),
        of_prompt,
    )


def has_alternatives(writing: Writing) -> bool:
    """Whether the only text among the sources, besides a prompt, is what a decoder with cross-attention wrote about a
    sound."""
    model = writing.model
    sides = {source.side for source in writing.sources} - {PADDING_SIDE, SOUND, "asked"}
    return (
        sides == {"written"}
        and any(source.side == SOUND for source in writing.sources)
        and model.capabilities.decoding == "cross-attention"
        and model.capabilities.can_shorten_text
    )


def alternative_tokens(
    writing: Writing, positions: Sequence[int], rank: int
) -> tuple[int | None, ...]:
    """Return tokens that write another word in place of one that was written.

    These are the likeliest other first token, and the punctuation of the word; None for a position that is removed.
    Where the tokenizer spells letter by letter, all letters but the first stay.

    Parameters
    ----------
    writing : Writing
    positions : sequence of int
        At which the word's tokens are fed.
    rank : int
        0 for the best alternative.
    """
    tokenizer = writing.model.tokenizer
    tokens = {token.fed_at: token for token in writing.tokens if token.fed_at is not None}
    letters = {at: _letters(tokenizer, tokens[at].id) for at in positions}
    first = next((at for at in positions if letters[at]), positions[0])
    word = "".join(letters.values())
    starts_word = _starts_word(tokenizer, tokens[first].id)
    special = set(tokenizer.all_special_ids)
    logits = writing.logits[tokens[first].position]
    alternatives = [
        id_
        for id_ in logits.topk(min(_MOST_CANDIDATES, len(logits))).indices.tolist()
        if id_ not in special
        and id_ < len(tokenizer)
        and (other_letters := _letters(tokenizer, id_))
        and not word.startswith(other_letters)
        and _starts_word(tokenizer, id_) == starts_word
    ]
    alternative = alternatives[rank] if rank < len(alternatives) else None
    spells_letters = max(map(len, letters.values())) == 1 < len(word)
    return tuple(
        alternative if at == first else tokens[at].id if spells_letters or not letters[at] else None
        for at in positions
    )


def _letters(tokenizer: PreTrainedTokenizerBase, id_: int) -> str:
    return "".join(c for c in str(tokenizer.decode([id_])).lower() if c.isalnum())


def _starts_word(tokenizer: PreTrainedTokenizerBase, id_: int) -> bool:
    return str(tokenizer.convert_ids_to_tokens(id_)).startswith(("Ġ", "▁", " "))


def _make_alternative(name: str) -> Fill:
    return Fill(TEXT, name, _ALTERNATIVE_LABELS[ALTERNATIVES.index(name)])


def default_text_fills(model: Model) -> tuple[Fill, ...]:
    """Two neutral tokens and removal (of an audio language model three tokens); the same for each
    use of a tokenizer.

    A special token that marks the end or the beginning of a text is used only if the tokenizer has
    no other neutral token.
    """
    marks = {fill_token_id(model, name) for name in ("eos", "bos", "pad")}
    names = [name for name in ("mask", "unk") if fill_token_id(model, name) not in {None, *marks}]
    fills = [
        *(_make_text_fill(model, name) for name in names),
        *filter(None, (_make_neutral_fill(model, t) for t in _NEUTRAL_TEXTS)),
    ]
    if not fills:
        fills = [
            _make_text_fill(model, name)
            for name in ("unk", "pad", "eos")
            if fill_token_id(model, name) is not None
        ]
    distinct = list({fill.token: fill for fill in reversed(fills)}.values())[::-1]
    if model.capabilities.can_shorten_text:
        return (*distinct[:_N_DEFAULT_TOKEN_FILLS], _make_removal_fill())
    return tuple(distinct[: _N_DEFAULT_TOKEN_FILLS + 1])


def _make_text_fill(model: Model, name: str) -> Fill:
    if name == REMOVE:
        model.refuse_audio_tokens(
            f"token_fill={name!r}: in {model.name} the positions of the sound would move; name a "
            "token"
        )
        return _make_removal_fill()
    if name in _SPECIAL_TOKENS:
        token = fill_token_id(model, name)
        fill = (
            None
            if token is None
            else Fill(TEXT, name, str(model.tokenizer.convert_ids_to_tokens(token)), token)
        )
    else:
        fill = _make_neutral_fill(model, name)
    if fill is None:
        default_names = ", ".join(repr(other.name) for other in default_text_fills(model))
        raise InputError(
            f"token_fill={name!r}: {model.name} has no such token; there is {default_names} by default"
        )
    return fill


def _make_removal_fill() -> Fill:
    return Fill(TEXT, REMOVE, "removal")


def _make_neutral_fill(model: Model, text: str) -> Fill | None:
    """A text that is one token of the tokenizer, and no unknown one."""
    ids = model.tokenizer(text, add_special_tokens=False).input_ids
    if len(ids) != 1 and text == " ":  # SentencePiece writes no token for a space alone
        ids = [model.tokenizer.convert_tokens_to_ids("▁")]
    is_token = (
        len(ids) == 1 and ids[0] is not None and ids[0] not in model.tokenizer.all_special_ids
    )
    if not is_token or fill_token_id(model, ids[0]) is None:
        return None
    return Fill(TEXT, text, "a space" if text == " " else f'"{text}"', ids[0])


def _to_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (
        () if names is None else (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    )
