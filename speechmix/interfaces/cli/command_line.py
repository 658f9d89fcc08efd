"""The command line: `speechmix COMMAND`; each command is one call of the library."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from .arguments import CommandParser, check_options
from .clip_options import (
    Skipped,
    add_clip_options,
    aligner_loader,
    is_run,
    loaded_aligner,
    named_clips,
    print_skipped,
)
from .command_groups import list_by_group
from .estimate import announcing
from .executor_options import add_executor_options, executor_of, refuse_executor, shard_of
from .model_options import add_loading_options, add_prefix_options, loaded, model_loaders
from .score_options import add_score_options, asked_of_run
from .status import print_times

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip

_SCORE_EPILOG = """examples:
  speechmix score livre.wav --model openai/whisper-small --text "elle a perdu les livres" --cue les --target livres
  speechmix score --manifest clips.tsv --model facebook/wav2vec2-base --random-twin 0 --measure value_zeroing --out runs/a
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 nothing could be done, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        check_options(options)
        with _ended_by_sigterm():
            result: int = options.command(options)
            return result
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a table or page that cannot be written, a pipe that was closed
        print(f"speechmix: {error}: free some space, or write somewhere else", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command goes on where it was", file=sys.stderr)
        return 130


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM, which batch systems send before they take a machine back, end a command as
    Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _check(options: argparse.Namespace) -> int:
    from ...files.versions import versions

    model = loaded(options, options.model)
    print(model.describe())
    parts = [
        name
        for name, part in (
            ("feature extractor", model.feature_extractor),
            ("tokenizer", model.tokenizer),
        )
        if part
    ]
    print(f"  processor: {', '.join(parts) or 'none found (prepared inputs only)'}")
    print(
        "  self-check passed: attention rows sum to one, replay equals the forward pass, zeroing "
        "has an effect"
    )
    print(versions())
    return 0


def _score(options: argparse.Namespace) -> int:
    from ...runs.executors.executor import InProcess
    from ...runs.score_clips import score_clips
    from ...studies.french.dataset_reading import is_dataset
    from ...studies.french.study_report import describe_page

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
        models = announcing(models, own, _say, **estimated)
    run = score_clips(
        models,
        clips,
        options.out,
        aligner=aligner_loader(options),
        executor=executor,
        **request,
    )
    if options.manifest and is_dataset(options.manifest):
        describe_page(options.out, options.manifest, options.random_twin or [])
    print(run.summary(said=report.lines))
    if options.profile:
        print_times(run.out)
    return 0 if run.done or shard_of(options).count > 1 else 1  # a shard may hold no clip


def _ablate(options: argparse.Namespace) -> int:
    import pandas as pd

    from ...alignment import align
    from ...files.text_files import write_csv
    from ...interventions.ablation import ablate
    from ...runs.results.table_writer import identified
    from .published_ablation import ablate_as_published, refuse_options

    if not options.out or not (options.published or is_run(options.out)):
        advice = "give the folder of a run as --out, or `speechmix score --ablate --shard`"
        refuse_executor(options, advice)
    skipped: Skipped = []
    clips = named_clips(options, skipped)
    if options.published:
        return ablate_as_published(options, clips, skipped)
    refuse_options(options)
    if options.out and is_run(options.out):
        return _ablate_in_run(options, clips, skipped)
    if len(options.model) > 1:
        raise InputError(
            f"expected one --model, found {', '.join(options.model)}; several go with --published"
        )
    model, aligner = loaded(options, options.model[0]), loaded_aligner(options)
    tables = []
    for clip in clips:
        try:
            table = ablate(
                model, align(clip, model=aligner, method=options.align), stacks=options.stack
            )
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        tables.append(identified(table, clip, model))
        margins = "  ".join(f"{row.ablated} {row.margin:+.2f}" for row in table.itertuples())
        _say(f"{clip.name}  log p(target) - log p({clip.foil}), by what is silenced: {margins}")
    if tables:
        table = pd.concat(tables, ignore_index=True)
        rates = table.groupby("ablated", sort=False).right.mean().mul(100)
        print(
            "target spelled right (%), by what is silenced: "
            + ", ".join(f"{k} {v:.0f}" for k, v in rates.items())
        )
        if options.out:
            write_csv(table, options.out)
    print_skipped(skipped)
    print(f"{len(tables)} done, {len(skipped)} skipped")
    return 0 if tables else 1


def _ablate_in_run(options: argparse.Namespace, clips: Sequence[Clip], skipped: Skipped) -> int:
    """Store the ablation of clips in a run's folder, with its table."""
    from ...runs.kinds.ablation import ABLATION_KIND
    from ...runs.score_clips import compute_kinds

    if options.stack:
        raise InputError("--stack is not for a run's folder, which has the ablation of all stacks")
    run = compute_kinds(
        model_loaders(options, options.model, None),
        clips,
        options.out,
        [ABLATION_KIND.name],
        aligner=aligner_loader(options),
        align_method=options.align,
        executor=executor_of(options, options.model),
        progress=sys.stderr.isatty(),
        skipped=skipped,
    )
    print(run.summary())
    return 0 if run.done or not run.is_complete else 1


class _Reported:
    """Prints lines, and remembers those of clips that were skipped."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        if "SKIPPED" in line:
            self.lines.append(line)
        _say(line)


def _say(line: str) -> None:
    from tqdm.auto import tqdm

    tqdm.write(line)


def _parser() -> argparse.ArgumentParser:
    from ... import __version__
    from .estimate import add_commands as add_estimate_command
    from .explain import add_command as add_explain_command
    from .export import add_commands as add_export_command
    from .faithfulness import add_commands as add_faithfulness_commands
    from .french_study import add_command as add_study_command
    from .homophony import add_commands
    from .probing import add_commands as add_probe_commands
    from .published_ablation import add_options as add_ablation_options
    from .reports import add_commands as add_report_commands
    from .serve import add_command as add_serve_command
    from .status import add_commands as add_status_command

    parser = CommandParser(
        prog="speechmix",
        description="Context mixing in speech Transformers: which words build which, layer by "
        "layer.",
    )
    parser.add_argument("--version", action="version", version=f"speechmix {__version__}")
    commands = parser.add_subparsers(prog="speechmix", required=True, metavar="COMMAND")

    check = commands.add_parser(
        "check", help="load a model and check that its layers are understood"
    )
    check.add_argument("model", help="hub id or folder")
    check.set_defaults(command=_check)

    score = commands.add_parser(
        "score",
        help="which words build which? maps, tables and figures of clips",
        epilog=_SCORE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    score.set_defaults(command=_score)
    add_clip_options(score)
    add_score_options(score)
    ablate = commands.add_parser(
        "ablate", help="silence the cue, stack by stack: is the target still right?"
    )
    ablate.set_defaults(command=_ablate)
    add_clip_options(ablate)
    ablate.add_argument(
        "--model",
        action="append",
        required=True,
        help="hub id or folder, with a CTC or language-model head; with --published several times, "
        "if there are several",
    )
    ablate.add_argument(
        "--stack", action="append", help="encoder, decoder, cross (default: all there are)"
    )
    ablate.add_argument("--out", help="CSV file for the table; or the folder of a run")
    add_executor_options(ablate.add_argument_group("who does the work, with --out RUN"))
    add_prefix_options(ablate)
    add_ablation_options(ablate)
    for command in (check, score, ablate):
        add_loading_options(command, precision=True)
    add_explain_command(commands)
    add_estimate_command(commands)
    add_faithfulness_commands(commands)
    add_probe_commands(commands)
    add_commands(commands)
    add_study_command(commands)
    add_report_commands(commands)
    add_serve_command(commands)
    add_export_command(commands)
    add_status_command(commands)
    list_by_group(parser, commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
