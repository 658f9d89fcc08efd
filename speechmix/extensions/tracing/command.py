"""`speechmix describe-architecture`: find the table of an architecture by tracing."""

from __future__ import annotations

import argparse

from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import split_revision

_EXAMPLES = """examples:
  speechmix describe-architecture microsoft/biogpt
  speechmix describe-architecture bundled:tiny-french-whisper
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "describe-architecture",
        help="find the layers, attention and norms of an architecture that has no table",
        description="Builds a small random model of the config and traces one forward pass. "
        "The weights are not read.",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_describe_architecture)
    command.add_argument(
        "model",
        metavar="MODEL_OR_CONFIG",
        help="hub id (NAME@REVISION), folder, config.json or bundled:NAME",
    )
    command.add_argument("--out", metavar="FILE", help="Python file for the table")


def _describe_architecture(options: argparse.Namespace) -> int:
    from ...files.whole_files import write_text
    from .infer_family import infer_family

    name, revision = split_revision(options.model)
    family = infer_family(name, revision=revision)
    print(family.text())
    if options.out and family.stacks:
        write_text(options.out, family.table_source())
        print(f"table: {options.out}")
    return 0 if family.stacks else 1
