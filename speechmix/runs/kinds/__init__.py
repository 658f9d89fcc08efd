"""Kinds of results: what a run computes of each clip and model, a file for each kind."""
