"""List the commands of `speechmix --help` by what one wants to do, a line each.

In: the parser with all its commands. Out: the same parser, whose help lists the commands group by
group. A command that no group names is listed at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from .command_parser import CommandParser

COMMAND_GROUPS = {
    "your own clips": (
        "check",
        "score",
        "explain",
        "spectral-explain",
        "ground",
        "listening",
        "ablate",
        "look-ahead",
        "serve",
        "states",
        "export",
    ),
    "results of runs": ("report", "compare", "card", "gallery"),
    "the French study, from a corpus to a page": ("study", "mine", "align", "transcribe", "select"),
    "evaluations of measures and models": (
        "faithfulness",
        "blank-out",
        "deletion",
        "probe",
        "trajectory",
        "calibrate",
        "heads",
    ),
    "large runs and clusters": ("estimate", "status"),
}


def list_by_group(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[CommandParser]
) -> None:
    """Make a parser's help list its commands by group; call it when all are added.

    Parameters
    ----------
    parser : ArgumentParser
    commands : result of its `add_subparsers`
    """
    help_texts = {action.dest: action.help or "" for action in commands._get_subactions()}
    commands.help = argparse.SUPPRESS
    parser.usage = "%(prog)s COMMAND ..."
    command_list = "\n\n".join(_format_groups(help_texts))
    parser.epilog = f"{command_list}\n\n`speechmix COMMAND --help` lists the options of a command."


def _format_groups(help_texts: Mapping[str, str]) -> Iterator[str]:
    named = {command for members in COMMAND_GROUPS.values() for command in members}
    others = tuple(command for command in help_texts if command not in named)
    for title, members in {**COMMAND_GROUPS, "further commands": others}.items():
        lines = [f"  {name:<13} {help_texts[name]}" for name in members if name in help_texts]
        if lines:
            yield "\n".join([f"{title}:", *lines])
