"""`speechmix states`: write the hidden states of words, phones or frames to a Parquet file."""

from __future__ import annotations

import argparse
import sys

from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_alignment_options,
    add_clips_option,
    collect_aligned_clips,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    load_model,
    select_only_model,
)
from ...interfaces.cli.score_options import add_group_option, add_stack_option

_EXAMPLES = """examples:
  speechmix states --model openai/whisper-small --clips clips.tsv --out states.parquet
  speechmix states --model FOLDER --clips CORPUS --level frame --stack encoder --out frames.parquet
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from ...mixing.passes.request import AUDIO_UNITS

    command = commands.add_parser(
        "states", help="write hidden states of words, phones or frames as Parquet", epilog=_EXAMPLES
    )
    command.set_defaults(command=_write)
    add_clips_option(command)
    add_model_option(command)
    command.add_argument(
        "--level", choices=AUDIO_UNITS, default="word", help="units of the rows (default: word)"
    )
    add_stack_option(command, names="encoder, decoder")
    add_group_option(command)
    command.add_argument("--out", required=True, metavar="FILE", help="Parquet file to write")
    add_alignment_options(command)
    add_loading_options(command)


def _write(options: argparse.Namespace) -> int:
    import pyarrow.parquet as pq

    from ...evaluation.statistics.groups import describe_item_groups
    from .unit_states import write_states

    source, skipped = select_only_model(options), SkippedItems()
    collect = collect_clips if options.level == "frame" else collect_aligned_clips
    clips = collect(options, skipped)
    skipped += write_states(
        load_model(options, source),
        clips,
        options.out,
        level=options.level,
        stacks=options.stack,
        group=options.group,
        progress=sys.stderr.isatty(),
    )
    print_skipped(skipped)
    metadata = pq.ParquetFile(options.out).metadata
    print(f"table: {options.out} ({metadata.num_rows} rows, {metadata.num_columns} columns)")
    print(describe_item_groups(clips, options.group))
    return 0
