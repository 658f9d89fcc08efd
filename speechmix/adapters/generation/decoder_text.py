"""Build the decoder's input for a clip: prefix, timestamps and text tokens.

In: a model with a tokenizer, and a clip. Out: `Tokens`, or an error that names the clip.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...inputs.words.multipart_words import join_words
from ...inputs.words.phone_labels import are_phone_labels
from ...inputs.words.words_in_text import (
    describe_differences,
    locate_target,
    locate_word_parts,
)
from .decoder_prefix import (
    decoder_prefix,
    nearest_timestamp,
    prefix_labels,
    token_behind_text,
)
from .token_sequence import Tokens
from .token_words import align_tokens_to_words

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model


def decoder_tokens(model: Model, clip: Clip) -> Tokens:
    """Make the teacher-forced decoder input for a clip's text (or translation): the prefix,
    timestamps where requested, text.

    With a foil, the deciding token of a transcript is found too. An InputError says that the clip
    has no text, that the cue or target is not in it, or that the language is not known. Words that
    are not in the text, and text that is not among the words, are a UserWarning.
    """
    check_tokenizer(model, clip)
    text = provided_text(model, clip)
    if text is None:
        raise InputError(
            f"{clip.name} has no text to feed the decoder: give text=, or ask for "
            "stacks=['encoder']"
        )
    if model.prefix.task == "transcribe":  # a translation has other words
        compare_words_with_text(clip, text)
    tokens = _tokenize_text(model, clip, text)
    if clip.foil is None or clip.target is None or model.prefix.task != "transcribe":
        return tokens
    end_id, _ = token_behind_text(model)
    ids, foil_ids = (
        [*spelled_tokens.ids, end_id]
        for spelled_tokens in (tokens, _tokenize_text(model, clip, text_with_foil(clip)))
    )
    if ids == foil_ids:
        raise InputError(
            f"{clip.name}: {model.name} writes the foil {clip.foil!r} with the tokens of the target"
        )
    return tokens.with_deciding_token(ids, foil_ids)


def compare_words_with_text(clip: Clip, text: str) -> None:
    """Warn of words that are not in the text that a decoder is fed, and of text that is not among
    the words.

    A cue or target that is not in the text is an InputError.
    """
    words = clip.spoken_words
    if not words:
        return
    ranges = locate_word_parts(words, text)
    for role, index in (*(("cue", index) for index in clip.cue_words), ("target", clip.target)):
        if index is not None and not ranges[index]:
            raise InputError(
                f"{clip.name}: the {role} {words[index].text!r} is not in the text {text[:60]!r} that "
                "the decoder reads: correct text= or words=, choose another word, or ask for "
                "stacks=['encoder']"
            )
    if differences := describe_differences(words, text):
        advice = "correct one of the two" if clip.text else "give text= with all that is said"
        warnings.warn(
            f"{clip.name}: words and text differ: {differences}. Words that are not in the text have "
            f"no tokens: {advice}",
            stacklevel=3,
        )


def check_tokenizer(model: Model, clip: Clip) -> None:
    """Raise an InputError if there is no tokenizer to write a decoder's text with."""
    if model.tokenizer is None:
        raise InputError(
            f"{model.name} was loaded without a tokenizer, so {clip.name} cannot be fed to its "
            "decoder: "
            "load with processor=, or ask for stacks=['encoder']"
        )


def provided_text(model: Model, clip: Clip) -> str | None:
    """The text of a clip that belongs behind the model's prefix: what is said, or its translation;
    None if not given."""
    text = clip.translation if model.prefix.task == "translate" else _spoken_text(clip)
    return text if text and text.strip() else None


def text_with_foil(clip: Clip, text: str | None = None) -> str:
    """Return the clip's text, or another that its words are in, with the target word spelled as its
    foil.

    An InputError says that the target is not in the text, or that the foil is spelled like it.
    """
    if not clip.words or clip.target is None or clip.foil is None:
        raise InputError(f"{clip.name} has no target with a foil: give words=, target= and foil=")
    text = _spoken_text(clip) if text is None else text
    start, stop = locate_target(clip.words, clip.target, text, where=clip.name)
    foil_text = text[:start] + clip.foil + text[stop:]
    if foil_text == text:
        raise InputError(f"{clip.name}: the foil {clip.foil!r} is spelled like the target")
    return foil_text


def _spoken_text(clip: Clip) -> str:
    """What is said, as it is fed to a decoder; the words in a row where no text was given."""
    if not clip.text and are_phone_labels(clip.spoken_words):
        labels = ", ".join(repr(word.text) for word in clip.spoken_words[:3])
        raise InputError(
            f"{clip.name}: its words are phones ({labels}), which a decoder would read as text: give "
            "them as tiers={'phone': ...}, with the words or text= beside them"
        )
    return clip.text or join_words(clip.spoken_words)


def _tokenize_text(model: Model, clip: Clip, text: str) -> Tokens:
    tokenizer = model.tokenizer
    text = join_to_prefix(model, text.strip())
    prefix = decoder_prefix(model, clip)
    spoken_words = (
        clip.spoken_words if model.prefix.task == "transcribe" else ()
    )  # a translation has other words
    text_ids, labels, words = align_tokens_to_words(tokenizer, text, spoken_words)
    _check_vocabulary(model, clip, text, text_ids)
    timestamps = _timestamp_tokens(model, clip) if model.prefix.timestamps else ()
    start_timestamps, end_timestamps = [list(part) for part in (timestamps[:1], timestamps[1:])]
    _check_length(model, clip, len(prefix) + len(timestamps) + len(text_ids))
    leading_tokens = [
        *zip(prefix, prefix_labels(model, prefix), strict=True),
        *start_timestamps,
    ]
    return Tokens(
        ids=[*(i for i, _ in leading_tokens), *text_ids, *(i for i, _ in end_timestamps)],
        labels=[
            *(label for _, label in leading_tokens),
            *labels,
            *(label for _, label in end_timestamps),
            token_behind_text(model)[1],
        ],
        words=[*[None] * len(leading_tokens), *words, *[None] * len(end_timestamps), None],
        kinds=[
            *["special"] * len(leading_tokens),
            *["token"] * len(words),
            *["special"] * len(end_timestamps),
            "special",
        ],
        label_offset=1,
    )


def join_to_prefix(model: Model, text: str) -> str:
    """A text as it is fed behind a decoder's prefix: Whisper was trained on text that follows a
    space."""
    return f" {text}" if model.family.check_prefix is not None else text


def _check_vocabulary(model: Model, clip: Clip, text: str, ids: Sequence[int]) -> None:
    """Refuse a text with letters that the tokenizer has no token for, and one that holds its end
    itself."""
    tokenizer = model.tokenizer
    check_end_token(model, clip, text, ids)
    unknown_id = tokenizer.unk_token_id
    if (
        unknown_id in (None, tokenizer.eos_token_id) or unknown_id not in ids
    ):  # Whisper's is its end of text
        return
    letters = [
        letter
        for letter in text
        if unknown_id in tokenizer(letter, add_special_tokens=False)["input_ids"]
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
    max_tokens = min(decoder_lengths(model), default=n_tokens)
    if n_tokens > max_tokens:
        raise InputError(
            f"{clip.name}: its text is {n_tokens} tokens of {model.name}, whose decoder was made "
            f"for {max_tokens}: cut the clip at a "
            "pause (Clip.cut, --cut), or ask for stacks=['encoder']"
        )


def check_end_token(model: Model, clip: Clip, text: str, ids: Sequence[int]) -> None:
    """Raise an InputError if the end-of-text token, which is appended, is among the text's own
    tokens."""
    end = model.tokenizer.eos_token
    if end and end in text and model.tokenizer.eos_token_id in ids:
        raise InputError(
            f"{clip.name}: {end!r} is in the text {text[-60:]!r}, behind which it is put anyway: "
            "leave it out"
        )


def _timestamp_tokens(model: Model, clip: Clip) -> list[tuple[int, str]]:
    """Timestamp tokens of a clip's text: from the first word to the end of the last, the whole clip
    without word times."""
    words = clip.spoken_words
    time_range = (
        (words[0].start, max(word.end for word in words)) if words else (0.0, clip.duration)
    )
    return [nearest_timestamp(model, time) for time in time_range]
