"""`speechmix compare`: the page of several runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.reports import add_published_option
from ...interfaces.cli.score_options import add_group_option, add_stack_option

_EXAMPLES = """examples:
  speechmix compare runs/base runs/small runs/medium --out runs/sizes"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    compare = commands.add_parser(
        "compare", help="compare the models of several runs, on one page", epilog=_EXAMPLES
    )
    compare.set_defaults(command=_compare)
    compare.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    compare.add_argument(
        "--out", metavar="FOLDER", default="comparison", help="folder (default: comparison)"
    )
    compare.add_argument("--measure", action="append", help="only this measure; may be repeated")
    add_stack_option(compare)
    add_group_option(compare)
    add_published_option(compare)


def _compare(options: argparse.Namespace) -> int:
    from ...files.whole_files import remove_leftovers
    from ...reporting.pages.table_format import format_contribution_table
    from .model_comparison import compare

    comparison = compare(
        *options.runs, measures=options.measure, stacks=options.stack, group=options.group
    )
    print(format_contribution_table(comparison.headline).to_string(index=False))
    if len(comparison.pairs):
        print("\ndifferences between models, trained - random:")
        print(format_contribution_table(comparison.pairs).to_string(index=False))
    print(f"\ngroups: {comparison.grouping}")
    with remove_leftovers(options.out):
        print(f"\npage: {comparison.write(Path(options.out), published=options.published)}")
    return 0
