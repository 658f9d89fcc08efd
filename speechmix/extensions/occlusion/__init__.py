"""Remove words from the input: one at a time, and in all sets (Shapley values)."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Remove words from the input: one at a time, and in all sets (Shapley values).",
    exports={"ablate_input": "input_ablation:ablate_input", "shapley": "shapley:shapley"},
)
