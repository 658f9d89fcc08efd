"""Model families: for each architecture a table of where its layers are, and the registry of
all."""
