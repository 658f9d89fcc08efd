"""Synthetic pairs of French sentences, and whether a model spells their number."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Synthetic pairs of French sentences, and whether a model spells their number.",
)
