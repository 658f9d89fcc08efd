"""`speechmix ablate --published`: the published ablation of speech over clips, trained and
untrained, into a folder.

In: the parsed options of `ablate`, and its clips. The command is one call of
`speechmix.speech_ablation`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from .clip_options import aligner_loader
from .executor_options import executor_of
from .model_options import model_loaders

if TYPE_CHECKING:
    import pandas as pd

    from ...inputs.clips.clip import Clip

_SHOWN = [
    "side",
    "model",
    "silenced",
    "condition",
    "fill",
    "reading",
    "trained",
    "random",
    "difference",
    "p",
    "claim",
]
_SHOWN += ["other", "clips"]


def add_options(ablate: argparse.ArgumentParser) -> None:
    """Add the options of the published ablation to the command's parser."""
    group = ablate.add_argument_group(
        "the published ablation", "the word itself taken away, as in Mohebbi et al. 2023 (EMNLP)"
    )
    group.add_argument(
        "--published",
        action="store_true",
        help="silence the cue in the sound, blank its tokens in the decoder, and both; --out is "
        "then a folder (a run's has the "
        "result on its page), and a stopped command goes on there",
    )
    group.add_argument(
        "--random-twin",
        type=int,
        action="append",
        default=[],
        metavar="SEED",
        help="also this untrained twin; may be repeated",
    )
    group.add_argument(
        "--sound-fill",
        action="append",
        metavar="FILL",
        help="zeros (default), room, noise, word in the place of a word's sound; may be repeated",
    )
    group.add_argument(
        "--token-fill",
        action="append",
        metavar="FILL",
        help="unk, remove (default: both), pad, mask, or the id of a token in the place of a "
        "word's tokens; may be repeated",
    )


def refuse_options(options: argparse.Namespace) -> None:
    """Refuse the options of the published ablation where it is not asked for, so that none is
    passed over in silence.

    Raises
    ------
    InputError
    """
    for name in ("random_twin", "sound_fill", "token_fill"):
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} is of the published ablation: give --published with it, or leave "
                f"{option} out"
            )


def ablate_as_published(
    options: argparse.Namespace, clips: Sequence[Clip], skipped: list[tuple[str, str]]
) -> int:
    """Run it, print the means over all clips, and say where the rest is."""
    from ...runs.speech_ablations import speech_ablation

    if options.stack:
        raise InputError(
            "--stack is of the ablation of values; --published takes the word itself away"
        )
    result = speech_ablation(
        model_loaders(options, options.model, options.random_twin),
        clips,
        Path(options.out) if options.out else None,
        sound_fills=options.sound_fill or ("zeros",),
        fills_of_tokens=options.token_fill
        and [int(fill) if fill.isdigit() else fill for fill in options.token_fill],
        aligner=aligner_loader(options),
        align_method=options.align,
        executor=executor_of(options, options.model) if options.out else None,
        report=print,
        skipped=skipped,
    )
    if result is None:
        print(f"shard {options.shard} is done, others are not: `speechmix status {options.out}`")
        return 0
    means = of_all_clips(result.means)
    if means.empty:
        print(
            "no mean drops: every clip is a control (column control: yes), whose cue decides "
            "nothing"
        )
    else:
        print(means[_SHOWN].to_string(index=False, na_rep="", float_format="{:.2f}".format))
        print(
            "\ntrained, random, difference: mean drops, in points of probability (arg-max) or nats "
            "(margin)"
        )
    for row in result.skipped:
        print(f"skipped {row['clip']} {row['model']}: {row['reason']}")
    if options.out:
        print(f"tables and figure: {options.out}/speech_ablation*")
    return 0


def of_all_clips(means: pd.DataFrame) -> pd.DataFrame:
    """Means over all clips, of the published reading and the margin; none where all clips are
    controls."""
    if means.empty:
        return means.reindex(columns=_SHOWN)
    rows = means[
        means["reading"].isin(["arg-max", "margin"]) & means["aggregation"].isin(["mean", ""])
    ]
    for part in {"template", "number"} & set(rows):
        rows = rows[rows[part] == "all"]
    return rows.reindex(columns=[*rows, *(name for name in _SHOWN if name not in rows)])
