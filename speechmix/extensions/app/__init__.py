"""The app in the browser (`speechmix serve`): one clip at a time, measured while you look."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="The app in the browser (`speechmix serve`): one clip at a time, measured while you look.",
    needs=("estimate", "explain"),
    commands={"serve": ("command", "your own clips", 90)},
)
