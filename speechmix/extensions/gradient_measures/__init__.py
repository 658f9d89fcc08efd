"""Measures that differentiate: gradients, integrated gradients, DeepLift, HTA, gradient times attention."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Measures that differentiate: gradients, integrated gradients, DeepLift, HTA, gradient times attention.",
    measures=("gradient_functions",),
)
