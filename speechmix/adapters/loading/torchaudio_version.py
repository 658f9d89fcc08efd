"""Check that torchaudio is installed and fits the version of torch.

Two functions of torchaudio are used (forced alignment, edit distance); transformers imports it,
where it is installed, before any model. A torchaudio made for another torch cannot be imported at
all.
"""

from __future__ import annotations

import importlib

import torch

from ...errors import ModelError
from ..transformers_types import TorchFunction


def torchaudio_function(name: str, purpose: str) -> TorchFunction:
    """Return a function of torchaudio.functional; a ModelError if torchaudio cannot be imported."""
    try:
        importlib.import_module("torchaudio")
        result: TorchFunction = getattr(importlib.import_module("torchaudio.functional"), name)
        return result
    except Exception as error:
        is_missing = getattr(error, "name", None) == "torchaudio"
        raise ModelError(
            f"{purpose} needs torchaudio, which is not installed: {_PAIR_ADVICE} as docs/start.md says"
            if is_missing
            else f"{purpose} needs torchaudio: {torchaudio_problem() or error}"
        ) from error


def torchaudio_problem() -> str | None:
    """Say why torchaudio cannot be imported and what to do; None if it can, or is not installed."""
    try:
        importlib.import_module("torchaudio")
    except (
        Exception
    ) as error:  # not installed; or a library that is not there, a symbol of another torch
        if isinstance(error, ModuleNotFoundError) and error.name == "torchaudio":
            return None
        lines = str(error).strip().splitlines() or [type(error).__name__]
    else:
        return None
    return (
        f"torchaudio is installed but cannot be imported ({lines[0][:200]}): {_TORCHAUDIO_ADVICE}"
    )


_PAIR_ADVICE = (
    f"torch {torch.__version__} and torchaudio have to be of one release and for one kind of "
    "machine. Install the pair"
)
_TORCHAUDIO_ADVICE = (
    f"{_PAIR_ADVICE} as docs/start.md says, or do without torchaudio (pip uninstall torchaudio)"
)
