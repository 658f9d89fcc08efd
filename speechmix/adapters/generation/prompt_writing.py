"""Let a processor write the prompt around a sound.

In: a model with its `Prompt` and processor, a clip. Out: the model's inputs, up to where the answer begins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...files.timing import phase
from ..capture.memory_check import check_fits
from ..transformers_types import FeatureExtractor, Processor
from .audio_token_positions import find_audio_token_id

if TYPE_CHECKING:
    import numpy as np

    from ...inputs.clips.clip import Clip
    from ..model import Model


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
