"""Damage a file as a broken disk, a cut download or an attacker would."""

from __future__ import annotations

import numpy as np

_EXTREMES = [number.to_bytes(4, "little") for number in (0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1)]


def damage(data: bytes, rng: np.random.Generator, number: int, *, is_list_at_end: bool) -> bytes:
    """Return a file cut, with changed bytes, with extreme numbers, or with bytes left out or doubled.

    Most places are where headers are: near the beginning, or near the end of an archive.
    """
    changed = bytearray(data)
    if number % 4 == 0:
        changed = changed[: rng.integers(len(data))]
    for _ in range(1 + number % 3):
        reach = min(len(changed), (200, 4000, len(changed))[number % 3])
        place = int(rng.integers(max(1, reach)))
        if is_list_at_end and number % 2:
            place = max(0, len(changed) - 1 - place)
        kind = number // 3 % 4
        if kind == 0:
            changed[place : place + 1] = bytes(rng.integers(256, size=1, dtype=np.uint8))
        elif kind == 1:
            changed[place : place + 4] = _EXTREMES[rng.integers(len(_EXTREMES))]
        elif kind == 2:
            del changed[place : place + int(rng.integers(1, 9))]
        else:
            changed[place:place] = changed[place : place + int(rng.integers(1, 9))]
    return bytes(changed)
