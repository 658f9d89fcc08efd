"""What a model needs: something is taken away from an input or a model, or put in, and the decision
is read at the output."""
