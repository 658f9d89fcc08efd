"""Generate text greedily: the transcript or translation of a clip, the translation of a sentence.

In: a trained model with its language-model head, and a clip without a text (or a sentence without a
translation). Out: what it wrote, as ids and as text, to be fed to its decoder again. It is written
once: `Model.generated_texts` remembers it for a model as it is (its `fingerprint`), and a run keeps it in
its folder. A random twin writes nothing; it is fed what the trained model wrote.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError
from ..capture.device_copy import inputs_to_device
from ..capture.model_use import run_encoder
from ..transformers_types import Config
from .audio_prompt import prepare_prompt, provided_answer
from .decoder_context import GeneratedText
from .decoder_text import (
    TIMESTAMP_STEP,
    check_tokenizer,
    decoder_lengths,
    decoder_prefix,
    decoder_tokens,
    decoding_options,
    first_timestamp_id,
    nearest_timestamp,
    prefix_labels,
    provided_text,
    token_behind_text,
    token_text,
)
from .model_inputs import Tokens
from .text_tokens import generate_text

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model
    from .model_inputs import PreparedInputs

# Tokens of a transcript: half of Whisper's decoder, as its authors have it.
MAX_TRANSCRIPT_TOKENS = 224


def provided_decoder_text(model: Model, clip: Clip) -> str | None:
    """The text that a clip, or the model's prompt, brings for the decoder; None if there is none."""
    provide_text = provided_answer if model.capabilities.has_audio_tokens else provided_text
    return provide_text(model, clip)


def needs_generated_text(model: Model, clip: Clip) -> bool:
    """Whether a model has a decoder to be fed and the clip brings no text for it."""
    required_processor = model.processor if model.capabilities.has_audio_tokens else model.tokenizer
    has_separate_audio = model.capabilities.decoding in ("cross-attention", "audio tokens")
    return (
        has_separate_audio
        and required_processor is not None
        and provided_decoder_text(model, clip) is None
    )


def add_decoder_tokens(
    model: Model, clip: Clip, stacks: Sequence[str], prepared: PreparedInputs
) -> PreparedInputs:
    """Add what the decoder behind a speech encoder is fed, if `stacks` needs it; errors as in
    `tokenize_clip`."""
    if set(stacks) & {"decoder", "cross"}:
        prepared.tokens, prepared.generated_text = tokenize_clip(model, clip)
        prepared.inputs["decoder_input_ids"] = torch.tensor([prepared.tokens.ids])
    return prepared


def tokenize_clip(model: Model, clip: Clip) -> tuple[Tokens, GeneratedText | None]:
    """Make the tokens that a decoder behind a speech encoder is fed for a clip: its text, or else
    what the model itself generates (the second result; None for a clip with text).

    Errors are those of `decoder_tokens` and `generate_text`.
    """
    check_tokenizer(model, clip)
    if provided_text(model, clip) is not None:
        return decoder_tokens(model, clip), None
    generated_text = generate_text(model, clip)
    return _tokenize_generated_text(model, generated_text), generated_text


def feed_generated_text(
    model: Model, prepared: PreparedInputs, generated_text: GeneratedText
) -> None:
    """Feed a decoder exactly the tokens of the translation that the model generated, where its text
    is tokenised otherwise."""
    prepared.generated_text = generated_text
    if prepared.decoder_tokens.ids != list(generated_text.ids):
        prepared.tokens = _tokenize_generated_text(model, generated_text)
        prepared.inputs["decoder_input_ids"] = torch.tensor([generated_text.ids])


def generate_greedily(
    model: Model, clip: Clip, *, max_tokens: int = MAX_TRANSCRIPT_TOKENS
) -> tuple[list[int], int, bool]:
    """Generate the likeliest token at each step, by the rules of the model's generation config.

    Suppressed tokens are never chosen; timestamps come in pairs and in order. ``generate`` of
    transformers without beams does the same. Returns the ids (prefix and text, without the end),
    the number of prefix ids, and whether the text ended. A model loaded beside its engine lets the
    engine write.
    """
    if model.engine is not None:
        written: tuple[list[int], int, bool] = model.engine.generate(model, clip, max_tokens)
        return written
    prepared = model.family.prepare(model, clip, ("encoder",))
    inputs = inputs_to_device(prepared.inputs, model.device, model.state_dtype)
    ids = decoder_prefix(model, clip)
    n_prefix, end_id = len(ids), model.tokenizer.eos_token_id
    limit = min(max_tokens + n_prefix, *decoder_lengths(model))
    logits_processors = list_logits_processors(model, n_prefix)
    with model.in_use(model.state_dtype), torch.no_grad():
        encoder_output, new_ids = run_encoder(model, inputs, prepared.audio_hash), ids
        cache_name, cache = _cache_argument(model), None
        while len(ids) < limit:
            tokens = torch.tensor([new_ids], device=model.device)
            output = model.module(
                encoder_outputs=encoder_output,
                decoder_input_ids=tokens,
                use_cache=True,
                **{cache_name: cache},
            )
            scores = output.logits[:, -1].float()
            for process_logits in logits_processors:
                scores = process_logits(torch.tensor([ids], device=model.device), scores)
            new_ids, cache = [int(scores[0].argmax())], output[cache_name]
            if new_ids[0] == end_id:
                return ids, n_prefix, True
            ids = [*ids, *new_ids]
    return ids, n_prefix, False


def _cache_argument(model: Model) -> str:
    """Name under which a module takes and returns keys and values of former tokens: transformers
    5.24 renames it for some."""
    names = inspect.signature(model.module.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def decode_ids(model: Model, ids: Sequence[int]) -> str:
    """Text of ids, special tokens and timestamps left out."""
    first_time_id = _first_time_id(model)
    text_ids = [i for i in ids if i < first_time_id]
    options = decoding_options(model)
    result: str = model.tokenizer.decode(text_ids, skip_special_tokens=True, **options).strip()
    return result


def _first_time_id(model: Model) -> int:
    """Return the id from which on tokens are timestamps."""
    return first_timestamp_id(model) if model.prefix.timestamps else model.config.vocab_size


def transcribe(model: Model, clip: Clip, *, max_tokens: int = 100) -> str:
    """Greedy transcript of a clip.

    Parameters
    ----------
    model : Model
        One that can spell (`Model.can_transcribe`).
    clip : Clip
        Its language is given to a multilingual Whisper.
    max_tokens : int
        Where to stop a decoder that does not.

    Raises
    ------
    InputError
        If the model cannot spell.
    """
    if not model.can_transcribe:
        raise InputError(
            f"{model.label} cannot transcribe: it needs a CTC, transducer or language-model head and "
            f"its processor{model.missing_processor}"
        )
    if model.capabilities.decoding == "cross-attention":
        ids, n_prefix, _ = generate_greedily(model, clip, max_tokens=max_tokens)
        return decode_ids(model, ids[n_prefix:])
    if model.capabilities.is_transducer and model.family.generate is not None:
        return model.family.generate(model, clip).text
    dtype = model.state_dtype
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    inputs = inputs_to_device(inputs, model.device, dtype)
    with model.in_use(dtype), torch.no_grad():
        ids = model.module(**inputs).logits[0].argmax(dim=-1)
        result: str = model.tokenizer.decode(ids).strip()
        return result


def list_logits_processors(model: Model, n_prefix: int) -> list[Any]:
    """Return what the generation config forbids, as transformers' own functions of (ids, scores), in
    their order."""
    from transformers.generation import logits_process

    config: Config = copy.deepcopy(getattr(model.module, "generation_config", None))
    processors: list[Any] = []
    suppressed_at_begin, suppressed = (
        getattr(config, name, None) for name in ("begin_suppress_tokens", "suppress_tokens")
    )
    if suppressed_at_begin:
        processors.append(
            logits_process.SuppressTokensAtBeginLogitsProcessor(
                suppressed_at_begin, n_prefix, device=str(model.device)
            )
        )
    if suppressed:
        processors.append(
            logits_process.SuppressTokensLogitsProcessor(suppressed, device=str(model.device))
        )
    if model.prefix.timestamps:
        config.no_timestamps_token_id = first_timestamp_id(model) - 1
        config.eos_token_id = model.tokenizer.eos_token_id
        processors.append(
            logits_process.WhisperTimeStampLogitsProcessor(config, begin_index=n_prefix)
        )
    return processors


def generate_transcript(model: Model, clip: Clip) -> GeneratedText:
    text_kind = "translation" if model.prefix.task == "translate" else "transcript"
    ids, n_prefix, ended = generate_greedily(model, clip)
    text = decode_ids(model, ids[n_prefix:])
    author = f"the model ({model.label}, greedy)" if model.engine is None else model.writer
    return GeneratedText(tuple(ids), n_prefix, text, f"{text_kind} of {author}", ended)


def generate_answer(model: Model, clip: Clip) -> GeneratedText:
    """What an audio language model answers, by transformers' own greedy `generate`; the ids of the
    answer alone."""
    inputs = inputs_to_device(prepare_prompt(model, clip), model.device, model.state_dtype)
    greedy = {"num_beams": 1, "do_sample": False, "max_new_tokens": MAX_TRANSCRIPT_TOKENS}
    suppressed_ids = [model.config.audio_token_id]  # fed again, it would ask for a sound of its own
    with model.in_use(model.state_dtype), torch.no_grad():
        ids = model.module.generate(**inputs, **greedy, suppress_tokens=suppressed_ids)[0].tolist()
    ids = ids[inputs["input_ids"].shape[1] :]
    end_ids = getattr(model.module.generation_config, "eos_token_id", None)
    ended = bool(ids) and ids[-1] in ([end_ids] if isinstance(end_ids, int) else end_ids or ())
    ids = ids[:-1] if ended else ids
    text = model.tokenizer.decode(ids, skip_special_tokens=True).strip()
    return GeneratedText(tuple(ids), 0, text, f"answer of the model ({model.label}, greedy)", ended)


def _tokenize_generated_text(model: Model, generated_text: GeneratedText) -> Tokens:
    """Decoder input of what a model wrote, token by token as it wrote it; they are of no word of
    the clip or sentence."""
    tokenizer, special_ids = model.tokenizer, set(model.tokenizer.all_special_ids)
    ids, n_prefix = list(generated_text.ids), generated_text.n_prefix
    first_time_id = _first_time_id(model)
    labels, kinds = prefix_labels(model, ids[:n_prefix]), ["special"] * n_prefix
    for i in ids[n_prefix:]:
        is_timestamp = i >= first_time_id
        labels.append(
            nearest_timestamp(model, TIMESTAMP_STEP * (i - first_time_id))[1]
            if is_timestamp
            else token_text(tokenizer, i)
        )
        kinds.append("special" if is_timestamp or i in special_ids else "token")
    end_label = token_behind_text(model)[1] if generated_text.ended else "<next>"
    return Tokens(
        ids, [*labels, end_label], [None] * (len(ids) + 1), [*kinds, "special"], label_offset=1
    )
