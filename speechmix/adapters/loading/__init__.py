"""Load a model from the hub, a folder or memory, trained or as an untrained twin."""
