"""Hidden states of words, phones and frames, as tables."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Hidden states of words, phones and frames, as tables.",
    exports={
        "states": "unit_states:states",
        "unit_states": "unit_states:unit_states",
        "write_states": "unit_states:write_states",
    },
    commands={"states": ("command", "your own clips", 100)},
)
