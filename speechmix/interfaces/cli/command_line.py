"""Run a command of `speechmix COMMAND`; each command is one call of the library."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ...errors import SpeechmixError
from ...extension import extensions
from ...files.locks import write_advice
from .command_groups import list_by_group
from .command_parser import CommandParser, HelpFormatter
from .option_checks import check_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 success, 1 failure, 2 wrong usage."""
    try:
        with plain_warnings(), _interrupt_on_sigterm():
            options = create_parser().parse_args(arguments)
            check_options(options)
            status: int = options.command(options)
            return status
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a file that cannot be written, a pipe that was closed
        print(f"speechmix: {error}: {write_advice(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command continues from here", file=sys.stderr)
        return 130


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


def create_parser() -> argparse.ArgumentParser:
    """Create the parser with the commands of every file here that has `add_commands`, and of extensions."""
    from ... import __version__

    parser = argparse.ArgumentParser(
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
            extension.load(f"{module_name}:add_commands")(commands)
    list_by_group(parser, commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
