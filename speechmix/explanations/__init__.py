"""Why a model generated a word: attributions to its sources, and effects of their removal."""
