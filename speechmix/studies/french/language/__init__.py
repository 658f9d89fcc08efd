"""What is French: written and spoken text, kinds of words, a parser, the lexicon."""
