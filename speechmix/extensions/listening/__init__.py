"""Does an audio language model use the sound, or guess from the text?"""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Does an audio language model use the sound, or guess from the text?",
    needs=("estimate", "faithfulness", "occlusion", "patching"),
    exports={
        "answer_shares": "effects:answer_shares",
        "listening": "listening:listening",
    },
    figures={"listening_panel": "listening_page:listening_panel"},
    commands={"listening": ("command", "your own clips", 60)},
    kinds={
        "kind:LISTENING_KIND": 140,
        "kind:LISTENING_ROUTES_KIND": 150,
        "kind:LISTENING_SECONDS_KIND": 160,
    },
)
