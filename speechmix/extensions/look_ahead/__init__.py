"""How much of what comes later a word needs."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="How much of what comes later a word needs.",
    exports={"look_ahead": "look_ahead_curves:look_ahead"},
    figures={"look_ahead_figure": "look_ahead_curves:look_ahead_figure"},
    commands={"look-ahead": ("command", "your own clips", 80)},
    kinds={"kind:LOOK_AHEAD_KIND": 100},
)
