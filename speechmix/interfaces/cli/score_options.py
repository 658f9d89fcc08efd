"""Add the options of `speechmix score`, and collect the arguments of `score_clips`."""

from __future__ import annotations

import argparse
import sys

from ...files.json_files import JsonObject
from .executor_options import add_executor_options
from .model_options import (
    add_model_option,
    add_prefix_options,
    add_seed_option,
    add_twin_options,
)


def add_score_options(score: argparse.ArgumentParser) -> None:
    """Add all options but those for clips and devices."""
    _add_model_options(score)
    _add_measure_options(score)
    _add_output_options(score)
    stages = score.add_argument_group("further results, for clips with cue, target and foil")
    stages.add_argument(
        "--ablate", action="store_true", help="ablate the cue stack by stack; transcribe the clips"
    )
    add_explain_option(stages)
    stages.add_argument(
        "--probe", action="store_true", help="probe hidden states for the column number"
    )
    stages.add_argument(
        "--knock-out", action="store_true", help="knock out each word in each layer"
    )
    stages.add_argument(
        "--faithfulness", action="store_true", help="evaluate which measure is faithful"
    )
    stages.add_argument(
        "--lens",
        choices=("logit", "encoder"),
        help="what the model would have written from each layer",
    )
    add_twin_clips_option(stages, default=0)
    add_group_option(stages)
    add_executor_options(score.add_argument_group("shards, processes, clusters"))


def add_explain_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: int | None = 0
) -> None:
    """Add the number of clips whose transcripts the page explains."""
    default_text = "0" if default is not None else "2 of the bundled clips, else 0"
    command.add_argument(
        "--explain",
        type=int,
        default=default,
        metavar="N",
        help=f"explain transcripts of N clips, errors of 10 N clips (default: {default_text})",
    )


def add_twin_clips_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: int
) -> None:
    """Add the number of clips for the twins after the first."""
    command.add_argument(
        "--twin-clips",
        type=int,
        default=default,
        metavar="N",
        help=f"score only N clips with the twins after the first; 0: all (default: {default or 'all'})",
    )


def collect_score_arguments(options: argparse.Namespace) -> JsonObject:
    """Return the arguments of `score_clips`, but for models, clips, folder and callbacks."""
    from ...mixing.passes.request import MixRequest

    return {
        "align_method": options.align,
        "figures": options.figures,
        "ablation": options.ablate,
        "probes": options.probe,
        "explain": options.explain,
        "kinds": {name: {} for name in ("knock_out", "faithfulness") if vars(options)[name]}
        | ({"lens": {"kind": options.lens}} if options.lens else {}),
        "twin_clips": options.twin_clips or None,
        "group": options.group,
        "overwrite": options.overwrite,
        "progress": sys.stderr.isatty() if options.progress is None else options.progress,
        "profile": options.profile,
        "maps": options.maps,
        "maps_dtype": options.maps_dtype,
        "measures": options.measure or MixRequest.measures,
        "stacks": options.stack,
        "layers": options.layer,
        "units": options.units,
        "heads": options.heads,
        "pooling": options.pooling,
        "distance": options.distance,
        "rounding": options.rounding,
        "include": options.include or [],
        "targets": "target" if options.target_rows_only else None,
        **({"product_dtype": options.product_dtype} if options.product_dtype else {}),
    }


def _add_model_options(score: argparse.ArgumentParser) -> None:
    group = score.add_argument_group("models")
    add_model_option(group)
    add_twin_options(group)
    add_seed_option(group)
    add_prefix_options(group)


def _add_measure_options(score: argparse.ArgumentParser) -> None:
    from ...mixing.passes.request import ALLOWED_VALUES, AUDIO_UNITS, MixRequest

    group = score.add_argument_group("scores")
    group.add_argument(
        "--measure",
        action="append",
        help="value_zeroing (default), attention, alti, ...; may be repeated",
    )
    add_stack_option(group)
    group.add_argument(
        "--layer", type=int, action="append", help="only this layer, from 0; may be repeated"
    )
    for option in ("units", "heads", "pooling", "distance", "rounding"):
        values = AUDIO_UNITS if option == "units" else ALLOWED_VALUES[option]
        default = getattr(MixRequest, option)
        group.add_argument(
            f"--{option}", choices=values, default=default, help=f"default: {default}"
        )
    group.add_argument(
        "--product-dtype",
        metavar="DTYPE",
        help="bfloat16 (on a GPU also tf32): faster Value Zeroing, scores within 0.5 %%",
    )
    group.add_argument(
        "--include",
        action="append",
        choices=ALLOWED_VALUES["include"],
        help="also rows and columns for these; may be repeated",
    )
    group.add_argument(
        "--target-rows-only", action="store_true", help="only the rows of the target: much faster"
    )


def add_stack_option(
    command: argparse._ActionsContainer, *, names: str = "encoder, decoder, cross"
) -> None:
    """Add `--stack`, which may be repeated."""
    command.add_argument(
        "--stack", action="append", help=f"only this stack: {names}; may be repeated (default: all)"
    )


def add_group_option(command: argparse._ActionsContainer) -> None:
    """Add `--group`, the column of clips that says which belong together."""
    command.add_argument(
        "--group",
        metavar="COLUMN",
        help="column whose values say which clips belong together (default: speakers, or pair, "
        "sentence and target word)",
    )


def _add_output_options(score: argparse.ArgumentParser) -> None:
    output = score.add_argument_group("output")
    output.add_argument("--out", required=True, help="folder of the run: tables, scores, figures")
    output.add_argument(
        "--figures",
        type=int,
        default=20,
        metavar="N",
        help="draw N clips per trained model (default: 20)",
    )
    output.add_argument(
        "--maps", action="store_true", help="also store maps of words as Parquet, one row per map"
    )
    output.add_argument(
        "--maps-dtype",
        choices=("float32", "float16"),
        help="dtype of stored maps of frames (default: as computed)",
    )
    output.add_argument(
        "--profile", action="store_true", help="measure and print the time of each phase"
    )
    output.add_argument(
        "--overwrite", action="store_true", help="replace another run in the same folder"
    )
    output.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show a progress bar (default: in a terminal)",
    )
