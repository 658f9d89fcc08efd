"""Extensions: capabilities in a folder of their own, which the core finds and does not name.

In: the entry points of the group `speechmix.extensions`, of this package and of any other that is
installed. Out: what extensions add: names of `speechmix` and `speechmix.plots`, commands, kinds of
results, sections of the page, measures. An extension imports from the core; the core never imports
from an extension. See docs/howto/new_extension.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import ExtensionError, InputError, SpeechmixError

GROUP = "speechmix.extensions"
_KEYS_ARE_REFERENCES = ("kinds", "sections", "measures", "corpora")  # others have them as values


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

    def __post_init__(self) -> None:
        check_declaration(self, Extension, str(self.package))

    @property
    def name(self) -> str:
        """Last part of the package's name."""
        return self.package.rpartition(".")[2]

    def load(self, reference: str, part: str = "", expected: Any = object) -> Any:
        """Import what a reference stands for.

        Parameters
        ----------
        reference : str
        part : str
            The field that has the reference, for the error.
        expected : type
            What it must be.

        Raises
        ------
        ExtensionError
            If it cannot be imported, or is something else.
        """
        module_name, _, name = reference.partition(":")
        cause: Exception | None = None
        try:
            module = import_module(f"{self.package}.{module_name}")
            value = getattr(module, name) if name else module
        except SpeechmixError:
            raise
        except Exception as error:  # somebody else's module raises what it likes
            cause, reason = error, f"cannot be loaded ({describe_error(error)})"
        else:
            if isinstance(value, expected):
                return value
            reason = f"is of type {type(value).__name__}, not {expected.__name__}"
        where = f"{part} of the extension {self.package}" if part else f"extension {self.package}"
        raise ExtensionError(
            f"{where}: {reference!r} {reason}; correct it, or uninstall the extension"
        ) from cause

    def read_text(self, path: str) -> str:
        """Return the text of a file in the extension's folder, without blanks around it."""
        return files(self.package).joinpath(path).read_text(encoding="utf-8").strip()


def check_declaration(value: Any, declared_by: type, name: str) -> None:
    """Raise `InputError` unless each field of what somebody declares has a value of its type.

    Parameters
    ----------
    value : object
    declared_by : type
        Dataclass whose fields are checked; of a derived class the fields of its own are not.
    name : str
        What the error calls the object.

    Examples
    --------
    >>> Extension("mine", "", kinds="module:KIND")
    Traceback (most recent call last):
    speechmix.errors.InputError: mine: kinds should be mapping of str to int, found 'module:KIND'
    """
    hints = get_type_hints(declared_by)
    for declared in fields(declared_by):
        field_value, hint = getattr(value, declared.name), hints[declared.name]
        if not _fits(field_value, hint):
            raise InputError(
                f"{name}: {declared.name} should be {_describe(hint)}, found {field_value!r:.200}"
            )


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        accepted = (int, float) if hint is float else hint
        return isinstance(value, accepted) and (hint is bool or not isinstance(value, bool))
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        hints = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return len(value) == len(hints) and all(map(_fits, value, hints))
    return isinstance(value, Mapping) and all(
        _fits(key, arguments[0]) and _fits(of_key, arguments[1]) for key, of_key in value.items()
    )


def _describe(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return str(hint.__name__)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple:
        if arguments[-1] is ...:
            return f"tuple of {_describe(arguments[0])}"
        return f"tuple ({', '.join(map(_describe, arguments))})"
    return f"mapping of {_describe(arguments[0])} to {_describe(arguments[1])}"


def describe_error(error: BaseException) -> str:
    """Return an error of somebody else's code in one line, with its type where that says more.

    Examples
    --------
    >>> describe_error(KeyError("db"))
    "KeyError: 'db'"
    """
    is_sentence = isinstance(error, (SpeechmixError, ImportError))
    return " ".join(f"{'' if is_sentence else f'{type(error).__name__}: '}{error}".split())


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
                f"the extension {point.name} ({point.value}) is left out: {describe_error(error)}",
                stacklevel=2,
            )
            continue
        if not isinstance(extension, Extension):
            warnings.warn(f"{point.value} is no Extension, and is left out", stacklevel=2)
            continue
        by_package[extension.package] = extension
    _refuse_duplicates(by_package.values())
    from . import _PUBLIC

    warn_of_core_names(by_package.values(), "exports", _PUBLIC)
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


def warn_of_core_names(
    all_extensions: Iterable[Extension], part: str, core_names: Iterable[str]
) -> None:
    """Warn of names in a part of extensions that the core has too, and uses."""
    for extension in all_extensions:
        for name in sorted({*getattr(extension, part)} & {*core_names}):
            warnings.warn(
                f"the extension {extension.package} adds {name!r} to {part}, but speechmix has a "
                f"{name!r} of its own, which is used: give the extension's another name",
                stacklevel=2,
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
            return extension.load(getattr(extension, part)[name], part)
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
    functions = load_all("hooks", Callable, name)
    return next((function for _, _, function in functions), None)


def load_all(
    part: str, expected: Any = object, name: str | None = None
) -> Iterator[tuple[Extension, str, Any]]:
    """Yield what a part of all extensions adds, by its name; with `name`, that alone.

    What cannot be loaded, or is not of the expected type, is left out with a warning.
    """
    for extension in extensions():
        entries = getattr(extension, part)
        for key in entries if name is None else {name} & {*entries}:
            reference = key if part in _KEYS_ARE_REFERENCES else entries[key]
            try:
                loaded = extension.load(reference, part, expected)
            except ExtensionError as error:
                warnings.warn(f"left out: {error}", stacklevel=3)
                continue
            yield extension, key, loaded


def load_with_places(part: str, expected: Any) -> Iterator[tuple[int, Any]]:
    """Yield the kinds, sections or corpora of all extensions, each with its place."""
    for extension, reference, loaded in load_all(part, expected):
        yield getattr(extension, part)[reference], loaded


def import_measures() -> None:
    """Import the modules of all extensions that register measures."""
    for _ in load_all("measures"):
        pass
