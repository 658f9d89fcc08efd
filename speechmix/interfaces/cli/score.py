"""`speechmix score`: maps, tables and figures of clips, in the folder of a run."""

from __future__ import annotations

import argparse

from .arguments import Subparsers
from .clip_options import (
    Skipped,
    add_clip_options,
    aligner_loader,
    named_clips,
    print_line,
)
from .estimate import announcing
from .executor_options import executor_of, shard_of
from .model_options import add_loading_options, model_loaders
from .score_options import add_score_options, asked_of_run
from .status import print_times

_EXAMPLES = """examples:
  speechmix score livre.wav --model openai/whisper-small --text "elle a perdu les livres" --cue les --target livres
  speechmix score --manifest clips.tsv --model facebook/wav2vec2-base --random-twin 0 --measure value_zeroing --out runs/a
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    score = commands.add_parser(
        "score",
        help="which words build which? maps, tables and figures of clips",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    score.set_defaults(command=_score)
    add_clip_options(score)
    add_score_options(score)
    add_loading_options(score, precision=True)


def _score(options: argparse.Namespace) -> int:
    from ...runs.executors.executor import InProcess
    from ...runs.score_clips import score_clips
    from ...studies.french.dataset_reading import is_dataset
    from ...studies.french.study_report import write_page_description

    executor = executor_of(options, options.model)
    skipped: Skipped = []
    clips = named_clips(options, skipped)
    models = model_loaders(options, options.model, options.random_twin)
    report = _Reported()
    request = {**asked_of_run(options), "report": report, "skipped": skipped}
    is_word_run = models and clips and request["units"] == "word"
    if is_word_run and isinstance(executor, InProcess):  # what is estimated; workers load elsewhere
        own = clips[: -(-len(clips) // executor.shard.count)]
        estimated = {name: request[name] for name in ("measures", "stacks", "targets")}
        models = announcing(models, own, print_line, **estimated)
    run = score_clips(
        models,
        clips,
        options.out,
        aligner=aligner_loader(options),
        executor=executor,
        **request,
    )
    if options.manifest and is_dataset(options.manifest):
        write_page_description(options.out, options.manifest, options.random_twin or [])
    print(run.summary(said=report.lines))
    if options.profile:
        print_times(run.out)
    return 0 if run.done or shard_of(options).count > 1 else 1  # a shard may hold no clip


class _Reported:
    """Prints lines, and remembers those of clips that were skipped."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        if "SKIPPED" in line:
            self.lines.append(line)
        print_line(line)
