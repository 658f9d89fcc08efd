"""Default options of the French study."""

from ...evaluation.statistics.twin_rank_test import TWINS_NEEDED

SEEDS = tuple(range(TWINS_NEEDED))  # of the untrained twins, as many as a claim takes
TWIN_CLIPS = 80  # clips on which twins after the first are scored: 40 pairs, 20 of each side
MEASURES = ("value_zeroing", "attention", "attention_norm")
