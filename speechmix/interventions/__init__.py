"""Take something away from an input or a model, or put it in, and read the decision again."""
