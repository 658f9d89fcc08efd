"""torch and torchaudio come in pairs: what to say where the second does not fit the first, or is not there.

Two functions of torchaudio are used (forced alignment, edit distance); transformers imports it, where it is installed,
before any model. A torchaudio made for another torch cannot be imported at all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch

from ..errors import ModelError


def torchaudio_function(name: str, purpose: str) -> Callable:
    """Return a function of torchaudio.functional.

    Raises
    ------
    ModelError
        Without a torchaudio that can be imported.
    """
    try:
        return getattr(importlib.import_module("torchaudio.functional"), name)
    except ImportError as error:
        if getattr(error, "name", None) == "torchaudio":
            raise ModelError(f"{purpose} needs torchaudio, which is not installed: {_ADVICE}") from error
        raise ModelError(f"{purpose} needs torchaudio: {what_is_wrong() or error}") from error
    except Exception as error:
        raise ModelError(f"{purpose} needs torchaudio: {what_is_wrong() or error}") from error


def what_is_wrong() -> str | None:
    """Say why torchaudio cannot be imported and what to do; None if it can, or is not installed."""
    try:
        importlib.import_module("torchaudio")
    except ModuleNotFoundError as error:
        if error.name == "torchaudio":
            return None
        reason = error
    except Exception as error:  # a library that is not there, a symbol of another torch
        reason = error
    else:
        return None
    lines = str(reason).strip().splitlines() or [type(reason).__name__]
    return f"torchaudio is installed but cannot be imported ({lines[0][:200]}): {_ADVICE}"


_ADVICE = (
    f"torch {torch.__version__} and torchaudio have to be of one release and for one kind of machine. Install the pair as "
    "docs/start.md says, or do without torchaudio (pip uninstall torchaudio)"
)
