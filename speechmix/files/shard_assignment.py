"""Shard: the part of the clips that one process works on.

In: "3/48", and the name of a clip. Out: whether the third of 48 processes does it. That is a matter
of the name alone, so every process knows it without asking another, whatever the order of the clips
and whatever else is in the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from ..errors import InputError


@dataclass(frozen=True)
class Shard:
    """One of `count` shards, counted from 1.

    Examples
    --------
    >>> shards = [Shard.parse(f"{index}/3") for index in (1, 2, 3)]
    >>> [sum(shard.holds(f"clip {i}") for i in range(300)) for shard in shards]
    [104, 98, 98]
    >>> Shard().holds("any")
    True
    >>> str(shards[1]), shards[1].label
    ('2/3', '2-of-3')
    """

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            last = max(self.count, 1)
            raise InputError(
                "expected a shard of the form 3/48, counted from 1 to the number of shards, found "
                f"{self}: the shards are "
                f"1/{last} to {last}/{last} (with SLURM: --array=1-{last})"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard as the command line takes it: "3/48".

        Raises
        ------
        InputError
            If it is none.
        """
        numbers = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if not numbers:
            raise InputError(f"expected a shard of the form 3/48 (the third of 48), found {text!r}")
        return cls(int(numbers[1]), int(numbers[2]))

    def holds(self, name: str) -> bool:
        """Return whether the shard processes the clip of this name."""
        return self.count == 1 or shard_number(name, self.count) == self.index

    @property
    def label(self) -> str:
        """Return the name of its files: "3-of-48"."""
        return f"{self.index}-of-{self.count}"

    @property
    def prefix(self) -> str:
        """Return the prefix of its file names: "3-of-48."; empty if there is one shard."""
        return "" if self.count == 1 else f"{self.label}."

    def is_anothers(self, file_name: str) -> bool:
        """Return whether a file belongs to another shard of the same run.

        Examples
        --------
        >>> Shard(1, 2).is_anothers("2-of-2.5d0c6a31.parquet"), Shard(1, 2).is_anothers("2-of-3.5d0c6a31.parquet")
        (True, False)
        """
        label = file_name.partition(".")[0]
        return self.count > 1 and label.endswith(f"-of-{self.count}") and label != self.label

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


WHOLE = Shard()  # all clips: what is not divided


def shard_number(name: str, count: int) -> int:
    """Return the shard (1 to `count`) that a clip of this name belongs to."""
    return int.from_bytes(blake2b(name.encode("utf-8"), digest_size=8).digest(), "big") % count + 1
