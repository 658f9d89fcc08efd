"""`speechmix report`: the page of a run."""

from __future__ import annotations

import argparse

from ...errors import InputError
from .command_parser import Subparsers
from .model_options import add_model_option, create_loaders
from .score_options import add_group_option

_REPORT_EXAMPLES = """examples:
  speechmix report runs/small --clip cv_fr_123 --published
  speechmix report runs/small --audio /data/clips --move-words --model openai/whisper-small"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
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
    add_published_option(report)
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


def add_published_option(command: argparse.ArgumentParser) -> None:
    """Add `--published`, which draws the published figures beside."""
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
