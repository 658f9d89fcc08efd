"""Measures of context mixing: pure functions from a captured block and units to scores."""

from .registry import MEASURES, Measure, measure_named

__all__ = ["MEASURES", "Measure", "measure_named"]
