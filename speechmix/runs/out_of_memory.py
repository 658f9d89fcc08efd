"""Turn out-of-memory errors into one error of a single clip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import SpeechmixError


class OutOfMemory(SpeechmixError):
    """One clip for which there was not enough memory."""


@contextmanager
def memory_errors_named() -> Iterator[None]:
    """Turn what Python, numpy and torch raise where memory runs out into `OutOfMemory`; what was
    taken is given back."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = f"not enough memory: {str(error).strip().splitlines()[0][:200] if str(error).strip() else 'none left'}"
    else:
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise OutOfMemory(
        f"{reason}. Cut the clip (Clip.cut, --cut), ask for the target's rows alone, or use a "
        "larger machine"
    )


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    words = (
        "can't allocate memory",
        "not enough memory",
        "out of memory",
        "Cannot allocate memory",
    )
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        phrase in str(error) for phrase in words
    )
