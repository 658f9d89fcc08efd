"""Features of a clip's audio and the encoder's states for them, computed once within `Model.unchanged`.

In: a model and clips. Out: tensors that every question about the same audio shares: maps, ablation
and transcript need the same features, and a Whisper's decoder the same encoder states. Audio is
identified by its hash (`Clip.audio_hash`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ...errors import InputError
from ..transformers_types import Inputs, ModelOutput

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...inputs.clips.clip import Clip
    from ..model import Model


class Features(NamedTuple):
    """What a feature extractor made of a sound: tensors by name, and the sound's hash (None if
    nobody will ask again)."""

    tensors: dict[str, Tensor]
    sound: str | None


def extract_features(model: Model, clip: Clip) -> Features:
    """What the model's feature extractor makes of a clip; within `Model.unchanged` once for clips
    of one sound.

    The tensors are not to be written to.

    Raises
    ------
    ModelError
        As `Model.features`.
    InputError
        If the clip's audio cannot be read, or what is made of it is not finite.
    """
    heard = (
        model.activation_cache
    )  # once: a thread that is late must not give what it made to the next `unchanged`
    if heard is None:
        return Features(_made_of(model, clip), None)
    sound = clip.audio_hash
    features = heard.features.get(sound)
    if features is None:
        features = _made_of(model, clip)
        if clip.audio_hash != sound:  # the file was exchanged in between
            return Features(features, None)
        heard.features.keep(sound, features)
    return Features(dict(features), sound)


def _made_of(model: Model, clip: Clip) -> dict[str, Tensor]:
    """Features of a clip; Speech2Text divides them by how much they vary, which in digital silence
    is nothing."""
    features = dict(model.features(clip.audio(model.sample_rate)))
    for name, tensor in features.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(
                f"{clip.name}: {name} that the feature extractor of {model.name} makes of this "
                "sound are not all finite, as of "
                "a sound that is silent throughout: leave the clip out, or use one with sound in it"
            )
    return features


def run_encoder(
    model: Model, inputs: Inputs, sound: str | None, *, attention: str | None = None
) -> ModelOutput:
    """What an encoder gives for a sound's inputs: made now, or remembered from another question
    about the same sound.

    Only passes of one clip are remembered and used: in a batch the same numbers may be summed in
    another order.

    Parameters
    ----------
    model : Model
        In use (`Model.in_use`), without gradients.
    inputs : dict of str to Tensor
        Of the encoder, the first of them the sound [1, ...]; on the model's device, in the
        precision to compute in.
    sound : str or None
        Whose features these are (`Features.sound`).
    attention : str, optional
        The attention implementation that it is run under, if not the model's own.

    Returns
    -------
    transformers.modeling_outputs.BaseModelOutput
    """
    key = _key(model, sound, next(iter(inputs.values())), attention)
    states = (
        None
        if model.activation_cache is None or sound is None
        else model.activation_cache.encoder_states.get(key)
    )
    if states is not None:
        return wrap_encoder_states(states["states"])
    output = model.family.run(model.base, inputs, ("encoder",))
    store_encoder_states(model, output[0], sound, attention=attention)
    return output


def reuse_encoder_states(model: Model, inputs: Inputs, sound: str | None) -> dict[str, Any]:
    """Inputs of the whole model with the encoder's states in place of the audio, where the decoder
    reads them by cross-attention and they are those of one clip's audio."""
    audio = {name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")}
    if sound is None or not model.capabilities.decoder_stacks or len(audio) != 1:
        return dict(inputs)
    rest = {name: tensor for name, tensor in inputs.items() if name not in audio}
    return {**rest, "encoder_outputs": run_encoder(model, audio, sound)}


def wrap_encoder_states(states: Tensor) -> ModelOutput:
    """States of an encoder [B, T, D] as a decoder takes them; all of them are sound.

    Returns
    -------
    transformers.modeling_outputs.BaseModelOutput
        With an attention mask of None, which Moonshine looks for there.
    """
    from transformers.modeling_outputs import BaseModelOutput

    output: ModelOutput = BaseModelOutput(states)
    output.attention_mask = None
    return output


def store_encoder_states(
    model: Model, states: Tensor, sound: str | None, *, attention: str | None = None
) -> None:
    """Keep an encoder's output [1, T, D] for the next question about the sound."""
    if model.activation_cache is not None and sound is not None and len(states) == 1:
        key = _key(model, sound, states, attention)
        model.activation_cache.encoder_states.keep(key, {"states": states.detach()})


def _key(model: Model, sound: str | None, made: Tensor, attention: str | None) -> Hashable:
    """What decides an encoder's output: the sound, where and how precisely it is computed, by which
    attention."""
    return (
        sound,
        made.device,
        made.dtype,
        attention or getattr(model.config, "_attn_implementation", None),
    )
