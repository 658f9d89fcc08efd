"""The capabilities that the core does not name, each in a folder of its own; see `speechmix.extension`."""
