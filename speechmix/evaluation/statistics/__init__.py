"""Statistics over clips, groups of clips and untrained twins."""
