"""Measures of context mixing: pure functions from a captured block and units to scores."""

from .measure import Measure
from .measure_functions import MEASURES, find_measure

__all__ = ["MEASURES", "Measure", "find_measure"]
