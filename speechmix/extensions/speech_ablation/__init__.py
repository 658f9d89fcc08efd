"""Remove the cue from the sound and from the text, as published."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Remove the cue from the sound and from the text, as published.",
    exports={"speech_ablation": "speech_ablations:speech_ablation"},
    commands={"ablate": ("ablate_command", "your own clips", 70)},
    kinds={"kind:SPEECH_ABLATION_KIND": 80},
    sections={"section:SPEECH_ABLATION": 140},
)
