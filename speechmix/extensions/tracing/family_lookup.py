"""Find the family of a config that has no table: one that is traced, once for each config in a
process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from ...adapters.families.family import Family
from ...adapters.transformers_types import Config, FeatureExtractor
from ...errors import ModelError, SpeechmixError
from ...files.cache_keys import digest
from .failure_reason import describe_failure
from .layer_lists import NOT_DEFINED
from .traced_family import trace_family

_traced_families: dict[str, Family | str] = {}


def find_traced_family(
    config: Config, model_class: type[nn.Module], read_extractor: Callable[[], FeatureExtractor]
) -> Family:
    """Return the traced family of a config.

    Raises
    ------
    ModelError
        If no table could be verified: the message says which part was not understood.
    """
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
            f"no family for model type {config.model_type!r}. A small random model of its config was traced, "
            f"and no table could be verified: {family}. `speechmix describe-architecture MODEL --out "
            f"FILE` writes what was found; {advice}, see docs/howto/new_architecture.md"
        )
    return family


def _hears(model_class: type[nn.Module]) -> bool:
    names = inspect.signature(model_class.forward).parameters
    return "input_features" in names or "input_values" in names
