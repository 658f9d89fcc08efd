"""Mixed models of tables of results, and the power of a design."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Mixed models of tables of results, and the power of a design.",
    exports={"mixed_model": "mixed_models:mixed_model", "power": "power:power"},
)
