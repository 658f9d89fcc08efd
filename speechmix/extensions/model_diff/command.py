"""`speechmix diff`: which words changed between two versions of a model, and which layer changed them?"""

from __future__ import annotations

import argparse
import sys

from ...errors import InputError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clips_option,
    add_outside_option,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import add_loading_options, add_prefix_options, load_model
from ...interfaces.cli.score_options import add_group_option

_EXAMPLES = """examples:
  speechmix diff openai/whisper-small quantised-whisper-small --clips recordings/*.wav
  speechmix diff openai/whisper-small my-finetuned --clips clips.tsv --out difference.html
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "diff",
        help="which words two versions of a model write differently, and which layer made it so",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_diff)
    command.add_argument("model_a", metavar="MODEL_A", help="reference: hub id or folder")
    command.add_argument(
        "model_b", metavar="MODEL_B", help="changed model of the same architecture"
    )
    add_clips_option(command)
    command.add_argument("--out", metavar="FILE", help=".html (a page), .csv or .parquet (tables)")
    command.add_argument(
        "--language", help="language of the recordings, as fr (default: detected by a Whisper)"
    )
    add_group_option(command)
    add_prefix_options(command)
    add_outside_option(command)
    add_loading_options(command, precision=True, engine=False)


def _diff(options: argparse.Namespace) -> int:
    from pathlib import Path

    from .difference import ENDINGS, diff

    if options.out and Path(options.out).suffix.lower() not in ENDINGS:
        raise InputError(f"--out should end in one of {', '.join(ENDINGS)}, found {options.out!r}")
    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    model_a, model_b = (
        load_model(options, source) for source in (options.model_a, options.model_b)
    )
    difference = diff(model_a, model_b, clips, group=options.group, progress=sys.stderr.isatty())
    print_skipped([*skipped, *difference.skipped])
    print(difference)
    if options.out:
        print(f"saved: {difference.save(options.out)}")
    return 0
