"""Checkpoints of other engines than transformers (CTranslate2, whisper.cpp, ...), which extensions read.

In: a path. Out: the checkpoint, opened by the first reader that recognises it by its content, or
None. A reader is named in `Extension.checkpoint_readers`. What it returns has a config of transformers
and loads an unmodified model of transformers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...errors import ModelError
from ...extension import load_all
from ..transformers_types import Config, FeatureExtractor, Tokenizer


@dataclass(frozen=True)
class CheckpointOrigin:
    """The file of another engine that a model was converted from.

    `format_name` names layout and number types ("ggml, q5_0"); `path` is the file with the weights,
    `sha256` its hash. `remarks` say what the file lacks, and where it was taken from instead.
    """

    format_name: str
    path: str
    sha256: str
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.format_name}, sha256 {self.sha256[:12]}"


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A checkpoint of another engine, opened: headers are read and checked, weights are not.

    Parameters
    ----------
    path : Path
        The file with the weights; of several the first.
    format_name : str
    config : transformers.PretrainedConfig
    model_class : type
        Class of transformers, which `config` fits.
    load_module : callable
        Takes a dtype; returns the model with its weights and generation options. A ModelError for
        weights that are damaged, missing or of other shapes.
    load_tokenizer, load_extractor : callable
        Return the part, or None.
    remarks : tuple of str
        What the file lacks.
    """

    path: Path
    format_name: str
    config: Config
    model_class: Any
    load_module: Callable[[torch.dtype], torch.nn.Module]
    load_tokenizer: Callable[[], Tokenizer] = lambda: None
    load_extractor: Callable[[], FeatureExtractor] = lambda: None
    remarks: tuple[str, ...] = ()

    def origin(self) -> CheckpointOrigin:
        """Hash the file."""
        with self.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return CheckpointOrigin(self.format_name, self.path.name, sha256, self.remarks)


@dataclass(frozen=True)
class CheckpointReader:
    """How a format is recognised, by a few bytes of a file or names in a folder, and opened.

    `open` raises a ModelError, one clear line, for a damaged file.
    """

    is_recognised: Callable[[Path], bool]
    open: Callable[[Path], ForeignCheckpoint]


def find_checkpoint_reader(source: str | Path) -> CheckpointReader | None:
    """Return the reader that recognises a file or folder; None if none does."""
    path = Path(source)
    try:
        if not path.exists():
            return None
        for *_, reader in load_all("checkpoint_readers", CheckpointReader):
            if reader.is_recognised(path):
                recognised: CheckpointReader = reader
                return recognised
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot look at {str(source)[:200]!r}: {error}") from error
    return None


def open_checkpoint(source: str | Path) -> ForeignCheckpoint | None:
    """Open a checkpoint of another engine; None for one of transformers, and for a hub id."""
    reader = find_checkpoint_reader(source)
    return None if reader is None else reader.open(Path(source))
