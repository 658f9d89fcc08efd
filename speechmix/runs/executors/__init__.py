"""Who does the clips of a run, where one process does not: workers on this machine, or on a Ray
cluster."""
