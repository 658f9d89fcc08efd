"""What a run costs before it starts: parameters, memory, time, clips that are needed."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="What a run costs before it starts: parameters, memory, time, clips that are needed.",
    needs=("listening",),
    exports={"estimate": "estimate:estimate", "groups_needed": "estimate:groups_needed"},
    commands={"estimate": ("command", "large runs and clusters", 10)},
    hooks={"announce_duration": "command:announce_duration"},
)
