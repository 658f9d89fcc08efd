"""Find the table of an unknown architecture by tracing one forward pass of a small random model."""
