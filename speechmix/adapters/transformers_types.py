"""Names for what transformers leaves untyped: objects whose attributes are known at run time alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor

Config: TypeAlias = Any  # of a checkpoint: each architecture has attributes of its own
Processor: TypeAlias = Any  # feature extractor and tokenizer in one
FeatureExtractor: TypeAlias = Any
Tokenizer: TypeAlias = Any
PretrainedModule: TypeAlias = Any  # a transformers model: heads, bases and their arguments vary
ModelOutput: TypeAlias = Any  # what a forward pass returns: logits, states, caches by name
Inputs: TypeAlias = Mapping[str, Tensor]  # by the name of the module's argument
TorchFunction: TypeAlias = Callable[..., Any]  # what `__torch_function__` is given
HookArguments: TypeAlias = tuple[Any, ...]  # of a module's call, as torch's hooks see them
HookKeywords: TypeAlias = dict[str, Any]
