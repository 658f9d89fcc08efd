"""Read the options of a command from a TOML file.

In: the command line and the options of its command. Out: further arguments, for the options that
the command line does not have. So the file needs no rules of its own: argparse checks both alike.
"""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Iterator, Sequence

from ...errors import InputError

_CONFIG = "--config"


def read_config_arguments(
    arguments: Sequence[str], actions: Iterable[argparse.Action], command: str
) -> list[str]:
    """Return the options of the `--config` file that the command line does not have.

    `actions` are all options of the command. InputError if the file cannot be read, or has a key
    that is none of them.
    """
    path = _find_config_path(arguments)
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read --config {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise InputError(f"--config {path} is not valid TOML: {error}") from None
    except RecursionError:
        raise InputError(f"--config {path} is not valid TOML: nested too deeply") from None
    options = {
        name.removeprefix("--"): action
        for action in actions
        for name in action.option_strings
        if name.startswith("--") and name not in (_CONFIG, "--help", "--help-all")
    }
    given_names = {argument.partition("=")[0] for argument in arguments}
    config_arguments: list[str] = []
    for key, value in values.items():
        name = key.replace("_", "-")
        if name not in options:
            nearest = difflib.get_close_matches(name, options, n=1)
            advice = f"did you mean {nearest[0]}?" if nearest else f"see {command} --help-all"
            raise InputError(f"--config {path}: {command} has no option {key!r}; {advice}")
        if given_names.isdisjoint(options[name].option_strings):
            config_arguments += _format_option(f"--{name}", options[name], value, path)
    return config_arguments


def _find_config_path(arguments: Sequence[str]) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == _CONFIG:
            return following
        if argument.startswith(f"{_CONFIG}="):
            return argument.partition("=")[2]
    return None


def _format_option(option: str, action: argparse.Action, value: object, path: str) -> Iterator[str]:
    """Write an option as it stands on a command line."""
    is_flag = action.nargs == 0
    items = value if isinstance(value, list) else [value]
    is_nested = any(isinstance(item, (dict, list)) for item in items)
    if is_flag != isinstance(value, bool) or is_nested:
        expected = "true or false" if is_flag else "a text, a number or a list of them"
        value_text = "a table or a list of lists" if is_nested else repr(value)[:80]
        raise InputError(f"--config {path}: {option[2:]} takes {expected}, found {value_text}")
    if is_flag:
        if value:
            yield option
        elif isinstance(action, argparse.BooleanOptionalAction):
            yield f"--no-{option[2:]}"
        return
    if action.nargs in ("+", "*"):
        yield option
        yield from map(str, items)
    else:
        for item in items:
            yield f"{option}={item}"
