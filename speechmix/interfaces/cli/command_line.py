"""The command line: `speechmix COMMAND`; each command is one call of the library."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ...errors import SpeechmixError
from .arguments import CommandParser, check_options
from .command_groups import list_by_group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 nothing could be done, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        check_options(options)
        with _ended_by_sigterm():
            result: int = options.command(options)
            return result
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a table or page that cannot be written, a pipe that was closed
        print(f"speechmix: {error}: free some space, or write somewhere else", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command goes on where it was", file=sys.stderr)
        return 130


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM, which batch systems send before they take a machine back, end a command as
    Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _parser() -> argparse.ArgumentParser:
    """Return the parser with the commands of every file here that has `add_commands`."""
    from ... import __version__

    parser = CommandParser(
        prog="speechmix",
        description="Context mixing in speech Transformers: which words build which, layer by "
        "layer.",
    )
    parser.add_argument("--version", action="version", version=f"speechmix {__version__}")
    commands = parser.add_subparsers(prog="speechmix", required=True, metavar="COMMAND")

    for module in iter_modules([str(Path(__file__).parent)]):
        add_commands = getattr(import_module(f".{module.name}", __package__), "add_commands", None)
        if add_commands:
            add_commands(commands)
    list_by_group(parser, commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
