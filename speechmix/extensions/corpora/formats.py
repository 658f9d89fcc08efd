"""Which of the extension's formats a corpus has.

In: a path, a pattern of tars, or a hub id. Out: its rows; None if it is a manifest or a release of
Common Voice, which the core reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...inputs.clips.corpus_row import RejectedRow, Row
from ...inputs.clips.manifests import read_manifest_rows
from ...inputs.corpora.corpus_reading import find_releases, is_release
from ...inputs.corpora.corpus_source import CorpusSource
from . import hub_datasets, tar_corpora


def open_corpus(
    source: CorpusSource, *, sentences: bool, allow_outside: bool
) -> Iterator[Row | RejectedRow] | None:
    """Open the rows of tars, of Lhotse Shar, or of a data set; None for another corpus."""
    path = source.path
    if tar_corpora.is_tar_pattern(source) or (path.is_file() and tar_corpora.list_tars(source)):
        return tar_corpora.read_tars(source, sentences=sentences, allow_outside=allow_outside)
    if path.is_dir():
        return _open_folder(source, sentences=sentences, allow_outside=allow_outside)
    if source.is_hub_id:
        return hub_datasets.read_dataset(source, sentences=sentences, allow_outside=allow_outside)
    return None


def _open_folder(
    source: CorpusSource, *, sentences: bool, allow_outside: bool
) -> Iterator[Row | RejectedRow] | None:
    """Rows of a folder, in which the archive that a release was unpacked from may still lie."""
    path, tars = source.path, tar_corpora.list_tars(source)
    if tar_corpora.is_shar(path):
        source.refuse_options("config", "split", kind="a folder of Lhotse Shar")
        return tar_corpora.read_shar(
            path, sentences=sentences, audio=source.audio, text=source.text
        )
    if is_release(path):
        return None
    if any(tar.suffix == ".tar" for tar in tars):
        return tar_corpora.read_tars(source, sentences=sentences, allow_outside=allow_outside)
    if hub_datasets.is_dataset_folder(path):
        return hub_datasets.read_dataset(source, sentences=sentences, allow_outside=allow_outside)
    if table := hub_datasets.metadata_table(source):
        return read_manifest_rows(
            table,
            allow_outside=allow_outside,
            sentences=sentences,
            audio=source.audio,
            text=source.text,
        )
    if tars and not find_releases(path):
        return tar_corpora.read_tars(source, sentences=sentences, allow_outside=allow_outside)
    return None
