"""`speechmix trajectory`: contribution, need and spelling over the steps of a training."""

from __future__ import annotations

import argparse
import sys

from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_alignment_options,
    add_clips_option,
    collect_clips,
    create_aligner_loader,
    print_line,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import add_seed_option, add_twin_options, list_twin_seeds
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_group_option,
    add_stack_option,
    choose_executor,
)

_EXAMPLES = """examples:
  speechmix trajectory runs/seed-0 --clips clips.tsv --twins 9 --out runs/trajectory
  speechmix trajectory ORG/MODEL --revisions 'step*' --clips clips.tsv --out runs/hub
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "trajectory",
        help="contribution, need and spelling over the checkpoints of a training",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_trajectory)
    command.add_argument(
        "sources",
        nargs="+",
        metavar="MODEL",
        help="folders with checkpoints, checkpoints, or a hub id; several trainings are compared",
    )
    command.add_argument(
        "--revisions",
        action="append",
        metavar="PATTERN",
        help="branches or tags on the hub, as 'step*'; may be repeated",
    )
    add_clips_option(command)
    add_alignment_options(command)
    add_twin_options(command)
    add_seed_option(command)
    command.add_argument(
        "--measure", action="append", help="default: value_zeroing; may be repeated"
    )
    add_stack_option(command)
    command.add_argument(
        "--probe", action="store_true", help="probe hidden states for the column number"
    )
    command.add_argument(
        "--transcribe", action="store_true", help="also transcribe the clips at each checkpoint"
    )
    add_group_option(command)
    command.add_argument("--out", required=True, help="folder of the run: tables, figures, page")
    command.add_argument(
        "--animation", metavar="FILE", help="also write an animation: .gif, or .mp4 with ffmpeg"
    )
    command.add_argument(
        "--overwrite", action="store_true", help="replace another run in the same folder"
    )
    command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available)")
    add_executor_options(command.add_argument_group("shards, processes, clusters"))


def _trajectory(options: argparse.Namespace) -> int:
    from ...mixing.passes.request import MixRequest
    from ...reporting.pages.run_page import report
    from .checkpoints import list_checkpoints
    from .trajectory_figure import animate_trajectory
    from .trajectory_runs import trajectory

    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    checkpoints = list_checkpoints(options.sources, options.revisions)
    print(f"{len(checkpoints)} checkpoints: {checkpoints[0].label} to {checkpoints[-1].label}")
    result = trajectory(
        options.sources,
        clips,
        options.out,
        revisions=options.revisions,
        twins=len(list_twin_seeds(options)),
        seed=options.seed or 0,
        transcripts=options.transcribe,
        load_options={"device": options.device},
        measures=options.measure or MixRequest.measures,
        stacks=options.stack,
        probes=options.probe,
        group=options.group,
        aligner=create_aligner_loader(options),
        align_method=options.align,
        overwrite=options.overwrite,
        executor=choose_executor(options, [checkpoints[-1].source]),
        skipped=skipped,
        progress=sys.stderr.isatty(),
        report=_print_skipped_line,
    )
    print_skipped(skipped)
    if result is None:
        return 0
    print(result.summary)
    if options.animation:
        print(f"animation: {animate_trajectory(result.curves, options.animation)}")
    print(f"page: {report(options.out)}")
    return 0


def _print_skipped_line(line: str) -> None:
    """Print what was skipped; a line for each clip and checkpoint would be too many."""
    if "SKIPPED" in line:
        print_line(line)
