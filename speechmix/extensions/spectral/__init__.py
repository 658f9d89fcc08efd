"""Which frequency band of which word a decision rests on."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Which frequency band of which word a decision rests on.",
    needs=("occlusion",),
    exports={"spectral_explain": "spectral_explain:spectral_explain"},
    figures={"spectral_figure": "spectral_figure:spectral_figure"},
    commands={"spectral-explain": ("command", "your own clips", 40)},
)
