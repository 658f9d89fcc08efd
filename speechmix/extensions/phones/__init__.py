"""What the states of phones are made of."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="What the states of phones are made of.",
    exports={"phone_sources": "phone_sources:phone_sources"},
    figures={"phone_sources_figure": "phone_sources_figure:phone_sources_figure"},
)
