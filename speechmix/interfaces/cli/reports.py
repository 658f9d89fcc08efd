"""`speechmix report` and `speechmix compare`: the page of a run, and of several runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import InputError
from .command_parser import Subparsers
from .model_options import add_model_option, create_loaders
from .score_options import add_group_option, add_stack_option

_REPORT_EXAMPLES = """examples:
  speechmix report runs/small --clip cv_fr_123 --published
  speechmix report runs/small --audio /data/clips --move-words --model openai/whisper-small"""
_COMPARE_EXAMPLES = """examples:
  speechmix compare runs/base runs/small runs/medium --out runs/sizes"""


def add_commands(commands: Subparsers) -> None:
    """Add the two commands to a parser's subcommands."""
    report = commands.add_parser(
        "report",
        help="write the page of a run: figures, statistics, clips to listen to",
        epilog=_REPORT_EXAMPLES,
    )
    report.set_defaults(command=_report)
    report.add_argument("run", metavar="RUN", help="folder of a run")
    report.add_argument("--out", metavar="FILE", help="file of the page (default: RUN/index.html)")
    report.add_argument("--title", help="title of the page (default: the last one, or the folder)")
    report.add_argument(
        "--clip",
        action="append",
        default=[],
        metavar="NAME",
        help="also show this clip of the run; may be repeated",
    )
    report.add_argument(
        "--audio", metavar="FOLDER", help="folder of the audio files, if they were moved"
    )
    add_group_option(report)
    _add_published(report)
    report.add_argument(
        "--move-words",
        action="store_true",
        help="score clips again with word boundaries moved by 20 ms, by --model and its twin",
    )
    add_model_option(report, required=False, note="; with --move-words")
    report.add_argument(
        "--clip-count",
        type=int,
        default=20,
        metavar="N",
        help="number of clips for --move-words (default: 20)",
    )
    report.add_argument("--device", help="cpu, cuda, ... for --move-words")

    compare = commands.add_parser(
        "compare", help="compare the models of several runs, on one page", epilog=_COMPARE_EXAMPLES
    )
    compare.set_defaults(command=_compare)
    compare.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    compare.add_argument(
        "--out", metavar="FOLDER", default="comparison", help="folder (default: comparison)"
    )
    compare.add_argument("--measure", action="append", help="only this measure; may be repeated")
    add_stack_option(compare)
    add_group_option(compare)
    _add_published(compare)


def _add_published(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--published",
        nargs="?",
        const="target",
        default=False,
        choices=("target", "deciding"),
        help="also draw the published figures: of all tokens of the target (default), or of the "
        "deciding one",
    )


def _report(options: argparse.Namespace) -> int:
    from ...files.whole_files import remove_leftovers
    from ...reporting.pages.run_page import report

    if bool(options.move_words) != bool(options.model):
        raise InputError("--move-words and --model belong together: give both")
    if options.move_words:
        from ...runs.boundary_shifts import score_moved_words
        from ...runs.results.open_run import open_run

        count = score_moved_words(
            open_run(options.run),
            create_loaders(options, options.model, [0]),
            most=options.clip_count,
            audio=options.audio,
            report=print,
        )
        print(f"word boundaries moved in {count} clips")
    with remove_leftovers(options.run):
        path = report(
            options.run,
            title=options.title or None,
            chosen_clips=options.clip,
            audio=options.audio,
            group=options.group,
            published=options.published,
            out=options.out or None,
        )
    print(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ...extensions.comparison.model_comparison import compare
    from ...files.whole_files import remove_leftovers
    from ...reporting.pages.table_format import format_contribution_table

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
