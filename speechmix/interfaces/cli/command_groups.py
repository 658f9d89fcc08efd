"""List the commands of `speechmix --help` by what one wants to do, a line each.

In: the parser with all its commands. Out: the same parser, whose help lists the commands group by
group. A command that no group names is listed at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from ...extension import extensions
from .command_parser import CommandParser

# Group -> command of the core -> its place in the group; extensions say theirs.
COMMAND_GROUPS: dict[str, dict[str, int]] = {
    "your own clips": {"check": 10, "score": 20, "export": 110},
    "results of runs": {"report": 10, "compare": 20},
    "the French study, from a corpus to a page": {
        "study": 10,
        "mine": 20,
        "align": 30,
        "transcribe": 40,
        "select": 50,
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
        lines = [f"  {name:<13} {help_texts[name]}" for name in members if name in help_texts]
        if lines:
            yield "\n".join([f"{title}:", *lines])
