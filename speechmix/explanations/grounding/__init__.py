"""Grounding: whether each word that a recogniser wrote was in the sound."""
