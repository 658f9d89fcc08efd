"""One forward pass of an unmodified model, captured block by block."""
