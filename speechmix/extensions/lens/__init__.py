"""What a model would have written from each of its layers."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="What a model would have written from each of its layers.",
    exports={"lens": "lens:lens", "lens_curves": "lens_curves:lens_curves"},
    figures={
        "lens_curve_panel": "lens_curves:lens_curve_panel",
        "lens_panel": "lens_curves:lens_panel",
    },
    kinds={"kind:LENS_KIND": 110},
)
