"""Put states of one clip into the pass of another (activation patching)."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Put states of one clip into the pass of another (activation patching).",
    exports={"patch": "patching:patch"},
)
