"""Model families by `model_type`. A user adds one with `register`, without editing the library.

Find the family of a config: a registered one, or one that an extension finds.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ...errors import ModelError
from ...extension import find_hook
from ..loading.checkpoints import transformers_class
from ..transformers_types import Config, FeatureExtractor, PretrainedModule
from . import (
    audio_language,
    conformers,
    layer_norm_decoders,
    seq2seq,
    spectrograms,
    speech_seq2seq,
    text_decoders,
    text_encoders,
    wav2vec2,
    whisper,
)
from .conformers import add_transducer
from .family import Family
from .specs import checkpoint_class, class_of_model_type

_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Make an architecture known.

    Parameters
    ----------
    family : Family
        Its table. A later registration of the same `model_type` replaces the earlier one.

    Examples
    --------
    An encoder built like wav2vec2, with other names for its parts:

    >>> from dataclasses import replace
    >>> from speechmix.adapters import AttentionSpec, StackSpec, family_of_type
    >>> spec = StackSpec(
    ...     name="encoder", layers="blocks", blocks=(AttentionSpec.of("mixer", value="v", key="k", output="o"),),
    ...     norm_order="pre", final_norm="norm",
    ... )
    >>> register(replace(family_of_type("wav2vec2"), name="mine", model_types=("mine",), stacks=lambda config: (spec,)))
    """
    for model_type in family.model_types:
        _FAMILIES[model_type] = family


def families() -> list[Family]:
    """Return the known families, each once."""
    return list(dict.fromkeys(_FAMILIES.values()))


def family_of_type(model_type: str | None) -> Family:
    """Return the family of a ``config.model_type``.

    Raises
    ------
    ModelError
        If there is none; it names those there are and how to register one.
    """
    if model_type not in _FAMILIES:
        supported = ", ".join(sorted(_FAMILIES))
        raise ModelError(
            f"no family for model type {model_type!r}. Supported: {supported}. "
            "To add an architecture, describe where its layers are and call "
            "speechmix.register(Family(...)); see its docstring"
        )
    return _FAMILIES[model_type]


for _family_table in (
    wav2vec2,
    conformers,
    whisper,
    speech_seq2seq,
    spectrograms,
    text_encoders,
    text_decoders,
    layer_norm_decoders,
    seq2seq,
    audio_language,
):
    for _family in _family_table.FAMILIES:
        register(_family)


def find_family(
    config: Config,
    model_class: type[nn.Module] | None = None,
    *,
    read_extractor: Callable[[], FeatureExtractor] = lambda: None,
) -> Family:
    """Return the family of a config: the registered one, or one that an extension finds.

    `model_class` is by default that of the config's checkpoint; `read_extractor` returns the
    feature extractor, for a speech model of an unknown type. The ModelError of an unknown
    architecture names what was not understood, and how to go on.
    """
    model_type = getattr(config, "model_type", None)
    try:
        return family_of_type(model_type)
    except ModelError:  # no table is registered
        find_unregistered = find_hook("find_unregistered_family")
        if model_class is None:
            class_name = checkpoint_class(config, class_of_model_type(model_type or ""))
            model_class = transformers_class(class_name) if class_name else None
        if find_unregistered is None or model_class is None:
            raise
    family: Family = find_unregistered(config, model_class, read_extractor)
    return add_transducer(family, config)


def find_module_family(
    module: PretrainedModule, read_extractor: Callable[[], FeatureExtractor]
) -> Family:
    """Return the family of a model object, as `find_family`; adapters do not count."""
    bare = module.get_base_model() if hasattr(module, "get_base_model") else module
    return find_family(getattr(module, "config", None), type(bare), read_extractor=read_extractor)
