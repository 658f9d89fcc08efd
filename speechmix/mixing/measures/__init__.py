"""Measures of context mixing: pure functions from a captured block and units to scores."""

from .measure import Measure
from .registry import MEASURES, measure_named

__all__ = ["MEASURES", "Measure", "measure_named"]
