"""Models: where the layers of an unmodified model are, and one forward pass captured block by block."""

from .binding.bound_layers import Stack
from .binding.layer_components import Layer
from .families.registry import families, family_of_type, register
from .families.specs import AttentionPlan, ConvolutionPlan, Family, FeedForwardPlan, StackPlan
from .generation.model_inputs import Prepared
from .loading.load import load
from .model import Model

__all__ = [
    "AttentionPlan",
    "ConvolutionPlan",
    "Family",
    "FeedForwardPlan",
    "Layer",
    "Model",
    "Prepared",
    "Stack",
    "StackPlan",
    "families",
    "family_of_type",
    "load",
    "register",
]
