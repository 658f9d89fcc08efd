"""The text of a clip as the decoder behind a speech encoder is fed it: prefix, timestamps, tokens.

In: a model with a tokenizer, and a clip. Out: `Tokens`, or an error that names the clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...inputs.words.multipart_words import spoken_text
from .decoder_prefix import decoder_prefix, timestamp
from .token_words import align_tokens_to_words
from .tokens import Tokens
from .word_positions import place_of_target

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model


def decoder_tokens(model: Model, clip: Clip) -> Tokens:
    """Teacher-forced decoder input for a clip's text (or translation): the prefix, timestamps where
    asked, text.

    With a foil, the deciding token of a transcript is looked up too.

    Raises
    ------
    InputError
        If the clip has no text, or the language is not known.
    """
    check_tokenizer(model, clip)
    text = provided_text(model, clip)
    if text is None:
        raise InputError(
            f"{clip.name} has no text to feed the decoder: give text=, or ask for "
            "stacks=['encoder']"
        )
    tokens = _tokenised(model, clip, text)
    if clip.foil is None or clip.target is None or model.prefix.task != "transcribe":
        return tokens
    ids, foil_ids = (
        [*spelled.ids, model.tokenizer.eos_token_id]
        for spelled in (tokens, _tokenised(model, clip, text_with_foil(clip)))
    )
    if ids == foil_ids:
        raise InputError(
            f"{clip.name}: {model.name} writes the foil {clip.foil!r} with the tokens of the target"
        )
    return tokens.decided(ids, foil_ids)


def check_tokenizer(model: Model, clip: Clip) -> None:
    """Raise if there is no tokenizer to write a decoder's text with.

    Raises
    ------
    InputError
    """
    if model.tokenizer is None:
        raise InputError(
            f"{model.name} was loaded without a tokenizer, so {clip.name} cannot be fed to its "
            "decoder: "
            "load with processor=, or ask for stacks=['encoder']"
        )


def provided_text(model: Model, clip: Clip) -> str | None:
    """The text of a clip that belongs behind the model's prefix: what is said, or its translation;
    None if not given."""
    text = clip.translation if model.prefix.task == "translate" else _text_of(clip)
    return text if text and text.strip() else None


def text_with_foil(clip: Clip, text: str | None = None) -> str:
    """Return the clip's text, or another that its words are in, with the target word spelled as its
    foil.

    Raises
    ------
    InputError
        If the target is not in the text, or the foil is spelled like it.
    """
    if not clip.words or clip.target is None or clip.foil is None:
        raise InputError(f"{clip.name} has no target with a foil: give words=, target= and foil=")
    text = _text_of(clip) if text is None else text
    start, stop = place_of_target(clip.words, clip.target, text, where=clip.name)
    other = text[:start] + clip.foil + text[stop:]
    if other == text:
        raise InputError(f"{clip.name}: the foil {clip.foil!r} is spelled like the target")
    return other


def _text_of(clip: Clip) -> str:
    """What is said, as it is fed to a decoder; the words in a row where no text was given."""
    return clip.text or spoken_text(clip.words or ())


def _tokenised(model: Model, clip: Clip, text: str) -> Tokens:
    tokenizer = model.tokenizer
    text = join_to_prefix(model, text.strip())
    prefix = decoder_prefix(model, clip)
    spoken = (
        (clip.words or ()) if model.prefix.task == "transcribe" else ()
    )  # a translation has other words
    text_ids, labels, words = align_tokens_to_words(tokenizer, text, spoken)
    _check_known(model, clip, text, text_ids)
    times = _times_around(model, clip) if model.prefix.timestamps else ()
    before, after = [list(side) for side in (times[:1], times[1:])]
    _check_length(model, clip, len(prefix) + len(times) + len(text_ids))
    ahead = [*zip(prefix, tokenizer.convert_ids_to_tokens(prefix), strict=True), *before]
    return Tokens(
        ids=[*(i for i, _ in ahead), *text_ids, *(i for i, _ in after)],
        labels=[
            *(label for _, label in ahead),
            *labels,
            *(label for _, label in after),
            tokenizer.eos_token,
        ],
        words=[*[None] * len(ahead), *words, *[None] * len(after), None],
        kinds=[
            *["special"] * len(ahead),
            *["token"] * len(words),
            *["special"] * len(after),
            "special",
        ],
        ahead=1,
    )


def join_to_prefix(model: Model, text: str) -> str:
    """A text as it is fed behind a decoder's prefix: Whisper was trained on text that follows a
    space."""
    return f" {text}" if model.family.check_prefix is not None else text


def _check_known(model: Model, clip: Clip, text: str, ids: Sequence[int]) -> None:
    """Refuse a text with letters that the tokenizer has no token for, and one that holds its end
    itself."""
    tokenizer = model.tokenizer
    check_ends_once(model, clip, text, ids)
    unknown = tokenizer.unk_token_id
    if (
        unknown in (None, tokenizer.eos_token_id) or unknown not in ids
    ):  # Whisper's is its end of text
        return
    letters = [
        letter
        for letter in text
        if unknown in tokenizer(letter, add_special_tokens=False)["input_ids"]
    ]
    raise InputError(
        f"{clip.name}: the tokenizer of {model.name} has no token for "
        f"{letters[0] if letters else 'a part'!r} in "
        f"{text[:60]!r}: write the text as the model does (small letters, no digits), or give none "
        "and let it write one"
    )


def decoder_lengths(model: Model) -> list[int]:
    """Positions that a decoder behind an encoder has, by whatever name its config calls them."""
    names = ("max_target_positions", "max_text_positions", "max_position_embeddings")
    return [getattr(model.config, name) for name in names if hasattr(model.config, name)]


def _check_length(model: Model, clip: Clip, n_tokens: int) -> None:
    most = min(decoder_lengths(model), default=n_tokens)
    if n_tokens > most:
        raise InputError(
            f"{clip.name}: its text is {n_tokens} tokens of {model.name}, whose decoder was made "
            f"for {most}: cut the clip at a "
            "pause (Clip.cut, --cut), or ask for stacks=['encoder']"
        )


def check_ends_once(model: Model, clip: Clip, text: str, ids: Sequence[int]) -> None:
    """Raise if the end of a text, which is put behind it, is among its own tokens.

    Raises
    ------
    InputError
    """
    end = model.tokenizer.eos_token
    if end and end in text and model.tokenizer.eos_token_id in ids:
        raise InputError(
            f"{clip.name}: {end!r} is in the text {text[-60:]!r}, behind which it is put anyway: "
            "leave it out"
        )


def _times_around(model: Model, clip: Clip) -> list[tuple[int, str]]:
    """Timestamp tokens of a clip's text: from the first word to the end of the last, the whole clip
    without word times."""
    words = clip.words
    edges = (words[0].start, max(word.end for word in words)) if words else (0.0, clip.duration)
    return [timestamp(model, time) for time in edges]
