"""What was made of the sounds heard last: features, and the states of an encoder behind which a
decoder stands.

In: a model within `Model.unchanged`, and clips. Out: what was made for one question about a sound,
to be used for the next: maps, ablation and transcript need the same features, and a Whisper's
decoder the same encoder states. A sound is known by its hash (`Clip.sound`). What was used longest
ago is let go first; outside `unchanged` nothing is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ...errors import InputError

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model

# Bytes of features, on the host, and of encoder states, on the device: those of some 120 clips for
# a Whisper, and the states of ten for a Whisper-medium.
FEATURES_BYTES = 2**27
STATES_BYTES = 2**26


class Features(NamedTuple):
    """What a feature extractor made of a sound: tensors by name, and the sound's hash (None if
    nobody will ask again)."""

    tensors: dict[str, Tensor]
    sound: str | None


class LRUCache:
    """A few results by key, the last used, within a number of bytes; for several threads.

    Examples
    --------
    >>> import torch
    >>> remembered = LRUCache(limit=8)
    >>> for name in "abc":
    ...     remembered.keep(name, {"x": torch.zeros(1)})
    >>> [name for name in "abc" if remembered.get(name)]
    ['b', 'c']
    """

    def __init__(self, limit: int):
        self._limit, self._size = limit, 0
        self._results: OrderedDict[Hashable, Mapping[str, Tensor]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Mapping[str, Tensor] | None:
        """What was kept under the key, if it still is."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def keep(self, key: Hashable, result: Mapping[str, Tensor]) -> None:
        """Keep a result, if it is not larger than all there is room for."""
        with self._lock:
            if key in self._results or _size(result) > self._limit:
                return
            self._results[key] = result
            self._size += _size(result)
            while self._size > self._limit:
                _, oldest = self._results.popitem(last=False)
                self._size -= _size(oldest)


def _size(result: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in result.values())


class ActivationCache:
    """What a model made of the sounds it heard last."""

    def __init__(self):
        self.features = LRUCache(FEATURES_BYTES)
        self.encoder_states = LRUCache(STATES_BYTES)


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
    sound = clip.sound
    features = heard.features.get(sound)
    if features is None:
        features = _made_of(model, clip)
        if clip.sound != sound:  # the file was exchanged in between
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
    model: Model, inputs: Mapping[str, Tensor], sound: str | None, *, attention: str | None = None
) -> Any:
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


def wrap_encoder_states(states: Tensor) -> Any:
    """States of an encoder [B, T, D] as a decoder takes them; all of them are sound.

    Returns
    -------
    transformers.modeling_outputs.BaseModelOutput
        With an attention mask of None, which Moonshine looks for there.
    """
    from transformers.modeling_outputs import BaseModelOutput

    output: Any = BaseModelOutput(states)
    output.attention_mask = None
    return output


def store_encoder_states(
    model: Model, states: Tensor, sound: str | None, *, attention: str | None = None
) -> None:
    """Keep an encoder's output [1, T, D] for the next question about the sound."""
    if model.activation_cache is not None and sound is not None and len(states) == 1:
        key = _key(model, sound, states, attention)
        model.activation_cache.encoder_states.keep(key, {"states": states.detach()})


def _key(model: Model, sound: str | None, made: Tensor, attention: str | None) -> tuple:
    """What decides an encoder's output: the sound, where and how precisely it is computed, by which
    attention."""
    return (
        sound,
        made.device,
        made.dtype,
        attention or getattr(model.config, "_attn_implementation", None),
    )
