"""`speechmix ablate`: silence the cue stack by stack, and read the target again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from .arguments import Subparsers
from .clip_options import (
    Skipped,
    add_clip_options,
    aligner_loader,
    is_run,
    loaded_aligner,
    named_clips,
    print_line,
    print_skipped,
)
from .executor_options import add_executor_options, executor_of, refuse_executor
from .model_options import add_loading_options, add_prefix_options, loaded, model_loaders
from .published_ablation import ablate_as_published, refuse_options
from .published_ablation import add_options as add_published_options

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
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
    add_published_options(ablate)
    add_loading_options(ablate, precision=True)


def _ablate(options: argparse.Namespace) -> int:
    import pandas as pd

    from ...alignment import align
    from ...files.text_files import write_csv
    from ...interventions.ablation import ablate
    from ...runs.results.table_writer import identified

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
        print_line(
            f"{clip.name}  log p(target) - log p({clip.foil}), by what is silenced: {margins}"
        )
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
