"""Faithfulness evaluation: do the words that a measure ranks high count for what the model decides?

Start at evaluate.py; presets.py has the published protocols of texts.
"""

from .evaluate import faithfulness
from .joint import joint_blank_out
from .presets import blank_out, deletion_curves
from .results import FaithfulnessResults

__all__ = [
    "FaithfulnessResults",
    "blank_out",
    "deletion_curves",
    "faithfulness",
    "joint_blank_out",
]
