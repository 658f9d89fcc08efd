"""Model cards, and the gallery that compares them."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Model cards, and the gallery that compares them.",
    needs=("faithfulness",),
    commands={
        "card": ("command", "results of runs", 30),
        "gallery": ("command", "results of runs", 40),
    },
)
