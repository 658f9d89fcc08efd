"""Planted truth: models whose edges are known because their weights were set by hand.

Which edges does a measure find, and which must it miss? In: a case (`cases()`). Out: an unmodified
BERT, GPT-2, wav2vec2 or Whisper in which information flows along the case's edges and nowhere else
(`plant`), and scores of measures and decision maps against them (`measure_recovery`). The page
docs/planted_truth.md shows what comes out.
"""

from .case_table import Case, cases
from .planting import Planted, plant
from .recovery import measure_recovery

__all__ = ["Case", "Planted", "cases", "measure_recovery", "plant"]
