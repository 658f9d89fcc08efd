"""What can be read off a model's states, layer by layer."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="What can be read off a model's states, layer by layer.",
    needs=("encoding", "states"),
    exports={"probe": "probe:probe"},
    figures={
        "probe_and_mixing": "probe_curves:probe_and_mixing",
        "probe_figure": "probe_curves:probe_figure",
    },
    commands={"probe": ("command", "evaluations of measures and models", 40)},
    kinds={"kind:STATES_KIND": 60},
    sections={"section:PROBING": 150},
)
