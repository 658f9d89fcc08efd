"""`speechmix look-ahead`: how many milliseconds of future a word uses, and what streaming costs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_alignment_options,
    add_clips_option,
    collect_aligned_clips,
    collect_clips,
    is_run,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    load_model,
    select_only_model,
)
from ...interfaces.cli.run_results import compute_kind_in_run
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_group_option,
    refuse_executor_options,
)

_EXAMPLES = """examples:
  speechmix look-ahead clips.tsv --model facebook/wav2vec2-base-960h --out look_ahead
  speechmix look-ahead clips.tsv --model FOLDER --chunk 320 --chunk 640 --left 1280
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "look-ahead",
        help="how much future (right context) a word uses; streaming chunks compared",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_look_ahead)
    add_clips_option(command)
    add_alignment_options(command)
    add_model_option(command)
    command.add_argument(
        "--delay",
        type=float,
        action="append",
        metavar="MS",
        help="ms after the end of the word; repeatable",
    )
    command.add_argument(
        "--window",
        type=_parse_window,
        action="append",
        metavar="N",
        help="remove attention in N consecutive layers, or all; repeatable (default: all and 1)",
    )
    command.add_argument(
        "--all-words", action="store_true", help="measure every word, not only the target of a clip"
    )
    command.add_argument(
        "--contrast", action="store_true", help="score the target against its foil"
    )
    command.add_argument(
        "--chunk",
        type=float,
        action="append",
        metavar="MS",
        help="also compare full attention with chunks of this length; repeatable",
    )
    add_group_option(command)
    command.add_argument(
        "--out", metavar="FOLDER", help="folder for tables, JSON and figure; or that of a run"
    )
    add_executor_options(command.add_argument_group("shards and processes, with --out RUN"))
    add_loading_options(command)


def _parse_window(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _look_ahead(options: argparse.Namespace) -> int:
    from .kind import LOOK_AHEAD_KIND
    from .look_ahead import DELAYS_MS
    from .look_ahead_curves import look_ahead

    settings: dict[str, Any] = {
        "delays_ms": options.delay or DELAYS_MS,
        "windows": options.window or ("all", 1),
        "chunks_ms": options.chunk or (),
        "left_ms": None,
        "score": "contrast" if options.contrast else "log_probability",
    }
    skipped: SkippedItems = []
    if options.out and is_run(options.out):
        clips = collect_clips(options, skipped)
        return compute_kind_in_run(options, clips, LOOK_AHEAD_KIND.name, settings, skipped)
    refuse_executor_options(options, "give the folder of a run as --out")
    result = look_ahead(
        load_model(options, select_only_model(options)),
        collect_aligned_clips(options, skipped),
        words="all" if options.all_words else "target",
        group=options.group,
        progress=sys.stderr.isatty(),
        **settings,
    )
    print_skipped([*skipped, *result.skipped])
    print(result.summary)
    if options.out:
        print(f"tables and figure: {result.write(options.out)}")
    return 0
