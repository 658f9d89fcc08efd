"""How similar the states of two models or layers are."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="How similar the states of two models or layers are.",
    needs=("encoding", "states"),
    exports={"similarity": "similarity:similarity"},
    figures={
        "similarity_figure": "similarity_figure:similarity_figure",
        "similarity_panel": "similarity_figure:similarity_panel",
    },
)
