"""Find the family of a config: a registered one, or one that is traced, once for each config in a
process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from ...adapters.families.checkpoint_classes import checkpoint_class, class_of_model_type
from ...adapters.families.family import Family
from ...adapters.families.registry import family_of_type
from ...adapters.families.transducers import add_transducer
from ...adapters.loading.checkpoints import transformers_class
from ...adapters.transformers_types import Config, FeatureExtractor, PretrainedModule
from ...errors import ModelError, SpeechmixError
from ...files.cache_keys import digest
from .failure_reason import describe_failure
from .mixing_kinds import NOT_DEFINED
from .traced_family import trace_family

_traced_families: dict[str, Family | str] = {}


def find_family(
    config: Config,
    model_class: type[nn.Module] | None = None,
    *,
    read_extractor: Callable[[], FeatureExtractor] = lambda: None,
) -> Family:
    """Return the family of a config: the registered one, or one that is traced.

    Parameters
    ----------
    config : transformers config
    model_class : type, optional
        Class of the model; by default that of the config's checkpoint.
    read_extractor : callable, optional
        Returns the feature extractor, for a speech model of an unknown type.

    Raises
    ------
    ModelError
        If there is none: the message says which part was not understood, and how to go on.
    """
    model_type = getattr(config, "model_type", None)
    try:
        return family_of_type(model_type)
    except ModelError:  # no table is registered
        if model_class is None:
            class_name = checkpoint_class(config, class_of_model_type(model_type or ""))
            if not class_name:
                raise
            model_class = transformers_class(class_name)
    extractor = read_extractor() if _hears(model_class) else None
    described = None if extractor is None else (type(extractor).__name__, str(extractor.to_dict()))
    fields = {name: x for name, x in config.to_dict().items() if name != "_name_or_path"}
    key = digest([model_class.__qualname__, str(fields), described])
    if key not in _traced_families:
        try:
            _traced_families[key] = trace_family(config, model_class, extractor)
        except SpeechmixError as error:
            _traced_families[key] = str(error)
        except Exception as error:  # an unknown model's code raises what it likes
            _traced_families[key] = f"tracing stopped: {describe_failure(error)}"
    family = _traced_families[key]
    if isinstance(family, str):
        advice = (
            "no table can describe such layers"
            if NOT_DEFINED in family
            else "finish the table by hand and register it with speechmix.register(Family(...))"
        )
        raise ModelError(
            f"no family for model type {model_type!r}. A small random model of its config was traced, "
            f"and no table could be verified: {family}. `speechmix describe-architecture MODEL --out "
            f"FILE` writes what was found; {advice}, see docs/howto/new_architecture.md"
        )
    return add_transducer(family, config)


def find_module_family(
    module: PretrainedModule, read_extractor: Callable[[], FeatureExtractor]
) -> Family:
    """Return the family of a model object, as `find_family`; adapters do not count."""
    bare = module.get_base_model() if hasattr(module, "get_base_model") else module
    return find_family(getattr(module, "config", None), type(bare), read_extractor=read_extractor)


def _hears(model_class: type[nn.Module]) -> bool:
    names = inspect.signature(model_class.forward).parameters
    return "input_features" in names or "input_values" in names
