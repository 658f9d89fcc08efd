"""Parse the options of a command: a help text of one screen, options given once, a TOML file.

In: the options that a command adds. Out: parsed options. `--help` shows the common options and
`--help-all` the others; `--config FILE` reads the same names from a TOML file.

Read the options of a command from a TOML file.

In: the command line and the options of its command. Out: further arguments, for the options that
the command line does not have. So the file needs no rules of its own: argparse checks both alike.

Check parsed options before anything large is imported or computed.

In: parsed options. Out: an error for an output on another machine, and for a path that does not
exist. No model, torch or table is needed for that.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from ...errors import InputError
from ...files.json_files import JsonObject

_CONFIG = "--config"
# Of pages, tables, pictures and word times.
_OUTPUT_SUFFIXES = frozenset(
    ".html .csv .tsv .json .parquet .png .svg .pdf .txt .srt .vtt .textgrid .eaf".split()
)


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
            if f"--{name}" in _REPLACEMENTS:
                advice = f"write {_REPLACEMENTS[f'--{name}']}"
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


Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"
SCREEN_LINES = 30  # of a help text; a longer one shows the common options only
COMMON_OPTIONS = frozenset(
    """
    --model --clips --texts --corpus --sentence --text --cue --target --foil --language --measure
    --stack --fill --twins --out --format --workers --device --ablate --explain --published --label
    --position --perturbation --where --seconds --config --help
    """.split()
)
_COLUMNS = 100

# Former options that are written in another way today.
_REPLACEMENTS = {
    "--distance": "--measure value_zeroing:distance=DISTANCE",
    "--product-dtype": "--measure value_zeroing:product_dtype=DTYPE",
    "--engine": "--inference-engine ENGINE for ctranslate2, whisper.cpp or onnxruntime",
    "--align": "--aligner MODEL or METHOD:MODEL",
    "--revision": "--model NAME@REVISION",
    "--address": "--engine ray:ADDRESS",
    "--task": "--prefix task=TASK",
    "--prefix-language": "--prefix language=LANGUAGE",
    "--timestamps": "--prefix timestamps=true",
    "--translation": "it as a column of a manifest",
}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Format help for at most 100 columns; keep the lines of descriptions and examples."""

    def __init__(self, prog: str):
        columns = min(shutil.get_terminal_size().columns, _COLUMNS)
        super().__init__(prog, max_help_position=28, width=columns)


class CommandParser(argparse.ArgumentParser):
    """Parse the options of one command; an option with one value must not be given twice."""

    def __init__(self, **options: Any):
        self.parsed_values: dict[str, object] = {}  # of options with one value, by destination
        super().__init__(**{"formatter_class": HelpFormatter, "allow_abbrev": False, **options})
        self.register("action", None, StoreOnce)
        self.register("action", "store", StoreOnce)
        self.add_argument(
            "--config", metavar="FILE", help="TOML file with options; the command line wins"
        )
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def format_help(self) -> str:
        """Return the help of the common options, or of all options if they fit on a screen."""
        full_help = self.format_help_all()
        if len(full_help.splitlines()) <= SCREEN_LINES:
            return full_help
        listed = [action for action in self._actions if action.help is not argparse.SUPPRESS]
        common = [action for action in listed if _is_common(action)]
        formatter = self._get_formatter()
        names = [
            f" {action.metavar}{' ...' if action.nargs else ''}"
            for action in self._actions
            if not action.option_strings
        ]
        formatter.add_usage(f"%(prog)s{''.join(names)} [options]", (), ())
        formatter.add_text(self.description)
        formatter.start_section("common options")
        formatter.add_arguments(common)
        formatter.end_section()
        formatter.add_text(self.epilog)
        hidden_count = len(listed) - len(common)
        return f"{formatter.format_help()}\n{hidden_count} more options: {self.prog} --help-all\n"

    def format_help_all(self) -> str:
        """Return the help of all options."""
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line instead of the usage, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}. Try `{self.prog} --help`\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the command line, then the options of its `--config` file.

        InputError if the file is missing, or has a key that is no option of the command.
        """
        self.parsed_values.clear()
        arguments = list(sys.argv[1:] if args is None else args)
        config_arguments = read_config_arguments(arguments, self._actions, self.prog)
        end = arguments.index("--") if "--" in arguments else len(arguments)
        arguments[end:end] = config_arguments
        options, unknown = super().parse_known_args(arguments, namespace)
        for name in (argument.partition("=")[0] for argument in unknown):
            if name in _REPLACEMENTS:
                self.error(f"{name} is no option any more: write {_REPLACEMENTS[name]}")
        self._check_output_folder(options)
        paths = getattr(options, "paths", None)
        if paths:  # the short form of --clips
            has_config_clips = "--clips" in config_arguments
            options.clips = [*paths, *([] if has_config_clips else options.clips)]
        return options, unknown

    def _check_output_folder(self, options: argparse.Namespace) -> None:
        """Raise an InputError where the name of a file is given for a folder."""
        for action in self._actions:
            path = getattr(options, "out", None) if action.dest == "out" else None
            if not isinstance(path, str) or action.metavar != "FOLDER" or os.path.isdir(path):
                continue
            stem, suffix = os.path.splitext(path)
            if suffix.lower() in _OUTPUT_SUFFIXES:
                raise InputError(
                    f"--out {path}: expected a folder, in which files get names of their own; "
                    f"write --out {stem}"
                )


def _is_common(action: argparse.Action) -> bool:
    is_named = action.option_strings and not action.required
    return not is_named or not COMMON_OPTIONS.isdisjoint(action.option_strings)


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, *_: object) -> None:
        parser._print_message(parser.format_help_all(), sys.stdout)
        parser.exit()


class StoreOnce(argparse._StoreAction):
    """Store an option's value; an option given twice is an error."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        if option_string is not None:
            if self.dest in parser.parsed_values:
                first_value = parser.parsed_values[self.dest]
                hint = "; write a cue of several words as one text, 'le club'"
                raise argparse.ArgumentError(
                    self,
                    f"given twice, {first_value!r} and {values!r}: give it once"
                    f"{hint if self.dest == 'cue' else ''}",
                )
            parser.parsed_values[self.dest] = values
        super().__call__(parser, namespace, values, option_string)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")  # s3://bucket; a Windows drive has one letter
_FILE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".wav", ".flac", ".mp3", ".ogg", ".opus")


def check_options(options: argparse.Namespace) -> None:
    """Raise InputError for outputs that are no local path, and for inputs that do not exist."""
    for path in _list_texts(options, "out"):
        if _URL.match(path):
            raise InputError(
                f"--out {path}: expected a folder or file on this machine; copy the results "
                "afterwards"
            )
    for path in (*_list_texts(options, "clips"), *_list_texts(options, "corpus")):
        if "::" not in path and path.lower().endswith(_FILE_SUFFIXES) and not os.path.exists(path):
            raise InputError(f"no such file: {path}. Paths are relative to {os.getcwd()}")
    for name in ("words", "texts"):
        for path in _list_texts(options, name):
            if not os.path.exists(path):
                raise InputError(
                    f"no such file: --{name} {path}. Paths are relative to {os.getcwd()}"
                )
    for path in (*_list_texts(options, "run"), *_list_texts(options, "runs")):
        if not os.path.exists(path):
            raise InputError(
                f"no such folder: {path}. Expected the folder of a run, as `speechmix score` makes it"
            )
    for name in ("model", "aligner"):
        for path in _list_texts(options, name):
            if path.startswith((".", "/", "~")) and not os.path.exists(os.path.expanduser(path)):
                raise InputError(
                    f"no such folder: {path!r}. Expected a hub id, bundled:NAME, or a folder with "
                    "config.json"
                )


def _list_texts(options: argparse.Namespace, name: str) -> Iterator[str]:
    """List the values of an option that are texts; an option may hold one, several or none."""
    value = getattr(options, name, None)
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return (text for text in values if isinstance(text, str) and text)


def select_arguments(function: Callable[..., object], options: argparse.Namespace) -> JsonObject:
    """Return the parsed options that are named like one of a function's arguments.

    Examples
    --------
    >>> select_arguments(lambda seed, out: None, argparse.Namespace(seed=1, verbose=True))
    {'seed': 1}
    """
    names = inspect.signature(function).parameters
    return {name: value for name, value in vars(options).items() if name in names}
