"""Find the family of a config: a registered one, or one that an extension finds."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ...errors import ModelError
from ...extension import find_hook
from ..loading.checkpoints import transformers_class
from ..transformers_types import Config, FeatureExtractor, PretrainedModule
from .checkpoint_classes import checkpoint_class, class_of_model_type
from .family import Family
from .registry import family_of_type
from .transducers import add_transducer


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
