"""Similarity of states: between layers, models, checkpoints, and with external features or labels."""
