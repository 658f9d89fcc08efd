"""Compare the models of several runs, on one page."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Compare the models of several runs, on one page.",
    exports={"compare": "model_comparison:compare"},
    figures={"model_panels": "model_panels:model_panels"},
    commands={"compare": ("command", "results of runs", 20)},
)
