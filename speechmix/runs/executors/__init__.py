"""Who does the clips of a run, where one process does not: workers on this machine, tasks of Slurm, or
workers on a Ray cluster."""
