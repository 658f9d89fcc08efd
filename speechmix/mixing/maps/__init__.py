"""A finished mixing map and what can be done with it: normalise, roll out, pool, compose, keep in a
file."""
