"""Tokenizer and rules of generation of OpenAI's Whispers, where files hold ranks of tokens or nothing.

In: the bytes of each token in the order of its rank (a ggml file, a ``.tiktoken`` file), and the size of
the vocabulary, from which the numbers of all special tokens follow. Out: a tokenizer of transformers
and a generation config. Radford et al. 2023; module `whisper.tokenizer` of openai-whisper.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...adapters.loading.checkpoints import transformers_class
from ...adapters.transformers_types import Config, Tokenizer
from ...errors import ModelError

_TASKS_AND_CONTROLS = (
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
_TIMESTAMPS = 1501
_SYMBOLS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *"<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(),
]
_NOTES = "♩♪♫♬♭♮♯"  # of several tokens the first is suppressed
_TIKTOKEN_PACKAGES = ("whisper", "mlx_whisper")  # import names


def special_tokens(vocab_size: int, source: str | Path) -> dict[str, int]:
    """Return the special tokens of a vocabulary of this size, timestamps left out.

    Examples
    --------
    >>> special_tokens(51864, "tiny.en")["<|notimestamps|>"]
    50362
    """
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    is_multilingual = vocab_size >= 51865
    first = base_size(vocab_size)
    controls = 2 + len(_TASKS_AND_CONTROLS) + _TIMESTAMPS
    languages = list(LANGUAGES)[: vocab_size - first - controls]
    if first + controls + len(languages) != vocab_size or len(languages) < 99:
        raise ModelError(
            f"{source}: a vocabulary of {vocab_size} tokens is none of OpenAI's "
            f"({'multilingual' if is_multilingual else 'English'}): its special tokens are not known"
        )
    names = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        *(f"<|{language}|>" for language in languages),
        *_TASKS_AND_CONTROLS,
    ]
    return {name: first + index for index, name in enumerate(names)}


def base_size(vocab_size: int) -> int:
    """Count the tokens of a vocabulary of OpenAI before the special ones."""
    return 50257 if vocab_size >= 51865 else 50256


def create_tokenizer(
    tokens: Sequence[bytes], special: Mapping[str, int], source: str | Path
) -> Tokenizer:
    """Return Whisper's tokenizer from its tokens in the order of their ranks.

    The pair with the lowest rank is merged first, so all ways to split a token into two others are
    its merges.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    count = special["<|endoftext|>"]
    letters = bytes_to_unicode()
    if len(tokens) < count:
        raise ModelError(f"{source}: {len(tokens)} tokens, expected {count}")
    texts = ["".join(letters[byte] for byte in token) for token in tokens[:count]]
    ranks = {text: rank for rank, text in enumerate(texts)}
    if len(ranks) != count or not ranks.keys() >= set(letters.values()):
        raise ModelError(f"{source}: damaged: tokens of its vocabulary are missing or doubled")
    merges = []
    for text in texts:
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        known_pairs = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        merges += sorted(known_pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    tokenizer = transformers_class("WhisperTokenizer")(vocab=ranks, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": [*special][1:]})
    tokenizer.set_prefix_tokens()  # it looked for them before they were there
    if {name: tokenizer.convert_tokens_to_ids(name) for name in special} != dict(special):
        raise ModelError(f"{source}: its special tokens are not numbered as OpenAI's")
    return tokenizer


def installed_tokens(vocab_size: int, folder: Path) -> tuple[list[bytes] | None, str]:
    """Find the ranks of tokens for a file that has none: a ``.tiktoken`` file beside it, or in an
    installed package; with a remark that says where."""
    name = f"{'multilingual' if vocab_size >= 51865 else 'gpt2'}.tiktoken"
    folders = [(folder, f"{name} beside it")]
    for package in _TIKTOKEN_PACKAGES:
        if (spec := find_spec(package)) is not None and spec.submodule_search_locations:
            folders.append(
                (Path(spec.submodule_search_locations[0]) / "assets", f"the package {package}")
            )
    for token_folder, description in folders:
        if (token_folder / name).is_file():
            return _read_tiktoken(
                token_folder / name
            ), f"it has no tokenizer; {description} has its tokens"
    return None, (
        f"it has no tokenizer, so texts cannot be read or written: pip install openai-whisper, put {name} "
        "beside it, or give processor="
    )


def _read_tiktoken(path: Path) -> list[bytes]:
    try:
        pairs = [line.split() for line in path.read_bytes().splitlines() if line.strip()]
        ranks = {int(rank): base64.b64decode(token, validate=True) for token, rank in pairs}
        return [ranks[rank] for rank in range(len(ranks))]
    except (ValueError, KeyError, binascii.Error, OSError) as error:
        raise ModelError(f"{path}: no ranks of tokens as tiktoken has them ({error})") from error


def suppressed_tokens(
    tokenizer: Tokenizer, special: Mapping[str, int], *, has_symbols: bool
) -> list[int]:
    """Return the tokens that an engine never writes: controls, and with `has_symbols` those of no
    speech (openai-whisper's and MLX's default; whisper.cpp writes them by default)."""
    controls = [*_TASKS_AND_CONTROLS[:5], "<|startoftranscript|>"]
    suppressed = {special[name] for name in controls if name in special}
    if has_symbols:
        encode: Callable[[str], list[int]] = partial(tokenizer.encode, add_special_tokens=False)
        suppressed |= {encode(" -")[0], encode(" '")[0]}
        for symbol in (*_SYMBOLS, *_NOTES):
            for ids in (encode(symbol), encode(f" {symbol}")):
                if len(ids) == 1 or symbol in _NOTES:
                    suppressed.add(ids[0])
    return sorted(suppressed)


class OpenaiVocabulary:
    """The tokens of a file without a tokenizer.json, made into a tokenizer when it is needed.

    `tokens` are in the order of their ranks; None where nothing has them.
    """

    def __init__(self, config: Config, tokens: Sequence[bytes] | None, source: Path) -> None:
        self._config, self._tokens, self._source = config, tokens, source
        self.special = special_tokens(config.vocab_size, source)
        self._tokenizer: Tokenizer = None

    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None and self._tokens is not None:
            self._tokenizer = create_tokenizer(self._tokens, self.special, self._source)
        return self._tokenizer

    def generation_config(
        self, *, has_symbols: bool, alignment_heads: Sequence[Sequence[int]] | None = None
    ) -> Config:
        """Return the rules by which the engine writes; see `suppressed_tokens`."""
        tokenizer, at_begin = self.tokenizer(), [self.special["<|endoftext|>"]]
        if tokenizer is not None:
            at_begin = [*tokenizer.encode(" ", add_special_tokens=False), *at_begin]
        return create_generation_config(
            self._config,
            self.special,
            suppressed=suppressed_tokens(
                tokenizer, self.special, has_symbols=has_symbols and tokenizer is not None
            ),
            suppressed_at_begin=at_begin,
            alignment_heads=alignment_heads,
        )


def _check_numbers(numbers: Sequence[int], limit: int, what: str) -> None:
    if any(type(number) is not int or not 0 <= number < limit for number in numbers):
        raise ValueError(f"{what} {numbers!r:.60}, expected numbers below {limit}")


def create_generation_config(
    config: Config,
    tokens: Mapping[str, int],
    *,
    suppressed: Sequence[int] | None,
    suppressed_at_begin: Sequence[int] | None,
    alignment_heads: Sequence[Sequence[int]] | None = None,
    language_ids: Sequence[int] | None = None,
) -> Config:
    """Return what generation needs: suppressed tokens, heads for word times, languages and tasks.

    A ValueError or TypeError for lists that hold anything but ids of tokens, and layers with heads.
    """
    from transformers import GenerationConfig

    for ids in (suppressed, suppressed_at_begin, language_ids):
        _check_numbers(ids or (), config.vocab_size, "tokens")
    for head in alignment_heads or ():
        _check_numbers(head[:1], config.decoder_layers, "layers of alignment heads")
        _check_numbers(head[1:], config.decoder_attention_heads, "alignment heads")
        if len(head) != 2:
            raise ValueError(f"an alignment head {head!r:.40}")
    options: dict[str, Any] = {
        "alignment_heads": alignment_heads,
        "suppress_tokens": suppressed,
        "begin_suppress_tokens": suppressed_at_begin,
        "is_multilingual": config.vocab_size >= 51865,
        "max_length": config.max_target_positions,
        "max_initial_timestamp_index": 50,
        "no_timestamps_token_id": tokens.get("<|notimestamps|>"),
        "prev_sot_token_id": tokens.get("<|startofprev|>"),
        "return_timestamps": False,
    }
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        options[name] = getattr(config, name)
    if options["is_multilingual"]:
        first, last = tokens["<|startoftranscript|>"], tokens.get("<|translate|>", 0)
        languages = set(language_ids) if language_ids else range(first + 1, last)
        options["lang_to_id"] = {text: id_ for text, id_ in tokens.items() if id_ in languages}
        options["task_to_id"] = {
            task: tokens[f"<|{task}|>"]
            for task in ("transcribe", "translate")
            if f"<|{task}|>" in tokens
        }
    return GenerationConfig(**{name: value for name, value in options.items() if value is not None})
