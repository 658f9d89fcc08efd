"""`speechmix ablate`: zero the cue's value vectors stack by stack, and predict the target again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clip_options,
    collect_clips,
    is_run,
    load_aligner,
    print_line,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    add_prefix_options,
    load_model,
    select_only_model,
)
from ...interfaces.cli.run_results import compute_kind_in_run
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_stack_option,
    refuse_executor_options,
)
from .published_ablation_command import (
    add_published_options,
    refuse_published_options,
    run_published_ablation,
)

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip

_EXAMPLES = """examples:
  speechmix ablate livre.wav --model openai/whisper-small --text "elle a perdu les livres" \\
      --cue les --target livres --foil livre
  speechmix ablate clips.tsv --model openai/whisper-small --published --twins 2 --out runs/ablation
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    ablate = commands.add_parser(
        "ablate", help="ablate the cue stack by stack: is the target still right?", epilog=_EXAMPLES
    )
    ablate.set_defaults(command=_ablate)
    add_clip_options(ablate)
    add_model_option(ablate, note=" with --published or --out RUN")
    add_stack_option(ablate)
    ablate.add_argument("--out", help="CSV file for the table; or the folder of a run")
    add_executor_options(ablate.add_argument_group("shards and processes, with --out RUN"))
    add_prefix_options(ablate)
    add_published_options(ablate)
    add_loading_options(ablate)


def _ablate(options: argparse.Namespace) -> int:
    import pandas as pd

    from ...alignment import align
    from ...files.text_files import write_csv
    from ...interventions.value_knock_out import ablate
    from ...runs.results.tidy_tables import add_identity

    if not options.out or not (options.published or is_run(options.out)):
        refuse_executor_options(
            options, "give the folder of a run as --out, or use `speechmix score --ablate --shard`"
        )
    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    if options.published:
        return run_published_ablation(options, clips, skipped)
    refuse_published_options(options)
    if options.out and is_run(options.out):
        return _ablate_in_run(options, clips, skipped)
    model, aligner = load_model(options, select_only_model(options)), load_aligner(options)
    tables = []
    for clip in clips:
        try:
            aligned_clip = align(clip, model=aligner, method=options.align)
            table = ablate(model, aligned_clip, stacks=options.stack)
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        tables.append(add_identity(table, clip, model))
        margins = "  ".join(f"{row.ablated} {row.margin:+.2f}" for row in table.itertuples())
        print_line(f"{clip.name}  log p(target) - log p({clip.foil}), by ablated stack: {margins}")
    if tables:
        table = pd.concat(tables, ignore_index=True)
        rates = table.groupby("ablated", sort=False).right.mean().mul(100)
        print(
            "target spelled right (%), by ablated stack: "
            + ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
        )
        if options.out:
            write_csv(table, options.out)
    print_skipped(skipped)
    print(f"{len(tables)} done, {len(skipped)} skipped")
    return 0 if tables else 1


def _ablate_in_run(
    options: argparse.Namespace, clips: Sequence[Clip], skipped: SkippedItems
) -> int:
    """Store the ablation of clips in a run's folder, with its table."""
    from ...runs.kinds.ablation import ABLATION_KIND

    if options.stack:
        raise InputError("a run stores the ablation of all stacks: leave --stack out")
    return compute_kind_in_run(options, clips, ABLATION_KIND.name, {}, skipped)
