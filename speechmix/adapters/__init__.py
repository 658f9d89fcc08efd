"""Models: where the layers of an unmodified model are, and one forward pass captured block by block."""

import copyreg

from .binding.bound_layers import Layer, Stack
from .families.family import Family
from .families.registry import families, family_of_type, register
from .families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec
from .generation.model_inputs import PreparedInputs
from .loading.load import load
from .loading.model_pickle import reduce_model
from .model import Model

copyreg.pickle(Model, reduce_model)

__all__ = [
    "AttentionSpec",
    "ConvolutionSpec",
    "Family",
    "FeedForwardSpec",
    "Layer",
    "Model",
    "PreparedInputs",
    "Stack",
    "StackSpec",
    "families",
    "family_of_type",
    "load",
    "register",
]
