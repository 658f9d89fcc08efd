"""`speechmix ablate`: zero the cue's value vectors stack by stack, and predict the target again.

`speechmix ablate --published`: remove the cue from the audio and from the decoder's tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clip_options,
    collect_clips,
    create_aligner_loader,
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
    add_seed_option,
    add_twin_options,
    create_loaders,
    list_twin_seeds,
    load_model,
    select_only_model,
)
from ...interfaces.cli.run_results import compute_kind_in_run
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_fill_option,
    add_group_option,
    add_stack_option,
    choose_executor,
    refuse_executor_options,
    split_fills_by_side,
)

if TYPE_CHECKING:
    import pandas as pd

    from ...inputs.clips.clip import Clip

_COLUMNS = """
    side model silenced condition fill reading trained random difference low high claim other clips
""".split()


def add_published_options(ablate: argparse.ArgumentParser) -> None:
    """Add the options of the published ablation to the command's parser."""
    group = ablate.add_argument_group("the published ablation (Mohebbi et al. 2023)")
    group.add_argument(
        "--published",
        action="store_true",
        help="mute the cue in the audio, blank its tokens in the decoder, and both; --out is then a "
        "folder, where a stopped command continues",
    )
    add_twin_options(group, note=", with --published")
    add_seed_option(group)
    add_fill_option(group, default="zeros, unk, remove")
    add_group_option(group)


def refuse_published_options(options: argparse.Namespace) -> None:
    """Raise an error for options that need `--published`.

    Raises
    ------
    InputError
    """
    for name in ("twins", "seed", "fill", "group"):
        if getattr(options, name):
            raise InputError(f"--{name} needs --published here: add it, or leave --{name} out")


def run_published_ablation(
    options: argparse.Namespace, clips: Sequence[Clip], skipped: SkippedItems
) -> int:
    """Run the ablation, print the means over all clips and where the files are."""
    from .speech_ablations import speech_ablation

    if options.stack:
        raise InputError("--published removes the word itself, in no stack: leave --stack out")
    audio_fills, token_fills = split_fills_by_side(options.fill)
    result = speech_ablation(
        create_loaders(options, options.model, list_twin_seeds(options)),
        clips,
        Path(options.out) if options.out else None,
        sound_fills=audio_fills or ("zeros",),
        fills_of_tokens=token_fills
        and [int(fill) if fill.isdigit() else fill for fill in token_fills],
        group=options.group,
        aligner=create_aligner_loader(options),
        align_method=options.align,
        executor=choose_executor(options, options.model) if options.out else None,
        report=print,
        skipped=skipped,
    )
    if result is None:
        print(
            f"shard {options.shard} is finished; `speechmix status {options.out}` lists the others"
        )
        return 0
    means = select_overall_means(result.means)
    if means.empty:
        print("no mean drops: all clips are controls (column control: yes)")
    else:
        print(means[_COLUMNS].to_string(index=False, na_rep="", float_format="{:.2f}".format))
        print(
            "\ntrained, random, difference: mean drops, in points of probability (arg-max) or nats "
            f"(margin)\n{result.grouping}"
        )
    print_skipped([(f"{row['clip']} {row['model']}", row["reason"]) for row in result.skipped])
    if options.out:
        print(f"tables and figure: {options.out}/speech_ablation*")
    return 0


def select_overall_means(means: pd.DataFrame) -> pd.DataFrame:
    """Select the means over all clips, of the published reading and of the margin."""
    if means.empty:
        return means.reindex(columns=_COLUMNS)
    rows = means[
        means["reading"].isin(["arg-max", "margin"]) & means["aggregation"].isin(["mean", ""])
    ]
    for group_column in {"template", "number"} & set(rows):
        rows = rows[rows[group_column] == "all"]
    return rows.reindex(columns=[*rows, *(name for name in _COLUMNS if name not in rows)])


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
