"""Extensions: capabilities in a folder of their own, which the core finds and does not name.

In: the entry points of the group `speechmix.extensions`, of this package and of any other that is
installed. Out: what extensions add: names of `speechmix` and `speechmix.plots`, commands, kinds of
results, sections of the page, measures. An extension imports from the core; the core never imports
from an extension. See docs/howto/new_extension.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

from .errors import SpeechmixError

GROUP = "speechmix.extensions"


@dataclass(frozen=True)
class Extension:
    """What an extension adds to the core.

    A reference is written ``"module:name"``, the module relative to the extension's package, or
    ``"module"`` for the module itself. Nothing is imported before it is used.

    Parameters
    ----------
    package : str
        The extension's package: ``__name__`` where the extension is declared.
    summary : str
        One line for the list of extensions.
    needs : tuple of str
        Names of the extensions that this one imports from.
    exports, figures : mapping of str to str
        References by the name that they have in `speechmix`, and in `speechmix.plots`.
    commands : mapping of str to tuple
        Name of a command -> module with its `add_commands`, group in `speechmix --help`, place in
        this group.
    kinds, sections : mapping of str to int
        References to a `ResultKind`, and to a section of a run's page, with the place at which a
        run computes it, or the page shows it; the core's places are multiples of ten.
    measures : tuple of str
        Modules that register measures when they are imported.
    page_assets : mapping of str to tuple of str
        Kind of an item on pages -> file of its style, file of its script.
    hooks : mapping of str to str
        References by a name that the core asks for.
    checkpoint_readers : mapping of str to str
        Name of a format of checkpoints -> reference to its `CheckpointReader`.
    engines : mapping of str to str
        What `--engine` takes -> reference to its `Engine`.
    corpora : mapping of str to int
        References to functions that open a corpus (source, sentences=, allow_outside=) or return None
        for one that is not theirs, with the place at which they are asked, before the core.

    Examples
    --------
    >>> lens = next(e for e in extensions() if e.name == "lens")
    >>> lens.load(lens.exports["lens"]).__name__
    'lens'
    """

    package: str
    summary: str
    needs: tuple[str, ...] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    sections: Mapping[str, int] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    page_assets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    checkpoint_readers: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    corpora: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Last part of the package's name."""
        return self.package.rpartition(".")[2]

    def load(self, reference: str) -> Any:
        """Import what a reference stands for."""
        module_name, _, name = reference.partition(":")
        module = import_module(f"{self.package}.{module_name}")
        return getattr(module, name) if name else module

    def read_text(self, path: str) -> str:
        """Return the text of a file in the extension's folder, without blanks around it."""
        return files(self.package).joinpath(path).read_text(encoding="utf-8").strip()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all installed extensions, by name. One that cannot be imported is left out with a warning.

    Raises
    ------
    SpeechmixError
        If two extensions add something of one name.
    """
    by_package: dict[str, Extension] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            extension = point.load()
        except Exception as error:  # somebody else's package raises what it likes
            warnings.warn(
                f"the extension {point.name} ({point.value}) is left out: {error}", stacklevel=2
            )
            continue
        if not isinstance(extension, Extension):
            warnings.warn(f"{point.value} is no Extension, and is left out", stacklevel=2)
            continue
        by_package[extension.package] = extension
    _refuse_duplicates(by_package.values())
    return tuple(sorted(by_package.values(), key=lambda extension: extension.name))


def _refuse_duplicates(all_extensions: Iterable[Extension]) -> None:
    owners: dict[tuple[str, str], str] = {}
    for extension in all_extensions:
        for part in (
            "exports",
            "figures",
            "commands",
            "page_assets",
            "hooks",
            "checkpoint_readers",
            "engines",
        ):
            for name in getattr(extension, part):
                owner = owners.setdefault((part, name), extension.package)
                if owner != extension.package:
                    raise SpeechmixError(
                        f"two extensions add {name!r} to {part}: {owner} and {extension.package}; "
                        "uninstall one of them"
                    )


def find_export(name: str, part: str = "exports") -> Any:
    """Return a name that an extension adds to `speechmix` ("exports"), or to its figures.

    Raises
    ------
    AttributeError
        If no extension does.
    """
    for extension in extensions():
        if name in getattr(extension, part):
            return extension.load(getattr(extension, part)[name])
    advice = (
        ""
        if extensions()
        else "; no extension was found: this copy was installed before it had them, install it again"
    )
    module_name = "speechmix" if part == "exports" else "speechmix.plots"
    raise AttributeError(f"module {module_name!r} has no attribute {name!r}{advice}")


def exported_names(part: str = "exports") -> list[str]:
    """Return the names that extensions add to `speechmix`, or to its figures."""
    return sorted(name for extension in extensions() for name in getattr(extension, part))


def find_hook(name: str) -> Callable[..., Any] | None:
    """Return the function that an extension has for a question of the core; None if none has."""
    for extension in extensions():
        if name in extension.hooks:
            function: Callable[..., Any] = extension.load(extension.hooks[name])
            return function
    return None


def load_with_places(part: str) -> Iterator[tuple[int, Any]]:
    """Yield the kinds, sections or corpora of all extensions, each with its place."""
    for extension in extensions():
        for reference, place in getattr(extension, part).items():
            yield place, extension.load(reference)


def import_measures() -> None:
    """Import the modules of all extensions that register measures."""
    for extension in extensions():
        for module in extension.measures:
            extension.load(module)
