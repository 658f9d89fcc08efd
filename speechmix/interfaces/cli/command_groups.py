"""`speechmix --help`: the commands by what one wants to do, a line each.

In: the parser with all its commands. Out: the same, whose help lists them group by group. A command
that no group names is listed at the end, and a name without a command is passed over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from .arguments import CommandParser

GROUPS = {
    "your own clips": ("check", "score", "explain", "ablate", "serve", "export"),
    "what a run says": ("report", "compare", "card", "gallery"),
    "the French study, from a corpus to the page": (
        "study",
        "mine",
        "align",
        "transcribe",
        "select",
    ),
    "evaluations of measures and models": ("faithfulness", "blank-out", "deletion", "probe"),
    "large runs and clusters": ("estimate", "status"),
}
_ELSE = "further commands"


def list_by_group(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[CommandParser]
) -> None:
    """Have a parser's help list its commands by group; to be called when all are added.

    Parameters
    ----------
    parser : ArgumentParser
    commands : what its `add_subparsers` gave
    """
    lines = {action.dest: action.help or "" for action in commands._get_subactions()}
    commands.help = argparse.SUPPRESS
    parser.usage = "%(prog)s COMMAND ..."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    listed = "\n\n".join(_listed(lines))
    parser.epilog = f"{listed}\n\n`speechmix COMMAND --help` says what a command takes."


def _listed(lines: Mapping[str, str]) -> Iterator[str]:
    named = {command for members in GROUPS.values() for command in members}
    groups = {**GROUPS, _ELSE: tuple(command for command in lines if command not in named)}
    for title, members in groups.items():
        there = [f"  {command:<13} {lines[command]}" for command in members if command in lines]
        if there:
            yield "\n".join([f"{title}:", *there])
