"""Models with hand-set weights, whose true edges are known."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Models with hand-set weights, whose true edges are known.",
    needs=("logit_decompositions", "patching"),
    exports={"planted": "interface"},
)
