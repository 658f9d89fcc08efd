"""Words and spans: which units of a map a word covers, and which words are meant."""
