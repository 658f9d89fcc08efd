"""The delta engine: a change of a state carried through a layer, and its products with the
weights."""
