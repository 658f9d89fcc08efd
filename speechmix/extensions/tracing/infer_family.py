"""Find the table of an unknown architecture: from a model object or a config, without its weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import transformers
from torch import Tensor

from ...adapters.binding.bound_layers import layer_modules
from ...adapters.families.registry import families
from ...adapters.loading.checkpoints import read_config
from ...adapters.loading.model_source import resolve_path_or_id, unwrap_module
from ...adapters.transformers_types import Config, PretrainedModule
from ...errors import InputError, SpeechmixError
from ...inputs.audio.frame_grid import FrameGrid
from .infer_stacks import InferredArchitecture, infer_stacks
from .input_search import find_input_form
from .measured_grid import MeasuredGrid
from .small_models import build_small_model


def infer_family(
    hf_model: str | Path | PretrainedModule | Config,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    revision: str | None = None,
) -> InferredArchitecture:
    """Find where the layers, attention blocks, norms and feed-forwards of an architecture are.

    A small random model of the config is built and traced in one forward pass. The trained weights
    are not read. What was not understood is reported, and not guessed.

    Parameters
    ----------
    hf_model : str, Path, transformers.PreTrainedModel or transformers.PretrainedConfig
        Hub id or folder (the config alone is read), a model object, or a config.
    inputs : mapping of str to Tensor, optional
        One clip or sentence as the base model takes it. By default those of its family, or the
        first kind of input that the model runs on.
    revision : str, optional
        Branch, tag or commit on the hub.

    Returns
    -------
    InferredArchitecture
        Its `stacks`, a report (`text()`), and the table as a Python file (`table_source()`).

    Raises
    ------
    InputError, ModelError
        If there is no config, transformers cannot build the model, or no inputs fit.

    Examples
    --------
    >>> import transformers
    >>> config = transformers.BioGptConfig(hidden_size=32, num_hidden_layers=6, num_attention_heads=2,
    ...     intermediate_size=64, vocab_size=50)
    >>> found = infer_family(config)
    >>> found.stacks[0].feed_forwards[0].up, found.stacks[0].causal
    ('fc1', True)
    """
    if isinstance(hf_model, torch.nn.Module):
        source = unwrap_module(hf_model)
        config = getattr(source, "config", None)
        if config is None:
            raise InputError(
                f"expected a transformers model, found {type(source).__name__}, which has no config"
            )
        module = build_small_model(config, type(source))
    elif isinstance(hf_model, transformers.PreTrainedConfig):
        module = build_small_model(hf_model)
    elif isinstance(hf_model, str | os.PathLike):
        options = {"revision": revision} if revision else {}
        module = build_small_model(read_config(_resolve_config_path(hf_model), options))
    else:
        raise InputError(
            "expected a hub id, a folder, a transformers model or a config, found "
            f"{type(hf_model).__name__}"
        )
    return infer_model(module, inputs)


def infer_model(
    module: PretrainedModule, inputs: Mapping[str, Tensor] | None = None
) -> InferredArchitecture:
    """Trace a small random model, on the inputs of its family, or else the first that it runs on."""
    base, model_type = module.base_model, module.config.model_type
    if inputs is not None:
        return infer_stacks(base, inputs)
    families_of_type = [family for family in families() if model_type in family.model_types]
    if not families_of_type:
        form = find_input_form(base)
        architecture = infer_stacks(base, form.make(base), run=partial(form.run, base))
        if not (form.hears and architecture.stacks):
            return architecture
        layer = layer_modules(architecture.stacks[0], base)[0]
        return _add_frames(architecture, MeasuredGrid(lambda: (base, layer), form), module.config)
    family = families_of_type[0]
    names = tuple(spec.name for spec in family.stacks(module.config))
    architecture = infer_stacks(
        base,
        family.tiny_inputs(module.config),
        run=lambda tensors: family.run(base, tensors, names),
    )
    if family.grid is None:
        return architecture
    return _add_frames(architecture, family.grid, module.config)


def _add_frames(
    architecture: InferredArchitecture, grid: Callable[[Config, int], FrameGrid], config: Config
) -> InferredArchitecture:
    """Add where frames lie in time, or why that is not known."""
    try:
        frames = grid(config, 3 * 16_000)
    except SpeechmixError as error:
        return replace(architecture, unknowns=(*architecture.unknowns, str(error)))
    milliseconds = [1_000 * x for x in (frames.stride, frames.first_centre, frames.width)]
    sentence = (
        "a frame each {:g} ms, the first centred at {:.1f} ms; a frame sees {:.1f} ms".format(
            *milliseconds
        )
    )
    return replace(architecture, findings=(*architecture.findings, sentence))


def _resolve_config_path(source: str | os.PathLike[str]) -> str:
    """The folder or hub id; of a config.json its folder."""
    path = Path(os.fspath(source)).expanduser()
    if path.name == "config.json" and path.is_file():
        return str(path.parent)
    return resolve_path_or_id(source)
