"""`speechmix report` and `speechmix compare` on the command line, each one call."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ...files.json_files import JsonObject
from .arguments import Subparsers

_EXAMPLES = """examples:
  speechmix report runs/small --clip cv_fr_123 --published
  speechmix report runs/small --audio /data/clips --move-words openai/whisper-small
  speechmix compare runs/base runs/small runs/medium --out runs/sizes
"""


def add_commands(commands: Subparsers) -> None:
    """Add the two commands to a parser's subcommands."""
    style: JsonObject = {
        "epilog": _EXAMPLES,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    report = commands.add_parser(
        "report", help="the page of a run: figures, statistics, clips to hear", **style
    )
    report.set_defaults(command=_report)
    report.add_argument("run", metavar="RUN", help="folder of a run")
    report.add_argument("--out", metavar="FILE", help="the page (default: RUN/index.html)")
    report.add_argument("--title", help="its title (default: that of before, or the folder's name)")
    report.add_argument(
        "--clip", action="append", default=[], help="also show this clip; may be repeated"
    )
    report.add_argument(
        "--audio", metavar="FOLDER", help="where the audio files are, if they were moved"
    )
    report.add_argument(
        "--group",
        metavar="COLUMN",
        help="column of clips.csv that says which clips belong together",
    )
    _add_published(report)
    report.add_argument(
        "--move-words",
        action="append",
        default=[],
        metavar="MODEL",
        help="score some clips again with word boundaries moved by 20 ms, by this model (hub id or "
        "folder) and its random twin",
    )
    report.add_argument(
        "--clips",
        type=int,
        default=20,
        metavar="N",
        help="how many clips for --move-words (default: 20)",
    )
    report.add_argument("--device", help="cpu, cuda, ... for --move-words")

    compare = commands.add_parser(
        "compare", help="models of several runs by depth, stack and measure", **style
    )
    compare.set_defaults(command=_compare)
    compare.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    compare.add_argument(
        "--out", metavar="FOLDER", default="comparison", help="for the page and its tables"
    )
    compare.add_argument("--measure", action="append", help="only this measure; may be repeated")
    compare.add_argument("--stack", action="append", help="only this stack; may be repeated")
    _add_published(compare)


def _add_published(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--published",
        nargs="?",
        const="target",
        default=False,
        choices=("target", "deciding"),
        help="draw the published figures, and one's own numbers beside: of all tokens of the "
        "target, as published (default), "
        "or of the deciding one",
    )


def _report(options: argparse.Namespace) -> int:
    from ...files.locks import without_leftovers
    from ...reporting.pages.run_page import report

    if options.move_words:
        from ...adapters.loading.load import load
        from ...runs.boundary_shifts import score_moved_words
        from ...runs.results.open_run import open_run

        trained = [partial(load, source, device=options.device) for source in options.move_words]
        loads = [
            *trained,
            *(partial(load_trained, init="random", seed=0) for load_trained in trained),
        ]
        run = open_run(options.run)
        count = score_moved_words(run, loads, most=options.clips, audio=options.audio, report=print)
        print(f"word boundaries moved in {count} clips")
    with without_leftovers(options.run):
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
    from ...files.locks import without_leftovers
    from ...reporting.pages.model_comparison import compare
    from ...reporting.pages.table_format import format_contribution_table

    comparison = compare(*options.runs, measures=options.measure, stacks=options.stack)
    print(format_contribution_table(comparison.headline).to_string(index=False))
    if len(comparison.pairs):
        print("\none model against another, trained - random:")
        print(format_contribution_table(comparison.pairs).to_string(index=False))
    with without_leftovers(options.out):
        print(f"\npage: {comparison.write(Path(options.out), published=options.published)}")
    return 0
