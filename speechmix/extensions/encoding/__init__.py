"""What features of sounds and words explain of the states of each layer."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="What features of sounds and words explain of the states of each layer.",
    needs=("probing", "states"),
    exports={
        "unit_features": "unit_features:unit_features",
        "encode": "encoding:encode",
        "add_covariates": "unit_features:add_covariates",
    },
    figures={"encoding_figure": "encoding_figure:encoding_figure"},
)
