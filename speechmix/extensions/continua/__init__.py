"""Sounds between two others, and where a model changes its answer."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Sounds between two others, and where a model changes its answer.",
    exports={
        "continuum": "continua:continuum",
        "graded_changes": "continua:graded_changes",
        "response_curve": "response_curves:response_curve",
    },
    figures={"response_panel": "response_figure:response_panel"},
)
