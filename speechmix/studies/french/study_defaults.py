"""Default options of the French study."""

from ...evaluation.statistics.claim_rule import DEFAULT_TWINS

SEEDS = tuple(range(DEFAULT_TWINS))  # of the untrained twins


TWIN_CLIPS = 80  # clips on which twins after the first are scored: 40 pairs, 20 of each side


MEASURES = ("value_zeroing", "attention", "attention_norm")
