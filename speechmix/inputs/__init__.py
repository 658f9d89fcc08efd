"""Clips, words, sentences and corpora: what users bring, checked when it is read."""
