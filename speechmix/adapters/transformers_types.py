"""Names for what transformers leaves untyped: objects whose attributes are known at run time alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor

Config: TypeAlias = Any  # of a checkpoint: each architecture has attributes of its own
Processor: TypeAlias = Any  # feature extractor and tokenizer in one
FeatureExtractor: TypeAlias = Any
Tokenizer: TypeAlias = Any
PretrainedModule: TypeAlias = Any  # a transformers model: heads, bases and their arguments vary
ModelOutput: TypeAlias = Any  # what a forward pass returns: logits, states, caches by name
Inputs: TypeAlias = Mapping[str, Tensor]  # by the name of the module's argument
