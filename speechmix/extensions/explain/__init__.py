"""Why a model wrote a word: what it loses without each source."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Why a model wrote a word: what it loses without each source.",
    needs=("lens", "logit_decompositions", "occlusion"),
    exports={"explain": "explain:explain", "Explanation": "explanation:Explanation"},
    figures={
        "explained_text": "explanation_figures:explained_text",
        "explained_word": "explanation_figures:explained_word",
    },
    commands={"explain": ("command", "your own clips", 30)},
    kinds={"kind:EXPLANATIONS_KIND": 70},
    sections={"section:EXPLANATIONS": 20},
    page_assets={"why": ("templates/explanation.css", "templates/explanation.js")},
    measures=("removals",),
)
