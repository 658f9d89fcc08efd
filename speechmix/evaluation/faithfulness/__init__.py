"""Measures on trial: do the words that a measure ranks high count for what the model decides? Start at trial.py."""

from .results import Trial
from .trial import faithfulness

__all__ = ["Trial", "faithfulness"]
