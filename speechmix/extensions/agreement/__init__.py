"""Number agreement and assimilation: whole studies of texts and of sounds that change before others."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Number agreement and assimilation: whole studies of texts and of sounds that change before others.",
)
