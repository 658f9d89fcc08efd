"""The errors a user meets. Every message says what was expected, what was found and what to do.

All of them derive from `SpeechmixError`, so ``except speechmix.SpeechmixError`` catches what this
package raises on purpose; in a long run such an error skips one clip and is recorded, the run goes
on.
"""

from __future__ import annotations

DISTRIBUTION = "speechmix-toolkit"  # on the package index, `speechmix` is another project


class SpeechmixError(Exception):
    """Root of the errors raised on purpose by speechmix."""


class InputError(SpeechmixError, ValueError):
    """A clip, word list, manifest or option that cannot be used as it is."""


class ModelError(SpeechmixError):
    """A model that is not supported, cannot be loaded, or failed its self-check."""


class AlignmentError(SpeechmixError):
    """Words could not be placed in the audio."""


class StorageError(SpeechmixError, OSError):
    """A folder that cannot be written to: full, read-only, no folder, or held by another
    process."""


class ExtensionError(SpeechmixError, ImportError):
    """An extension names something that is not there, or is not what the core expects."""


class MissingExtraError(SpeechmixError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs {package}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from where it was installed.

    Parameters
    ----------
    extra : str

    Examples
    --------
    >>> install_command("spacy").startswith("pip install ")
    True
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:  # a checkout on the path
        return f"pip install '.[{extra}]' in the checkout"
    if origin is None:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    source = json.loads(origin)
    url = str(source["url"])
    if "dir_info" in source:
        editable = "--editable " if source["dir_info"].get("editable") else ""
        return f"pip install {editable}'{url2pathname(urlsplit(url).path)}[{extra}]'"
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    return f"pip install '{DISTRIBUTION}[{extra}] @ {url}'"
