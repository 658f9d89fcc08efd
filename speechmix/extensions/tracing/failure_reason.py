"""Say which part of a model raised an error."""

from __future__ import annotations

import traceback

from torch import nn

from ...adapters.loading.checkpoints import first_line


def describe_failure(error: Exception) -> str:
    """Return type and first line of an error, behind the class of the part that raised it.

    That is the innermost module that is not torch's own.

    Examples
    --------
    >>> class Mixer(nn.Linear):
    ...     pass
    >>> try:
    ...     _ = Mixer(2, 3)("no tensor")
    ... except TypeError as error:
    ...     print(describe_failure(error)[:23])
    Mixer raised TypeError:
    """
    names = [
        type(module).__name__
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if isinstance(module := frame.f_locals.get("self"), nn.Module)
        and not type(module).__module__.startswith("torch.")
    ]
    problem = f"{type(error).__name__}: {first_line(error)}"
    return f"{names[-1]} raised {problem}" if names else problem
