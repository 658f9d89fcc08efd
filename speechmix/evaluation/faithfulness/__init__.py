"""Measures on trial: do the words that a measure ranks high count for what the model decides? Start at trial.py."""

from .trial import Trial, faithfulness

__all__ = ["Trial", "faithfulness"]
