"""A folder of recordings with one manifest is given as it is."""

from __future__ import annotations

import shutil

import pytest

from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.inputs.corpora.corpus_reading import read_clips_or_corpus


def refuse(row, name, error):
    raise error


def test_a_folder_is_read_by_its_only_manifest(tmp_path):
    clip = bundled.clips()[0]
    shutil.copy(bundled.manifest_path("bundled:clips").parent / f"{clip.name}.flac", tmp_path)
    (tmp_path / "manifest.tsv").write_text(f"path\ttext\n{clip.name}.flac\tnotre maison\n")
    [found] = read_clips_or_corpus(tmp_path, on_error=refuse)
    assert (found.name, found.text) == (clip.name, "notre maison")
    (tmp_path / "manifest.csv").write_text("path,text\n")
    with pytest.raises(InputError, match="expected a Common Voice release"):
        read_clips_or_corpus(tmp_path, on_error=refuse)
