"""Blank a word's tokens: by a mask, unknown or padding token, or by deletion.

In: a tokenizer and prepared inputs of one item. Out: other inputs, and which positions are left.
What a tokenizer calls unknown may be no neutral blank (Whisper's is the end of text), so, as in the
sound, no conclusion should rest on one filler alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..mixing.passes.request import MixRequest
from ..mixing.passes.view_kinds import make_view

if TYPE_CHECKING:
    from torch import Tensor

    from ..adapters.model import Model
    from ..inputs.clips.clip import Clip

TOKEN_FILLS = ("mask", "unk", "pad", "remove")
_TEXT_INPUT = "input_ids"


def token_fills(model: Model) -> tuple[str, ...]:
    """List the fills for which a model's tokenizer has a token.

    Two that are the same token count once: in Whisper, unknown and padding are the end of text.
    """
    ids = {fill: fill_token_id(model, fill) for fill in TOKEN_FILLS[:-1]}
    fill_by_token_id = {id_: fill for fill, id_ in reversed(ids.items()) if id_ is not None}
    return (*(fill for fill in ids if fill in fill_by_token_id.values()), "remove")


def fill_token_id(model: Model, fill: str | int) -> int | None:
    """Return the id of a fill's token, or a given id; None if the model has no embedding of it."""
    token_id = fill if isinstance(fill, int) else getattr(model.tokenizer, f"{fill}_token_id", None)
    return (
        token_id
        if token_id is not None
        and 0 <= token_id < getattr(model.text_config, "vocab_size", token_id + 1)
        else None
    )


def blank(
    model: Model,
    item: Clip | Sentence | str,
    word: int | Sequence[int] | None = None,
    *,
    fill: str = "remove",
) -> dict[str, Tensor]:
    """Return what a model is fed for an item, with a word's tokens blanked: prepared inputs, for
    `mix` or one's own use.

    Parameters
    ----------
    model : Model
        With its tokenizer.
    item : Clip, Sentence or str
        Of a clip the transcript that the decoder is fed is changed; its sound is for `mute`.
    word : int or sequence of int, optional
        Index of the word, or of several; the cue (all its words) by default.
    fill : {"mask", "unk", "pad", "remove"}

    Returns
    -------
    dict of str to Tensor [1, ...]

    Raises
    ------
    InputError
        If there is no such word in the text, the tokenizer has no such token, or the model is fed
        no text.

    Examples
    --------
    >>> inputs = speechmix.blank(model, "the keys to the cabinet are here", 4, fill="mask")  # doctest: +SKIP
    """
    item = Sentence(item) if isinstance(item, str) else item
    word_indices = item.cue_words if word is None else cue_words(word)
    view = make_view(model, item, MixRequest(units="word"))
    model.refuse_audio_tokens(
        f"{model.name} reads a prompt and an answer: say others with prompt= or answer=; "
        "silence is for its sound"
    )
    view.prepare(model.capabilities.prepared_stacks)
    side = model.capabilities.text_input
    if side not in view.prepared.inputs:
        raise InputError(f"{model.name} is fed no text: its sound is for speechmix.mute")
    stack = model.capabilities.stack_by_side["text"]
    text_words = {span.word for span in view.sources(stack)}
    if not word_indices or not text_words.issuperset(word_indices):
        raise InputError(
            f"{item.name}: expected the index of a word of the text (or a cue), found word={word!r}"
        )
    positions = [
        position
        for span in view.sources(stack)
        if span.word in word_indices
        for position in span.positions
    ]
    return blank_tokens(model, view.prepared.inputs, positions, fill=fill, side=side)[0]


def blank_tokens(
    model: Model,
    inputs: Mapping[str, Tensor],
    positions: Sequence[int],
    *,
    fill: str | int,
    side: str = _TEXT_INPUT,
) -> tuple[dict[str, Tensor], list[int]]:
    """Return inputs [1, T] with some tokens blanked, and the former positions of the tokens that
    remain.

    `fill` is "mask", "unk", "pad", "remove" or a token's id; padding is also excluded by the
    attention mask, where the model takes one. `side` is "input_ids" or "decoder_input_ids". An
    InputError says that the tokenizer has no such token, or that nothing would be left.
    """
    if fill not in TOKEN_FILLS and not isinstance(fill, int):
        raise InputError(f"fill should be one of {TOKEN_FILLS}, found {fill!r}")
    new_inputs, length = dict(inputs), inputs[side].shape[1]
    blank_positions = sorted(set(positions))
    if fill == "remove":
        kept_positions = [
            position for position in range(length) if position not in set(blank_positions)
        ]
        if not kept_positions:
            raise InputError("removing these tokens would leave none")
        names = [
            name
            for name in inputs
            if name == side
            or (side == _TEXT_INPUT and name in ("attention_mask", "token_type_ids"))
        ]
        return {
            **new_inputs,
            **{name: inputs[name][:, kept_positions] for name in names},
        }, kept_positions
    token = fill_token_id(model, fill)
    if token is None:
        description = f"token of id {fill}" if isinstance(fill, int) else f"{fill} token"
        raise InputError(
            f"{model.name}: its tokenizer has no {description}; there is {', '.join(token_fills(model))}"
        )
    new_inputs[side] = inputs[side].clone()
    new_inputs[side][:, blank_positions] = token
    if fill == "pad" and side == _TEXT_INPUT and "attention_mask" in inputs:
        new_inputs["attention_mask"] = inputs["attention_mask"].clone()
        new_inputs["attention_mask"][:, blank_positions] = 0
    return new_inputs, list(range(length))
