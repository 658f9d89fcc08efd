"""Whisper's decoder prefix: language, task and timestamp tokens.

    <|startoftranscript|> <|fr|> <|transcribe|> <|notimestamps|> ...text... <|endoftext|>
    <|startoftranscript|> <|fr|> <|translate|> <|0.00|> ...text... <|1.20|> <|endoftext|>

In: a model with its `DecoderPrefix` (`Model.with_prefix`), and a clip, which knows its language.
Out: ids. The prefix belongs to the model, not to one call: whatever runs the decoder (maps,
transcripts, interventions) uses it, and `Model.fingerprint`, by which stored results are compared,
includes it. Radford et al. 2023, Robust Speech Recognition via Large-Scale Weak Supervision, figure
1.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch

from ...errors import InputError
from ...inputs.clips.clip_metadata import TASKS

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model
    from ..transformers_types import Config
    from .decoder_context import DecoderPrefix

BLANK_TOKEN = "<blank>"
TIMESTAMP_STEP = 0.02  # seconds from one timestamp token to the next
_LANGUAGE_TOKEN = re.compile(r"<\|([a-z]{2,3})\|>")
_NO_TIMESTAMPS_TOKEN = "<|notimestamps|>"
_ENGLISH_VOCABULARY = 51_864  # tokens of a Whisper for English alone; of others 51,865 or more


def check_prefix(model: Model, prefix: DecoderPrefix) -> None:
    """Raise an InputError unless the model can take this prefix.

    It cannot if it is no Whisper with its tokenizer, if the task or language is unknown, or if it
    has no tokens for timestamps.
    """
    if prefix.task not in TASKS:
        raise InputError(f"task must be one of {TASKS}, found {prefix.task!r}")
    vocabulary, languages = model.tokenizer.get_vocab(), language_ids(model)
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


def decoder_prefix(model: Model, clip: Clip) -> list[int]:
    """Ids the decoder starts from: start, language and task where the model is multilingual, no
    timestamps by default.

    Behind other speech encoders than Whisper's: start, and what the tokenizer puts in front of a
    text (the language that a multilingual Speech2Text writes). A clip's language that is not in the
    prefix is warned of, once for each model.
    """
    if model.capabilities.is_transducer:
        return [model.config.blank_token_id]
    if model.family.check_prefix is None:
        _warn_of_language(model, clip, decoder_language=getattr(model.tokenizer, "tgt_lang", None))
        return _start_ids(model)
    vocabulary = model.tokenizer.get_vocab()
    prefix = [model.config.decoder_start_token_id]
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
        for token, i in model.tokenizer.get_vocab().items()
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
