"""`speechmix score`: compute maps, tables and figures of clips in the folder of a run."""

from __future__ import annotations

import argparse

from ...extension import find_hook
from .clip_options import (
    SkippedItems,
    add_clip_options,
    add_segments_option,
    collect_clips,
    create_aligner_loader,
    divide_clips,
    find_datasets,
    print_line,
)
from .command_parser import Subparsers
from .model_options import (
    add_loading_options,
    collect_garbage_once,
    create_loaders,
    list_twin_seeds,
)
from .score_options import add_score_options, choose_executor, collect_score_arguments, parse_shard
from .status import print_times

_EXAMPLES = """examples:
  speechmix score livre.wav --model openai/whisper-small --text "elle a perdu les livres" \\
      --cue les --target livres --out runs/livre
  speechmix score clips.tsv --model facebook/wav2vec2-base --twins 1 --out runs/base
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    score = commands.add_parser(
        "score",
        help="compute which words contribute to which: maps, tables and figures",
        epilog=_EXAMPLES,
    )
    score.set_defaults(command=_score)
    add_clip_options(score)
    add_segments_option(score)
    add_score_options(score)
    add_loading_options(score, precision=True)


def _score(options: argparse.Namespace) -> int:
    with collect_garbage_once("torch"):
        from ...runs.executors.executor import InProcess
        from ...runs.score_clips import score_clips
        from ...studies.french.study_report import write_page_description

    executor = choose_executor(options, options.model)
    skipped: SkippedItems = []
    clips = divide_clips(options, collect_clips(options, skipped), skipped)
    twin_seeds = list_twin_seeds(options)
    loaders = create_loaders(options, options.model, twin_seeds)
    log = _Log()
    arguments = {**collect_score_arguments(options), "report": log, "skipped": skipped}
    if arguments["units"] == "word" and isinstance(executor, InProcess):
        shard_clips = clips[: -(-len(clips) // executor.shard.count)]
        cost_options = {name: arguments[name] for name in ("measures", "stacks", "targets")}
        if announce_duration := find_hook("announce_duration"):
            loaders = announce_duration(loaders, shard_clips, print_line, **cost_options)
    run = score_clips(
        loaders,
        clips,
        options.out,
        aligner=create_aligner_loader(options),
        executor=executor,
        **arguments,
    )
    for dataset in find_datasets(options):
        write_page_description(options.out, dataset, twin_seeds)
    print(run.summary(said=log.skipped_lines))
    if options.profile:
        print_times(run.out)
    return 0 if run.done or parse_shard(options).count > 1 else 1  # a shard may hold no clip


class _Log:
    """Print lines, and keep those about skipped clips."""

    def __init__(self) -> None:
        self.skipped_lines: list[str] = []

    def __call__(self, line: str) -> None:
        if "SKIPPED" in line:
            self.skipped_lines.append(line)
        print_line(line)
