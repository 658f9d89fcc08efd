"""Find the layers of an architecture that has no table."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Find the layers of an architecture that has no table.",
    exports={"infer_family": "infer_family:infer_family"},
    commands={"describe-architecture": ("command", "further commands", 10)},
    hooks={"find_unregistered_family": "traced_family:find_traced_family"},
)
