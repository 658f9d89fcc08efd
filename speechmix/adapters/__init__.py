"""Where to find things inside a model nobody changed: one table per family, no modelling code."""

from .blocks import AttentionPlan, Family, FeedForwardPlan, Stack, StackPlan
from .load import load
from .model import Model, Prepared
from .registry import families, family_of_type, register

__all__ = [
    "AttentionPlan",
    "Family",
    "FeedForwardPlan",
    "Model",
    "Prepared",
    "Stack",
    "StackPlan",
    "families",
    "family_of_type",
    "load",
    "register",
]
