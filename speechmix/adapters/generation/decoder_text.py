"""Build the decoder's input for a clip: prefix, timestamps and text tokens.

In: a model with a tokenizer, and a clip. Out: `Tokens`, or an error that names the clip.

Whisper's decoder prefix: language, task and timestamp tokens.

    <|startoftranscript|> <|fr|> <|transcribe|> <|notimestamps|> ...text... <|endoftext|>
    <|startoftranscript|> <|fr|> <|translate|> <|0.00|> ...text... <|1.20|> <|endoftext|>

A prompt stands in front of it (decoder_text.py).

In: a model with its `DecoderPrefix` (`Model.with_prefix`), and a clip, which knows its language.
Out: ids. The prefix belongs to the model, not to one call: whatever runs the decoder (maps,
transcripts, interventions) uses it, and `Model.fingerprint`, by which stored results are compared,
includes it. Radford et al. 2023, Robust Speech Recognition via Large-Scale Weak Supervision, figure
1.

Map the tokens of a text to its words by character offsets.

In: a tokenizer, a text, and words that are in it. Out: ids, labels as they are written, and for
each token the word that it shares characters with.

A Whisper's prompt: text that its decoder reads as if it had been said before.

    <|startofprev|> hotwords prompt text-before <|startoftranscript|> <|fr|> <|transcribe|> ...

In: a model with its `DecoderPrefix`. Out: ids, and the words of a prompt by the positions of their tokens. `initial_prompt` and
`hotwords` of faster-whisper and whisper.cpp, `prompt_ids` of transformers and the text of the window before all stand here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from ...errors import InputError
from ...inputs.clips.clip import TASKS
from ...inputs.words.multipart_words import join_words
from ...inputs.words.phone_labels import are_phone_labels
from ...inputs.words.timed_words import Word
from ...inputs.words.words_in_text import (
    describe_differences,
    find_word_at,
    locate_target,
    locate_word_parts,
)
from ..transformers_types import Tokenizer
from .model_inputs import Tokens

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model
    from ..transformers_types import Config
    from .decoder_context import DecoderPrefix

_PREVIOUS_TOKEN = "<|startofprev|>"


def prompt_ids(model: Model, prefix: DecoderPrefix | None = None) -> list[int]:
    """Return the ids of a Whisper's hotwords and prompt, <|startofprev|> first; none without both.

    `prefix` is another one than the model's own.

    Raises
    ------
    InputError
        If the prompt is longer than half of the decoder, or holds a special token.
    """
    prefix = prefix or model.prefix
    texts = [text.strip() for text in (prefix.hotwords, prefix.prompt) if text.strip()]
    if not texts:
        return []
    tokenizer = model.tokenizer
    ids: list[int] = [
        id_ for text in texts for id_ in tokenizer(f" {text}", add_special_tokens=False).input_ids
    ]
    if special_ids := set(ids) & {*tokenizer.all_special_ids, tokenizer.eos_token_id}:
        token = tokenizer.convert_ids_to_tokens(min(special_ids))
        raise InputError(
            f"the prompt of {model.name} holds the special token {token}: leave it out"
        )
    longest = max_prompt_tokens(model)
    if len(ids) > longest:
        raise InputError(
            f"the prompt of {model.name} has {len(ids)} tokens, hotwords included, and its decoder takes {longest}: "
            "shorten it"
        )
    return [tokenizer.convert_tokens_to_ids(_PREVIOUS_TOKEN), *ids]


def max_prompt_tokens(model: Model) -> int:
    """Return how many tokens of a prompt a decoder takes: half of its positions, less one, as Whisper's authors have it."""
    return int(model.config.max_target_positions) // 2 - 1


def check_prompt(model: Model, prefix: DecoderPrefix) -> None:
    """Raise an InputError unless a Whisper can be given the prompt of a prefix."""
    has_prompt = bool(prefix.prompt or prefix.hotwords)
    if has_prompt and _PREVIOUS_TOKEN not in read_vocabulary(model):
        raise InputError(f"{model.name} has no token {_PREVIOUS_TOKEN}: it takes no prompt")
    prompt_ids(model, prefix)


def split_prompt(model: Model, ids: Sequence[int]) -> tuple[range, range]:
    """Return the positions of the prompt, hotwords included, and of the text of the window before, which follows it.

    The prompt may be cut at its beginning, where the text behind it is long.
    """
    if model.family.check_prefix is None or model.tokenizer is None:
        return range(0), range(0)
    start_id = model.config.decoder_start_token_id
    if start_id not in ids:
        return range(0), range(0)
    stop = list(ids).index(start_id)
    prompt = prompt_ids(model)[1:]
    count = next(
        (
            size
            for size in range(min(len(prompt), max(stop - 1, 0)), 0, -1)
            if list(ids[1 : 1 + size]) == prompt[len(prompt) - size :]
        ),
        0,
    )
    return range(1, 1 + count), range(1 + count, max(stop, 1 + count))


BLANK_TOKEN = "<blank>"
TIMESTAMP_STEP = 0.02  # seconds from one timestamp token to the next
_LANGUAGE_TOKEN = re.compile(r"<\|([a-z]{2,3})\|>")
_NO_TIMESTAMPS_TOKEN = "<|notimestamps|>"
_ENGLISH_VOCABULARY = 51_864  # tokens of a Whisper for English alone; of others 51,865 or more


def check_prefix(model: Model, prefix: DecoderPrefix) -> None:
    """Raise an InputError unless the model can take this prefix.

    It cannot if it is no Whisper with its tokenizer, if the task or language is unknown, if it has no
    tokens for timestamps, or if the prompt is too long.
    """
    if prefix.task not in TASKS:
        raise InputError(f"task must be one of {TASKS}, found {prefix.task!r}")
    vocabulary, languages = read_vocabulary(model), language_ids(model)
    if not languages and (prefix.task != "transcribe" or prefix.language):
        raise InputError(
            f"{model.name} is English-only: it has no tasks and no languages to choose from"
        )
    if prefix.language:
        _check_language(model, prefix.language, languages, context="language=")
    if languages and f"<|{prefix.task}|>" not in vocabulary:
        raise InputError(f"{model.name} has no token <|{prefix.task}|>: it was made for one task")
    if prefix.timestamps and (
        _NO_TIMESTAMPS_TOKEN not in vocabulary
        or model.config.vocab_size <= first_timestamp_id(model)
    ):
        raise InputError(f"{model.name} has no timestamp tokens: leave timestamps= out")
    check_prompt(model, prefix)


def decoder_prefix(model: Model, clip: Clip) -> list[int]:
    """Ids the decoder starts from: a prompt, start, language and task where the model is multilingual,
    no timestamps by default.

    Behind other speech encoders than Whisper's: start, and what the tokenizer puts in front of a
    text (the language that a multilingual Speech2Text writes). A clip's language that is not in the
    prefix is warned of, once for each model.
    """
    if model.capabilities.is_transducer:
        return [model.config.blank_token_id]
    if model.family.check_prefix is None:
        _warn_of_language(model, clip, decoder_language=getattr(model.tokenizer, "tgt_lang", None))
        return _start_ids(model)
    vocabulary = read_vocabulary(model)
    prefix = [*prompt_ids(model), model.config.decoder_start_token_id]
    languages = language_ids(model)
    if languages:
        language = (
            model.prefix.language or clip.language or _detect_language(model, clip, languages)
        )
        _check_language(model, language, languages, context=clip.name)
        prefix += [languages[language], vocabulary[f"<|{model.prefix.task}|>"]]
    else:
        _warn_of_language(model, clip, decoder_language="en" if "<|en|>" in vocabulary else None)
    if _NO_TIMESTAMPS_TOKEN in vocabulary and not model.prefix.timestamps:
        prefix.append(vocabulary[_NO_TIMESTAMPS_TOKEN])
    return prefix


def token_behind_text(model: Model) -> tuple[int, str]:
    """Id and name of what a decoder writes behind its text: the end, a transducer a blank."""
    if model.capabilities.is_transducer:
        return model.config.blank_token_id, BLANK_TOKEN
    return model.tokenizer.eos_token_id, model.tokenizer.eos_token


def prefix_labels(model: Model, prefix: Sequence[int]) -> list[str]:
    """Name the tokens of a prefix; a transducer's blank may be none of the tokenizer's."""
    if model.capabilities.is_transducer:
        return [BLANK_TOKEN] * len(prefix)
    labels: list[str] = model.tokenizer.convert_ids_to_tokens(prefix)
    return labels


def _warn_of_language(model: Model, clip: Clip, *, decoder_language: str | None) -> None:
    """Warn of a clip's language that is not in the decoder's prefix: that has another, always the
    same, or none."""
    if clip.language is None or clip.language == decoder_language:
        return
    decoder_behavior = (
        f"writes {decoder_language!r} whatever is spoken"
        if decoder_language
        else "takes no language, and writes those that it was trained on"
    )
    warnings.warn(
        f"{model.name} {decoder_behavior}: language={clip.language!r} of a clip helps to place its words "
        "alone",
        stacklevel=3,
    )


def _start_ids(model: Model) -> list[int]:
    start_id = getattr(
        getattr(model.module, "generation_config", None), "decoder_start_token_id", None
    )
    start_id = model.config.decoder_start_token_id if start_id is None else start_id
    special_ids = set(model.tokenizer.all_special_ids)
    leading_special_ids = takewhile(
        lambda i: i in special_ids, model.tokenizer(text_target="a").input_ids
    )
    skipped_ids = {
        start_id,
        model.tokenizer.bos_token_id,
        model.tokenizer.eos_token_id,
        model.tokenizer.unk_token_id,
    }
    return [start_id, *(i for i in leading_special_ids if i not in skipped_ids)]


_VOCABULARIES: WeakKeyDictionary[Tokenizer, Mapping[str, int]] = WeakKeyDictionary()


def read_vocabulary(model: Model) -> Mapping[str, int]:
    """Tokens of a model's tokenizer and their ids, kept: a tokenizer takes 30 ms to list 50,000."""
    tokenizer = model.tokenizer
    vocabulary = _VOCABULARIES.get(tokenizer)
    if vocabulary is None or len(vocabulary) != len(tokenizer):  # tokens were added
        vocabulary = _VOCABULARIES[tokenizer] = tokenizer.get_vocab()
    return vocabulary


def language_ids(model: Model) -> dict[str, int]:
    """Ids of the language tokens of a multilingual Whisper; none for one that knows English
    alone."""
    # Every Whisper vocabulary holds the language tokens; the English-only models start at another
    # id and never use them.
    is_multilingual = getattr(
        getattr(model.module, "generation_config", None), "is_multilingual", None
    )
    if is_multilingual is None:
        is_multilingual = not is_english_only(model.config)
    if not is_multilingual:
        return {}
    return {
        m.group(1): i
        for token, i in read_vocabulary(model).items()
        if token.startswith("<|") and (m := _LANGUAGE_TOKEN.fullmatch(token))
    }


def is_english_only(config: Config) -> bool:
    """Whether a config is that of a Whisper that knows English alone: its vocabulary lacks one
    token of the others'."""
    return bool(config.model_type == "whisper" and config.vocab_size == _ENGLISH_VOCABULARY)


def spoken_language(
    model: Model, language: str | None, prefix_ids: Sequence[int] = ()
) -> str | None:
    """Return the language of a clip: the given one, that of a Whisper's prefix, or English for a trained
    Whisper that knows no other; None if nothing says it."""
    is_whisper = model.family.name == "whisper" and model.tokenizer is not None
    if language is not None or not is_whisper or model.init != "trained":
        return language
    names = {id_: name for name, id_ in language_ids(model).items()}
    return next((names[id_] for id_ in prefix_ids if id_ in names), None if names else "en")


def first_timestamp_id(model: Model) -> int:
    """Id of <|0.00|>: timestamps follow <|notimestamps|>, in tokenizers that do not list them too."""
    result: int = model.tokenizer.convert_tokens_to_ids(_NO_TIMESTAMPS_TOKEN) + 1
    return result


def nearest_timestamp(model: Model, seconds: float) -> tuple[int, str]:
    """Id and spelling of the timestamp token nearest to a time, the last there is for a later
    one."""
    first_id = first_timestamp_id(model)
    ticks = max(0, min(round(seconds / TIMESTAMP_STEP), model.config.vocab_size - 1 - first_id))
    return first_id + ticks, f"<|{TIMESTAMP_STEP * ticks:.2f}|>"


def require_transcription(model: Model, what: str) -> None:
    """Raise an InputError if the decoder is set to translate, where the text must be what is said
    in the clip."""
    if model.prefix.task != "transcribe":
        raise InputError(
            f"{what} is about a text in the language spoken, and {model.name} is told to "
            "translate: take the model without "
            "task='translate'"
        )


def _check_language(
    model: Model, language: str, languages: dict[str, int], *, context: str
) -> None:
    if language not in languages:
        raise InputError(
            f"{context}: {model.name} has no language {language!r}; it has "
            f"{', '.join(sorted(languages))}"
        )


def _detect_language(model: Model, clip: Clip, languages: dict[str, int]) -> str:
    """Return the language the model itself finds likeliest; an InputError for an untrained twin or
    a model without a head."""
    if model.init == "random" or model.module is model.base:
        raise InputError(
            f"{clip.name}: say the language (language='fr'; --language fr on the command line, a "
            "column language in a "
            f"manifest): {model.label} cannot detect it by itself"
        )
    features = model.features(clip.audio(model.sample_rate))["input_features"]
    start_ids = torch.tensor([[model.config.decoder_start_token_id]], device=model.device)
    with model.in_use(), torch.no_grad():
        logits = model.module(
            features.to(model.device, model.dtype), decoder_input_ids=start_ids
        ).logits[0, -1]
    return max(languages, key=lambda name: logits[languages[name]].item())


def align_tokens_to_words(
    tokenizer: Tokenizer, text: str, words: Sequence[Word]
) -> tuple[list[int], list[str], list[int | None]]:
    """Tokens of a text without special ones: ids, labels as they are written, and which of the
    words each is of."""
    ids, offsets, text = tokenize_with_offsets(tokenizer, text)
    word_ranges = locate_word_parts(words, text)
    labels = [
        text[a:b].strip() or token_text(tokenizer, i)
        for i, (a, b) in zip(ids, offsets, strict=True)
    ]
    return ids, labels, [find_word_at(characters, word_ranges) for characters in offsets]


def tokenize_with_offsets(
    tokenizer: Tokenizer, text: str
) -> tuple[list[int], list[tuple[int, int]], str]:
    """Tokens of a text without special ones: ids, the characters of each, and the text that these
    are counted in.

    That is the text itself, or, of a tokenizer that tells no characters, what it spells of the ids:
    it grows by what each adds.
    """
    if getattr(tokenizer, "is_fast", False):
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return (
            list(encoding["input_ids"]),
            [tuple(characters) for characters in encoding["offset_mapping"]],
            text,
        )
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    piece_ends = [0, *(len(tokenizer.decode(ids[: count + 1])) for count in range(len(ids)))]
    return ids, list(pairwise(piece_ends)), tokenizer.decode(ids)


def decoding_options(model: Model) -> dict[str, bool]:
    """Options of ``tokenizer.decode``: a transducer's text may repeat a token, which a tokenizer
    made for CTC would merge."""
    return {"group_tokens": False} if model.capabilities.is_transducer else {}


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """Spell one token for a label; ␣ for one of white space alone."""
    return tokenizer.decode([token_id]).strip() or "␣"


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
