"""Find the positions of an audio language model's decoder that stand for sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ..transformers_types import Config
from .audio_token_frames import AudioTokens

if TYPE_CHECKING:
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
