"""Two versions of one model: which words changed, and which layer changed them."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Two versions of one model: which words changed, and which layer changed them.",
    needs=("explain",),
    exports={"diff": "difference:diff", "ModelDifference": "difference:ModelDifference"},
    figures={"difference_panel": "difference_page:difference_panel"},
    commands={"diff": ("command", "your own clips", 55)},
)
