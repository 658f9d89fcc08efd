"""Words of a transcript that were not in the sound, and how far words can be trusted."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Words of a transcript that were not in the sound, and how far words can be trusted.",
    needs=("explain",),
    exports={
        "ground": "ground:ground",
        "calibrate": "calibrate:calibrate",
        "try_fixes": "fixes:try_fixes",
    },
    figures={"reliability_diagram": "calibration:reliability_diagram"},
    commands={
        "transcribe": ("transcribe_command", "your own clips", 16),
        "ground": ("command", "your own clips", 50),
        "calibrate": ("command", "evaluations of measures and models", 60),
    },
    kinds={"kind:GROUNDING_KIND": 130},
)
