"""Corpora as data sets of the hub, tars of WebDataset, or cuts of Lhotse Shar."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Corpora as data sets of the hub, tars of WebDataset, or cuts of Lhotse Shar.",
    corpora={"formats:open_corpus": 10},
)
