"""Find the positions of an audio language model's decoder that stand for sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from .audio_token_frames import AudioTokens

if TYPE_CHECKING:
    from ..model import Model


def locate_audio_tokens(
    model: Model, ids: Sequence[int], *, answer_position: int | None = None
) -> AudioTokens:
    """Where sound is among the tokens that an audio language model is fed.

    Parameters
    ----------
    model : Model
        Of a family with a projector.
    ids : sequence of int [T]
    answer_position : int, optional
        As in `AudioTokens`.

    Raises
    ------
    InputError
        If there is no sound, or more than one.
    """
    audio_token_id = getattr(model.config, "audio_token_id", None)
    audio_positions = [position for position, i in enumerate(ids) if i == audio_token_id]
    if not audio_positions:
        raise InputError(
            f"{model.name}: no audio token ({audio_token_id}) is among the {len(ids)} tokens fed to its "
            "decoder: the prompt must hold "
            "one for each position of the sound, as the model's processor makes them"
        )
    start, stop = audio_positions[0], audio_positions[-1] + 1
    if stop - start != len(audio_positions):
        raise InputError(
            f"{model.name}: the {len(audio_positions)} audio tokens should stand side by side, as one clip "
            "has them; they lie between "
            f"{start} and {stop} with others among them"
        )
    frames, positions = model.projector_step
    if len(audio_positions) % positions:
        raise InputError(
            f"{model.name}: audio tokens should come by {positions}, as its projector gives them; "
            f"found {len(audio_positions)}"
        )
    return AudioTokens(start, stop, frames, positions, answer_position)
