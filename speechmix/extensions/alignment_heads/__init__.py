"""Choose the attention heads that tell when words were said."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Choose the attention heads that tell when words were said.",
    exports={"alignment_heads": "alignment_heads:alignment_heads"},
    figures={"alignment_head_map": "alignment_heads:alignment_head_map"},
    commands={"heads": ("command", "evaluations of measures and models", 70)},
)
