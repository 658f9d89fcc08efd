"""Where to find things inside a model nobody changed: one table per family, no modelling code."""

from .families.registry import families, family_of_type, register
from .load import load
from .model import Model, Prepared
from .plans import AttentionPlan, Family, FeedForwardPlan, Stack, StackPlan

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
