"""Measures that split a logit into what each source adds to it."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Measures that split a logit into what each source adds to it.",
    exports={"logit_contributions": "logit_contributions:logit_contributions"},
    measures=("logit_measures",),
)
