"""`speechmix ablate --published`: remove the cue from the audio and from the decoder's tokens."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...interfaces.cli.clip_options import SkippedItems, create_aligner_loader, print_skipped
from ...interfaces.cli.model_options import (
    add_seed_option,
    add_twin_options,
    create_loaders,
    list_twin_seeds,
)
from ...interfaces.cli.score_options import (
    add_fill_option,
    add_group_option,
    choose_executor,
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
