"""Features of a clip's audio and the encoder's states for them, computed once within `Model.unchanged`.

In: a model and clips. Out: tensors that all calls for the same audio share: maps, ablation and
transcript need the same features, and a Whisper's decoder the same encoder states. Audio is
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
    """Features of a clip: tensors by name, and the hash of the audio (None where they are not
    cached)."""

    tensors: dict[str, Tensor]
    audio_hash: str | None


def extract_features(model: Model, clip: Clip) -> Features:
    """Extract a clip's features; within `Model.unchanged` once for clips with the same audio.

    Do not write to the tensors. An InputError says that the audio cannot be read or that the
    features are not finite; a ModelError, that the model makes none.
    """
    # Read once: a late thread must not store its result for the next `unchanged`.
    cache = model.activation_cache
    if cache is None:
        return Features(_compute_features(model, clip), None)
    audio_hash = clip.audio_hash
    features = cache.features.get(audio_hash)
    if features is None:
        features = _compute_features(model, clip)
        if clip.audio_hash != audio_hash:  # the file was exchanged in between
            return Features(features, None)
        cache.features.store(audio_hash, features)
    return Features(dict(features), audio_hash)


def _compute_features(model: Model, clip: Clip) -> dict[str, Tensor]:
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
    model: Model, inputs: Inputs, audio_hash: str | None, *, attention: str | None = None
) -> ModelOutput:
    """Run an encoder on a clip's inputs, or return its cached output for the same audio.

    Call it within `Model.in_use`, without gradients. The first input is the sound [1, ...], on the
    model's device and in the precision to compute in; `attention` is an implementation to run under
    instead of the model's own. Only passes of one clip are cached: in a batch the same numbers may
    be summed in another order.
    """
    key = _encoder_states_key(model, audio_hash, next(iter(inputs.values())), attention)
    states = (
        None
        if model.activation_cache is None or audio_hash is None
        else model.activation_cache.encoder_states.get(key)
    )
    if states is not None:
        return wrap_encoder_states(states["states"].clone())  # a decoder may write into them
    output = model.family.run(model.base, inputs, ("encoder",))
    store_encoder_states(model, output[0], audio_hash, attention=attention)
    return output


def reuse_encoder_states(model: Model, inputs: Inputs, audio_hash: str | None) -> dict[str, Any]:
    """Replace the audio among a model's inputs by the encoder's states, where the decoder reads them
    by cross-attention and they are those of one clip."""
    audio_inputs = {
        name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")
    }
    if audio_hash is None or not model.capabilities.decoder_stacks or len(audio_inputs) != 1:
        return dict(inputs)
    other_inputs = {name: tensor for name, tensor in inputs.items() if name not in audio_inputs}
    return {**other_inputs, "encoder_outputs": run_encoder(model, audio_inputs, audio_hash)}


def wrap_encoder_states(states: Tensor) -> ModelOutput:
    """Wrap an encoder's states [B, T, D] as a decoder takes them, none of them padding.

    The attention mask is there and None, because Moonshine looks for it.
    """
    from transformers.modeling_outputs import BaseModelOutput

    output: ModelOutput = BaseModelOutput(states)
    output.attention_mask = None
    return output


def store_encoder_states(
    model: Model, states: Tensor, audio_hash: str | None, *, attention: str | None = None
) -> None:
    """Store an encoder's output [1, T, D] for the next call with the same audio."""
    if model.activation_cache is not None and audio_hash is not None and len(states) == 1:
        key = _encoder_states_key(model, audio_hash, states, attention)
        model.activation_cache.encoder_states.store(key, {"states": states.detach().clone()})


def _encoder_states_key(
    model: Model, audio_hash: str | None, tensor: Tensor, attention: str | None
) -> Hashable:
    """Return what decides an encoder's output: audio, device, precision, attention
    implementation."""
    return (
        audio_hash,
        tensor.device,
        tensor.dtype,
        attention or getattr(model.config, "_attn_implementation", None),
    )
