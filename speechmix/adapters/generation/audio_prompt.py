"""Prompt of an audio language model with the sound of a clip, and its answer.

    <|im_start|>user Audio 1: <|audio_bos|> sound <|audio_eos|> Transcribe the speech. <|im_end|> <|im_start|>assistant ANSWER

In: a model with its `Prompt` (`Model.with_prompt`), its processor, a clip. Out: inputs and tokens.
The processor writes the conversation (its chat template) and as many audio tokens as the sound has
positions. The prompt belongs to the model and its fingerprint: maps and interventions share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from ...errors import ModelError
from ...files.json_files import JsonObject
from .audio_token_positions import locate_audio_tokens
from .decoder_context import GeneratedText
from .decoder_text import (
    check_end_token,
    compare_words_with_text,
    provided_text,
    text_with_foil,
)
from .decoder_text_generation import generate_text
from .model_inputs import PreparedInputs
from .prompt_writing import too_long_error, write_prompt
from .token_sequence import Tokens
from .token_words import align_tokens_to_words, token_text

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model

_PROMPT_INPUT_NAMES = ("input_ids", "attention_mask")


def prepare_with_prompt(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    """Prepare the inputs of an audio language model: the prompt with the sound, and behind it the
    answer, where the decoder is measured.

    An InputError says that the clip is longer than the model takes, or that there is no answer:
    none given, and none that the model can generate. A ModelError says that the model was loaded
    without its processor.
    """
    prompt_inputs = prepare_prompt(model, clip)
    ids, generated_text = prompt_inputs["input_ids"][0].tolist(), None
    if "decoder" not in stacks:
        return PreparedInputs(dict(prompt_inputs), audio_tokens=locate_audio_tokens(model, ids))
    answer_text = provided_answer(model, clip)
    if answer_text is None:
        generated_text = generate_text(model, clip)
    tokens = _tokenize_prompt_and_answer(model, clip, ids, answer_text, generated_text)
    inputs = {**prompt_inputs, "input_ids": torch.tensor([tokens.ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    return PreparedInputs(
        inputs,
        tokens,
        generated_text=generated_text,
        audio_tokens=locate_audio_tokens(model, tokens.ids, answer_position=len(ids)),
    )


def prepare_prompt(model: Model, clip: Clip) -> dict[str, torch.Tensor]:
    """Make the inputs of the prompt with the clip's sound, a batch of one, by the model's
    processor; errors as in `prepare_with_prompt`."""
    if model.processor is None:
        raise ModelError(
            f"{model.name} was loaded without its processor, which writes the prompt around the "
            "sound: load it with "
            "processor=transformers.AutoProcessor.from_pretrained(...), or pass prepared inputs. "
            "Two need a library of their "
            "own: Voxtral's pip install 'mistral-common[audio]', Qwen2.5-Omni's pip install "
            "torchvision"
        )
    audio = clip.audio(model.sample_rate)
    grid = model.grid(len(audio))
    if grid.is_fixed_window and len(audio) > grid.duration * model.sample_rate:
        raise too_long_error(model, clip, grid.duration)
    inputs = write_prompt(model, clip)
    locate_audio_tokens(model, inputs["input_ids"][0].tolist()).check(
        grid.n_frames, f"{model.name}, {clip.name}"
    )
    return inputs


def audio_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs that the sound is in, without those of a prompt around it."""
    prompt = _PROMPT_INPUT_NAMES if "input_ids" in inputs else ()
    return {name: tensor for name, tensor in inputs.items() if name not in prompt}


def describe_prompt_and_answer(model: Model, prepared: PreparedInputs) -> JsonObject:
    """What a map says of the decoder's text: the prompt, where sound and answer are among its
    positions, whose answer it is."""
    tokens, audio_tokens, generated_text = (
        prepared.tokens,
        prepared.audio_tokens,
        prepared.generated_text,
    )
    if tokens is None or audio_tokens is None:
        return {}
    description: JsonObject = {"sound_positions": [audio_tokens.start, audio_tokens.stop]}
    if audio_tokens.answer_position is None:
        return description
    answer_source = (
        generated_text.by
        if generated_text
        else "answer given"
        if model.prompt.answer is not None
        else "the clip's text"
    )
    ids = tokens.ids[audio_tokens.answer_position :]
    cut_note = (
        {}
        if generated_text is None or generated_text.ended
        else {"answer_cut": f"after {len(ids)} tokens, as long as it may be"}
    )
    answer = {
        "answer": model.tokenizer.decode(ids, skip_special_tokens=True),
        "answer_by": answer_source,
        **cut_note,
    }
    return {
        **description,
        "prompt": model.prompt.text,
        "answer_position": audio_tokens.answer_position,
        **answer,
    }


def provided_answer(model: Model, clip: Clip) -> str | None:
    """The answer that is fed to the decoder where the model need not write it: one given, or what
    is said."""
    prompt = model.prompt
    answer = (
        prompt.answer
        if prompt.answer is not None or not prompt.transcribes
        else provided_text(model, clip)
    )
    return answer.strip() if answer and answer.strip() else None


def _tokenize_prompt_and_answer(
    model: Model,
    clip: Clip,
    prompt_ids: list[int],
    text: str | None,
    generated_text: GeneratedText | None,
) -> Tokens:
    """All tokens of the decoder: the prompt's, of no word, and the answer's, of those words of the
    clip that are in it."""
    tokenizer = model.tokenizer
    special_ids = {*tokenizer.all_special_ids, model.config.audio_token_id}
    labels = [
        tokenizer.convert_ids_to_tokens(i) if i in special_ids else token_text(tokenizer, i)
        for i in prompt_ids
    ]
    kinds = ["special" if i in special_ids else "token" for i in prompt_ids]
    if text is not None and model.prompt.answer is None:  # what is said, not another answer
        compare_words_with_text(clip, text)
    answer = (
        _tokenize_text(model, clip, text)
        if text is not None
        else _tokenize_generated_text(model, generated_text)
    )
    end_label = tokenizer.eos_token if generated_text is None or generated_text.ended else "<next>"
    tokens = Tokens(
        ids=[*prompt_ids, *answer.ids],
        labels=[*labels, *answer.labels, end_label],
        words=[*[None] * len(prompt_ids), *answer.words, None],
        kinds=[*kinds, *["token"] * len(answer.ids), "special"],
        label_offset=1,
    )
    if text is None or clip.foil is None or clip.target is None:
        return tokens
    ids, foil_ids = (
        [*prompt_ids, *spelled_tokens.ids, tokenizer.eos_token_id]
        for spelled_tokens in (answer, _tokenize_text(model, clip, text_with_foil(clip, text)))
    )
    return tokens.with_deciding_token(ids, foil_ids)


def _tokenize_text(model: Model, clip: Clip, text: str) -> Tokens:
    tokens = Tokens(*align_tokens_to_words(model.tokenizer, text, clip.spoken_words), kinds=[])
    check_end_token(model, clip, text, tokens.ids)
    return tokens


def _tokenize_generated_text(model: Model, generated_text: GeneratedText | None) -> Tokens:
    ids = [] if generated_text is None else list(generated_text.ids)
    return Tokens(ids, [token_text(model.tokenizer, i) for i in ids], [None] * len(ids), [])
