"""Bind a family's table to the modules of a loaded model, and check that it fits."""
