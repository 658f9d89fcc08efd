"""Runs on many machines: a Ray cluster, or tasks of Slurm."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Runs on many machines: a Ray cluster, or tasks of Slurm.",
    engines={"ray": "engines:RAY", "slurm": "engines:SLURM"},
)
