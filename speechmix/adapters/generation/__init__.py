"""A model's inputs and the tokens it generates: prompts, prefixes, words of tokens."""
