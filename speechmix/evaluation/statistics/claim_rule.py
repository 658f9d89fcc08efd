"""What a claim about a trained model and its untrained twins needs (`random_twin_comparison`)."""

DEFAULT_TWINS = 9  # untrained twins of a model, where nobody says how many


FEWEST_TWINS = 5  # below which nothing is claimed


FEWEST_CLAIM_GROUPS = 15  # independent groups of clips, below which nothing is claimed
