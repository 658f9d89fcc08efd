"""Part-of-speech tags and verb features of the lexicon.

In: nothing. Out: the names that templates, lexicons and parsers share
(universaldependencies.org/u/pos; moods as in Lexique).
"""

from __future__ import annotations

PARTS_OF_SPEECH = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
VERBAL = ("VERB", "AUX")
# Of a form that can be several, the first is meant (Lexique calls étaient a present, too). The
# imperative has no subject, so it is never meant.
TENSES = ("ind:imp", "cnd:pre", "ind:fut", "ind:pre", "ind:pas", "sub:pre", "sub:imp")
PARTICIPLES = ("par:pas", "par:pre")
