"""Maps as output objects of Inseq, and its files as maps."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Maps as output objects of Inseq, and its files as maps.",
    exports={"to_inseq": "inseq_conversion:to_inseq"},
)
