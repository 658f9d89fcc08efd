"""Prompt of an audio language model with the sound of a clip, and its answer.

    <|im_start|>user Audio 1: <|audio_bos|> sound <|audio_eos|> Transcribe the speech. <|im_end|> <|im_start|>assistant ANSWER

In: a model with its `Prompt` (`Model.with_prompt`), its processor, a clip. Out: inputs and tokens.
The processor writes the conversation (its chat template) and as many audio tokens as the sound has
positions. The prompt belongs to the model and its fingerprint: maps and interventions share it.

Let a processor write the prompt around a sound.

In: a model with its `Prompt` and processor, a clip. Out: the model's inputs, up to where the answer begins.

Find the words of a prompt among the tokens that a processor wrote around it.

In: an audio language model with its prompt, and the ids of the conversation. Out: each word of the prompt with the
positions of the tokens that spell it. The words of the chat template are no words of the prompt.

Find the positions of an audio language model's decoder that stand for sound.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...files.timing import phase
from ..capture.module_access import check_fits
from ..transformers_types import Config, FeatureExtractor, Processor
from .decoder_context import GeneratedText
from .decoder_text import (
    align_tokens_to_words,
    check_end_token,
    compare_words_with_text,
    provided_text,
    text_with_foil,
    token_text,
)
from .model_inputs import AudioTokens, PreparedInputs, Tokens
from .text_tokens import generate_text

if TYPE_CHECKING:
    import numpy as np

    from ...inputs.clips.clip import Clip
    from ..model import Model


def find_audio_token_id(config: Config) -> int | None:
    """Id of the token that stands for sound in a decoder's input; None if a model has none, or
    takes no sound (a size of Gemma 4 without an encoder of sound)."""
    if getattr(config, "audio_config", config) is None:
        return None
    parts = (config, getattr(config, "audio_config", None))
    ids = (getattr(part, "audio_token_id", None) for part in parts)
    return next((id_ for id_ in ids if id_ is not None), None)


def find_audio_range(model: Model, ids: Sequence[int]) -> range:
    """Return the positions of the sound of one clip among the tokens of a decoder; an InputError
    for none or more than one."""
    audio_token_id = find_audio_token_id(model.config)
    positions = [position for position, id_ in enumerate(ids) if id_ == audio_token_id]
    if not positions:
        raise InputError(
            f"{model.name}: no audio token ({audio_token_id}) is among the {len(ids)} tokens fed to its "
            "decoder: the prompt must hold one for each position of the sound, as the model's processor makes them"
        )
    audio_range = range(positions[0], positions[-1] + 1)
    if len(audio_range) != len(positions):
        raise InputError(
            f"{model.name}: the {len(positions)} audio tokens should stand side by side, as one clip has them; "
            f"they lie between {audio_range.start} and {audio_range.stop} with others among them"
        )
    return audio_range


def locate_audio_tokens(
    model: Model, ids: Sequence[int], *, answer_position: int | None = None
) -> AudioTokens:
    """Find the sound among the tokens [T] that an audio language model (of a family with a
    projector) is fed.

    No sound, or more than one, is an InputError.
    """
    audio_range = find_audio_range(model, ids)
    frames, positions = model.projector_step
    if len(audio_range) % positions:
        raise InputError(
            f"{model.name}: audio tokens should come by {positions}, as its projector gives them; "
            f"found {len(audio_range)}"
        )
    return AudioTokens(audio_range.start, audio_range.stop, frames, positions, answer_position)


def write_prompt(model: Model, clip: Clip) -> dict[str, torch.Tensor]:
    """Make the inputs of the prompt with the clip's sound by the model's processor, without finding
    the encoder's frames in them.

    A processor that makes no position of the sound, or cuts it, is an InputError.
    """
    audio = clip.audio(model.sample_rate)
    check_fits(model, len(audio))
    inputs, count = _write_samples(model, audio)
    if not count:
        raise InputError(
            f"{clip.name}: of {len(audio) / model.sample_rate:.3f} s of audio the processor of "
            f"{model.name} makes no position "
            "for its decoder: use a longer clip"
        )
    limit = _sample_limit(model.feature_extractor)
    if 0 < limit < len(audio) and _write_samples(model, audio[:limit])[1] == count:
        raise too_long_error(model, clip, limit / model.sample_rate)
    return inputs


def _write_samples(model: Model, audio: np.ndarray) -> tuple[dict[str, torch.Tensor], int]:
    """Inputs of the prompt with samples, and the number of positions of the sound."""
    write = model.family.build_chat_inputs or write_chat_inputs
    with phase("features"):
        chat_inputs = write(model.processor, audio, model.prompt.text)
    inputs = {name: torch.as_tensor(value) for name, value in chat_inputs.items()}
    ids: list[int] = inputs["input_ids"][0].tolist()
    return inputs, ids.count(find_audio_token_id(model.config) or -1)


def _sample_limit(extractor: FeatureExtractor) -> int:
    """Samples of a clip behind which a feature extractor may cut it; 0 if it never does."""
    max_length = inspect.signature(type(extractor).__call__).parameters.get("max_length")
    default = None if max_length is None else max_length.default
    return getattr(extractor, "n_samples", default) or 0


def too_long_error(model: Model, clip: Clip, window: float) -> InputError:
    """Return the error for a clip that is longer than a window of so many seconds."""
    duration = len(clip.audio(model.sample_rate)) / model.sample_rate
    return InputError(
        f"{clip.name}: {duration:.2f} s of audio, but {model.name} hears {window:g} s at a time. Cut "
        f"it at a pause: clip.cut(0.0, t) with t up to {window:g}"
    )


def write_chat_inputs(
    processor: Processor, audio: np.ndarray, text: str
) -> Mapping[str, torch.Tensor]:
    """Make the inputs of a prompt with a sound, by a processor that is called with text and audio
    (all but Voxtral's).

    A chat template that takes no list of parts gets the audio token within the text. A ModelError
    says that no form of the conversation leaves exactly one audio token in it.
    """
    audio_token = processor.audio_token
    message_parts = [{"type": "audio", "audio": "sound"}, {"type": "text", "text": text}]
    templates: list[Callable[[], str]] = (
        [lambda: text]
        if audio_token in text
        else [
            lambda: _apply_chat_template(processor, message_parts),
            lambda: _apply_chat_template(processor, audio_token + text),
        ]
    )
    for write_conversation in templates:
        try:
            conversation = write_conversation()
        except Exception:  # a template raises what it likes; the next way may do
            continue
        if conversation.count(audio_token) == 1:
            result: Mapping[str, torch.Tensor] = processor(
                text=[conversation],
                audio=[audio],
                return_tensors="pt",
                **_sampling_rate_option(processor),
            )
            return result
    raise ModelError(
        f"{type(processor).__name__}: its chat template leaves no place for one sound: give a "
        f"prompt that holds {audio_token!r} "
        "itself, as the model was trained on, and that is taken as it is"
    )


def _apply_chat_template(processor: Processor, content: Any) -> str:
    result: str = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    return result


def _sampling_rate_option(processor: Processor) -> JsonObject:
    """Return the sampling rate as an option, because Whisper's extractor requires it."""
    extractor = getattr(processor, "feature_extractor", None)
    return {} if extractor is None else {"sampling_rate": extractor.sampling_rate}


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


def find_prompt_words(model: Model, ids: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the words of a model's prompt with their positions; none where the ids do not spell
    the prompt as it is.

    `ids` [T] are those of the conversation without an answer. A word whose tokens all belong to a
    neighbour has no positions.
    """
    audio = getattr(model.processor, "audio_token", None)
    words = (model.prompt.text.replace(audio, " ") if audio else model.prompt.text).split()
    letter_positions, letters = list[int](), ""
    for position, id_ in enumerate(ids):
        if id_ in model.tokenizer.all_special_ids or id_ == find_audio_token_id(model.config):
            piece = "\n"  # no word goes over it
        else:
            piece = "".join(model.tokenizer.decode([id_]).split())
        letters += piece
        letter_positions += [position] * len(piece)
    start = letters.rfind("".join(words))
    if not words or start < 0:
        return []
    word_positions, taken = [], set[int]()
    for word in words:
        positions = dict.fromkeys(
            position
            for position in letter_positions[start : start + len(word)]
            if position not in taken
        )
        taken |= set(positions)
        start += len(word)
        word_positions.append((word, tuple(positions)))
    return word_positions
