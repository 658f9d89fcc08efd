"""Score the rows of a Hugging Face data set, by its own map()."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Score the rows of a Hugging Face data set, by its own map().",
    exports={"scorer": "dataset_scorer:scorer"},
)
