"""Measures on trial: do the words that a measure ranks high count for what the model decides? Start
at trial.py."""

from .blank_out import BlankOut, blank_out
from .deletion import deletion_curves
from .deletion_results import DeletionCurves
from .joint import joint_blank_out
from .results import Trial
from .trial import faithfulness

__all__ = [
    "BlankOut",
    "DeletionCurves",
    "Trial",
    "blank_out",
    "deletion_curves",
    "faithfulness",
    "joint_blank_out",
]
