"""Where to find things inside a model nobody changed: one table per family, no modelling code."""

from .families.registry import families, family_of_type, register
from .layers import Stack
from .load import load
from .model import Model
from .parts import Layer
from .plans import AttentionPlan, ConvolutionPlan, Family, FeedForwardPlan, StackPlan
from .prepared import Prepared

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
