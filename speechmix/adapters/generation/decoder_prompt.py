"""A Whisper's prompt: text that its decoder reads as if it had been said before.

    <|startofprev|> hotwords prompt text-before <|startoftranscript|> <|fr|> <|transcribe|> ...

In: a model with its `DecoderPrefix`. Out: ids, and the words of a prompt by the positions of their tokens. `initial_prompt` and
`hotwords` of faster-whisper and whisper.cpp, `prompt_ids` of transformers and the text of the window before all stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from ..model import Model
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
    if has_prompt and _PREVIOUS_TOKEN not in model.tokenizer.get_vocab():
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
