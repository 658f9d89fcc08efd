"""The French homophony study at corpus scale: which pairs of cue and homophone are in a text, found
with reasons.

from speechmix.studies.french import mine
mine("Les chats voient un livre.").pairs
"""

from .language.lexicon import Lexicon
from .mining import DroppedCandidate, HomophonePair, MinedSentence, count_pairs, mine, mine_all
from .pair_template import Template, load_template, load_templates

__all__ = [
    "DroppedCandidate",
    "HomophonePair",
    "Lexicon",
    "MinedSentence",
    "Template",
    "count_pairs",
    "load_template",
    "load_templates",
    "mine",
    "mine_all",
]
