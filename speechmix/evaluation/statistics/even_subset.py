"""Pick evenly spaced items from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Value = TypeVar("Value")


def choose_evenly(values: Sequence[Value], count: int) -> list[Value]:
    """Choose up to `count` of the values, as evenly as can be, always the first and the last.

    Examples
    --------
    >>> choose_evenly(range(24), 5)
    [0, 6, 12, 17, 23]
    """
    if len(values) <= count:
        return list(values)
    return [values[int(i + 0.5)] for i in np.linspace(0, len(values) - 1, count)]
