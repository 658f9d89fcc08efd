"""Do the words that a measure ranks high count for what the model decides?"""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Do the words that a measure ranks high count for what the model decides?",
    needs=("explain", "logit_decompositions", "occlusion", "patching"),
    exports={
        "register_perturbation": "perturbations:register_perturbation",
        "faithfulness": "evaluate:faithfulness",
        "blank_out": "presets:blank_out",
        "deletion_curves": "presets:deletion_curves",
    },
    figures={
        "blank_out_figure": "text_faithfulness:blank_out_figure",
        "deletion_figure": "text_faithfulness:deletion_figure",
    },
    commands={
        "blank-out": ("faithfulness_command", "evaluations of measures and models", 20),
        "deletion": ("faithfulness_command", "evaluations of measures and models", 30),
        "faithfulness": ("faithfulness_command", "evaluations of measures and models", 10),
    },
    kinds={"kind:FAITHFULNESS_KIND": 120},
    sections={"section:FAITHFULNESS": 160},
)
