"""The errors a user meets. Every message says what was expected, what was found and what to do.

All of them derive from `SpeechmixError`, so ``except speechmix.SpeechmixError`` catches what this
package raises on purpose; in a long run such an error skips one clip and is recorded, the run goes
on.
"""


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


class MissingExtraError(SpeechmixError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs {package}: pip install '.[{extra}]' in a checkout")
