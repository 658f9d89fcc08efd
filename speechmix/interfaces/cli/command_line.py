"""Run a command of `speechmix COMMAND`; each command is one call of the library.

List the commands of `speechmix --help` by what one wants to do, a line each.

In: the parser with all its commands. Out: the same parser, whose help lists the commands group by
group. A command that no group names is listed at the end.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from ...errors import ExtensionError, SpeechmixError
from ...extension import describe_error, extensions
from ...files.whole_files import write_advice
from .command_parser import CommandParser, HelpFormatter, check_options
from .stage_names import join_stage_name

# Group -> command of the core -> its place in the group; extensions say theirs.
COMMAND_GROUPS: dict[str, dict[str, int]] = {
    "your own clips": {"check": 10, "align": 15, "score": 20},
    "results of runs": {"report": 10},
    "the French study, from a corpus to a page": {
        "study": 10,
        "study mine": 20,
        "study align": 30,
        "study transcribe": 40,
        "study select": 50,
    },
    "evaluations of measures and models": {},
    "large runs and clusters": {"status": 20},
    "further commands": {},
}
_LAST_PLACE = 1000  # of a command that no group lists


def list_by_group(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[CommandParser]
) -> None:
    """Make a parser's help list its commands by group; call it when all are added."""
    help_texts = {action.dest: action.help or "" for action in commands._get_subactions()}
    commands.help = argparse.SUPPRESS
    parser.usage = "%(prog)s COMMAND ..."
    command_list = "\n\n".join(_format_groups(help_texts))
    parser.epilog = f"{command_list}\n\n`speechmix COMMAND --help` lists the options of a command."


def _format_groups(help_texts: Mapping[str, str]) -> Iterator[str]:
    groups = {title: dict(places) for title, places in COMMAND_GROUPS.items()}
    for extension in extensions():
        for name, (_, title, place) in extension.commands.items():
            groups.setdefault(title, {})[name] = place
    listed = {command for places in groups.values() for command in places}
    groups["further commands"] |= {name: _LAST_PLACE for name in help_texts if name not in listed}
    for title, places in groups.items():
        members = sorted(places, key=lambda name: places[name])
        lines = [f"  {name:<16} {help_texts[name]}" for name in members if name in help_texts]
        if lines:
            yield "\n".join([f"{title}:", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 success, 1 failure, 2 wrong usage.

    It is 141, as of a command that SIGPIPE ended, if what reads the output has ended: `| head`.
    """
    atexit.register(gc.freeze)  # or Python looks for garbage in all of torch once more, as it ends
    try:
        with plain_warnings(), _interrupt_on_sigterm():
            try:
                options = create_parser().parse_args(arguments)
                check_options(options)
                status: int = options.command(options)
                return status
            finally:
                sys.stdout.flush()
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a file that cannot be written, a pipe that was closed
        if isinstance(error, BrokenPipeError) and _drop_unread_output():
            return 141
        print(f"speechmix: {error}: {write_advice(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command continues from what is stored", file=sys.stderr)
        return 130


def _drop_unread_output() -> bool:
    """Say whether nobody reads standard output any more; what is still written to it is then lost."""
    try:
        print(flush=True)  # without a buffer, a flush alone does not try to write
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each Python warning once, as one line without a file name."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        line = " ".join(str(message).split())
        if line not in printed:
            printed.add(line)
            print(f"speechmix: warning: {line}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """End a command on SIGTERM as on Ctrl-C; batch systems send it before they stop a machine."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


class _MainParser(argparse.ArgumentParser):
    """Parse the command's name, which may have two words, then its options."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        arguments = sys.argv[1:] if args is None else args
        return super().parse_known_args(join_stage_name(arguments), namespace)


def create_parser() -> argparse.ArgumentParser:
    """Create the parser with the commands of every file here that has `add_commands`, and of extensions."""
    from ... import __version__

    parser = _MainParser(
        prog="speechmix",
        description="Measure context mixing in speech Transformers: which words contribute to "
        "which, layer by layer.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"speechmix {__version__}")
    commands = parser.add_subparsers(
        prog="speechmix", required=True, metavar="COMMAND", parser_class=CommandParser
    )
    for module in iter_modules([str(Path(__file__).parent)]):
        add_commands = getattr(import_module(f".{module.name}", __package__), "add_commands", None)
        if add_commands:
            add_commands(commands)
    for extension in extensions():
        for module_name in dict.fromkeys(module for module, _, _ in extension.commands.values()):
            try:
                extension.load(f"{module_name}:add_commands", "commands", Callable)(commands)
            except Exception as error:  # somebody else's module raises what it likes
                names_it = isinstance(error, ExtensionError)
                where = "" if names_it else f"commands of the extension {extension.package}: "
                warnings.warn(f"left out: {where}{describe_error(error)}", stacklevel=2)
    list_by_group(parser, commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
