"""Parse the options of a command: a help text of one screen, options given once, a TOML file.

In: the options that a command adds. Out: parsed options. `--help` shows the common options and
`--help-all` the others; `--config FILE` reads the same names from a TOML file.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from .config_file import read_config_arguments

Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"
SCREEN_LINES = 30  # of a help text; a longer one shows the common options only
COMMON_OPTIONS = frozenset(
    """
    --model --clips --texts --corpus --sentence --text --cue --target --foil --language --measure
    --stack --fill --twins --out --workers --device --ablate --explain --published --label
    --position --perturbation --where --seconds --config --help
    """.split()
)
_COLUMNS = 100


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
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)
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
        paths = getattr(options, "paths", None)
        if paths:  # the short form of --clips
            has_config_clips = "--clips" in config_arguments
            options.clips = [*paths, *([] if has_config_clips else options.clips)]
        return options, unknown


def _is_common(action: argparse.Action) -> bool:
    is_named = action.option_strings and not action.required
    return not is_named or not COMMON_OPTIONS.isdisjoint(action.option_strings)


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, *_: object) -> None:
        parser._print_message(parser.format_help_all(), sys.stdout)
        parser.exit()


class _StoreOnce(argparse._StoreAction):
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
