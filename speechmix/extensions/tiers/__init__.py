"""Shares of a stored run as tiers for Praat and ELAN."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Shares of a stored run as tiers for Praat and ELAN.",
    commands={"export": ("command", "your own clips", 110)},
)
