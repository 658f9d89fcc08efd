"""Build a small random model of a config.

In: the config of any transformers model. Out: a model with at most three layers in each stack, the
widths of the config, and weights that all differ.

Draw the tokens of a model's inputs: of a text, and of a prompt around a sound.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.families.specs import checkpoint_class
from ...adapters.loading.checkpoints import NO_CUSTOM_CODE, transformers_class
from ...adapters.loading.load import build_random_module
from ...adapters.transformers_types import Config, PretrainedModule
from ...errors import ModelError

_LAYER_COUNT = 3
_COUNT_NAMES = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "encoder_num_hidden_layers",
    "decoder_num_hidden_layers",
    "speech_encoder_layers",
)
_VOCABULARY = 1_000
_LIST_NAMES = ("layer_types", "no_rope_layers", "mlp_layer_types")


def shrink_config(config: Config) -> Config:
    """Return a copy of a config with at most three layers in each stack and a small vocabulary, also
    in configs inside it.

    Token ids that are too large for the vocabulary get others.

    Examples
    --------
    >>> import transformers
    >>> shrink_config(transformers.BertConfig(num_hidden_layers=12)).num_hidden_layers
    3
    """
    small = copy.deepcopy(config)
    new_ids: dict[int, int] = {}
    for part in iterate_configs(small):
        _shrink_vocabulary(part, new_ids)
        for name in _COUNT_NAMES:
            count = part.__dict__.get(part.attribute_map.get(name, name))
            if isinstance(count, int) and count > _LAYER_COUNT:
                setattr(part, name, _LAYER_COUNT)
        if part.__dict__.get("num_kv_shared_layers"):
            part.num_kv_shared_layers = 1
        for name in _LIST_NAMES:
            values = part.__dict__.get(name)
            if isinstance(values, list):
                setattr(part, name, values[:_LAYER_COUNT])
    return small


def _shrink_vocabulary(part: Config, new_ids: dict[int, int]) -> None:
    """Give token ids beyond the vocabulary others, the same in all parts of a config."""

    def shrink_id(token_id: object) -> object:
        if isinstance(token_id, list | tuple):
            return [shrink_id(item) for item in token_id]
        if not isinstance(token_id, int) or token_id < _VOCABULARY:
            return token_id
        return new_ids.setdefault(token_id, _VOCABULARY - 1 - len(new_ids))

    for name, value in list(vars(part).items()):
        if name.endswith(("token_id", "token_index")):
            setattr(part, name, shrink_id(value))
        elif name == "vocab_size" and isinstance(value, int):
            setattr(part, name, min(value, _VOCABULARY))


def iterate_configs(config: Config) -> Iterator[Config]:
    """Yield a config and all configs inside it."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "attribute_map") and hasattr(value, "model_type"):
            yield from iterate_configs(value)


def build_small_model(
    config: Config, build: Callable[[Config], nn.Module] | None = None
) -> PretrainedModule:
    """Build a model of a config with few layers and random weights; if that is not possible, with
    all of its layers.

    Parameters
    ----------
    config : transformers config
    build : callable, optional
        Builds a model of a config: a model class.

    Raises
    ------
    ModelError
        If transformers cannot build it.
    """
    build = build or _build_from_config
    try:
        return _build_randomized(shrink_config(config), build)
    except ModelError:  # numbers of layers that do not fit other parts of the config
        return _build_randomized(copy.deepcopy(config), build)


def _build_randomized(config: Config, build: Callable[[Config], nn.Module]) -> PretrainedModule:
    config.dtype = torch.float32
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = build_random_module(partial(build, config))
        _randomize_weights(module)
    return module.eval().requires_grad_(False)


def _build_from_config(config: Config) -> nn.Module:
    model_class = transformers_class(checkpoint_class(config))
    is_auto_class = hasattr(model_class, "from_config")
    module: nn.Module = (
        model_class.from_config(config, **NO_CUSTOM_CODE) if is_auto_class else model_class(config)
    )
    return module


def _randomize_weights(module: nn.Module) -> None:
    """Draw weights that make every part matter: biases that are not zero, gains that are not one."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.ndim > 1:
                parameter.normal_(0, 1.5 / math.sqrt(max(1, parameter.shape[1:].numel())))
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for path, buffer in module.named_buffers():
            if path.endswith("running_mean"):
                buffer.normal_(0, 0.2)
            elif path.endswith("running_var"):
                buffer.uniform_(0.5, 2)


def count_audio_positions(base: PretrainedModule, inputs: Mapping[str, Tensor]) -> int:
    """Count the positions that an audio language model's decoder has for a sound."""
    with torch.no_grad():
        output: Any = base.get_audio_features(**inputs)
    mask = getattr(output, "attention_mask", None)
    if isinstance(mask, Tensor):  # the decoder gets the positions that are no padding
        return int(mask.sum())
    states = getattr(output, "pooler_output", None)
    states = output if states is None else states
    tensors = [states] if isinstance(states, Tensor) else [x for x in states if x is not None]
    return sum(math.prod(x.shape[:-1]) for x in tensors)


def draw_prompt(base: PretrainedModule, inputs: Mapping[str, Tensor]) -> Tensor:
    """Draw two tokens, the sound, two tokens; one token for each position, if there is no audio token."""
    position_count = count_audio_positions(base, inputs)
    token_id = getattr(base.config, "audio_token_id", None)
    if token_id is None:
        return draw_ids(base.config, position_count)
    ids = draw_ids(base.config, position_count + 4)
    ids[ids == token_id] = token_id - 1 if token_id else 1
    ids[:, 2 : 2 + position_count] = token_id
    return ids


def draw_ids(config: Config, length: int) -> Tensor:
    """Draw tokens [1, length], none of them special."""
    parts = list(iterate_configs(config))
    sizes = [getattr(part, "vocab_size", None) or 32 for part in parts]
    text_config = getattr(config, "text_config", None) or getattr(config, "decoder", None) or config
    vocabulary = getattr(text_config, "vocab_size", None) or min(sizes)
    special = {
        value
        for part in parts
        for name in dir(part)
        if name.endswith("token_id") and isinstance(value := getattr(part, name, None), int)
    }
    usual = [token_id for token_id in range(int(vocabulary)) if token_id not in special][:997]
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=generator)]
