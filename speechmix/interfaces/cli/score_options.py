"""Options of `speechmix score`: models, what is scored, where it goes, who does the work.

In: the command's parser; then its parsed options. Out: the options added; what `score_clips` is
asked.
"""

from __future__ import annotations

import argparse
import sys

from ...files.json_files import JsonObject
from .executor_options import add_executor_options
from .model_options import add_prefix_options


def add_score_options(score: argparse.ArgumentParser) -> None:
    """Add all options but those that say which clips, and where models run."""
    _add_model_options(score)
    _add_measure_options(score)
    _add_output_options(score)
    add_executor_options(score.add_argument_group("who does the work"))
    further = score.add_argument_group("further stages, for clips with cue, target and foil")
    further.add_argument(
        "--ablate",
        action="store_true",
        help="ablate the cue stack by stack, and transcribe",
    )
    add_explain_option(further)
    further.add_argument(
        "--probe", action="store_true", help="probe hidden states for the manifest's column number"
    )
    further.add_argument(
        "--knock-out",
        action="store_true",
        help="knock out each word in each layer",
    )
    further.add_argument(
        "--faithfulness",
        action="store_true",
        help="evaluate which measure is faithful",
    )
    further.add_argument(
        "--twin-clips",
        type=int,
        default=0,
        metavar="N",
        help="clips that twins after the first hear (default: all)",
    )


def add_explain_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: int | None = 0
) -> None:
    """Add of how many clips the page says why trained models wrote their words."""
    told = "0" if default is not None else "2 of the package's own clips, else 0"
    command.add_argument(
        "--explain",
        type=int,
        default=default,
        metavar="N",
        help="explain the transcripts of the first N clips, and wrong ones of ten times as many "
        f"(default: {told})",
    )


def asked_of_run(options: argparse.Namespace) -> JsonObject:
    """What `score_clips` is asked, but for who is told what."""
    from ...mixing.passes.request import MixRequest

    return {
        "align_method": options.align,
        "figures": 0 if options.no_figures else options.figures,
        "ablation": options.ablate,
        "probes": options.probe,
        "explain": options.explain,
        "kinds": [name for name in ("knock_out", "faithfulness") if vars(options)[name]],
        "twin_clips": options.twin_clips or None,
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
    group.add_argument(
        "--model",
        action="append",
        required=True,
        help="hub id or folder; may be given several times",
    )
    group.add_argument(
        "--random-twin",
        type=int,
        action="append",
        metavar="SEED",
        help="also the randomly initialised twin with this seed",
    )
    add_prefix_options(group)


def _add_measure_options(score: argparse.ArgumentParser) -> None:
    from ...mixing.passes.request import ALLOWED_VALUES, AUDIO_UNITS, MixRequest

    group = score.add_argument_group("scores")
    group.add_argument(
        "--measure",
        action="append",
        help="value_zeroing (default), attention, attention_norm, alti ...; may be repeated",
    )
    group.add_argument(
        "--stack",
        action="append",
        help="encoder, decoder, cross (default: all there are); may be repeated",
    )
    group.add_argument(
        "--layer",
        type=int,
        action="append",
        help="score only this layer, counted from 0; may be repeated",
    )
    for option in ("units", "heads", "pooling", "distance", "rounding"):
        values = AUDIO_UNITS if option == "units" else ALLOWED_VALUES[option]
        group.add_argument(f"--{option}", choices=values, default=getattr(MixRequest, option))
    group.add_argument(
        "--product-dtype",
        help="bfloat16 (on a GPU also tf32): matrix products of Value Zeroing, scores within 0.5 "
        "%%",
    )
    group.add_argument(
        "--include",
        action="append",
        choices=ALLOWED_VALUES["include"],
        help="make these units of the map; may be repeated",
    )
    group.add_argument(
        "--target-rows-only", action="store_true", help="only the target word's rows: much faster"
    )


def _add_output_options(score: argparse.ArgumentParser) -> None:
    output = score.add_argument_group("output")
    output.add_argument("--out", required=True, help="folder of the run: tables, scores, figures")
    output.add_argument(
        "--figures",
        type=int,
        default=20,
        metavar="N",
        help="clips to draw a figure of, per trained model (default: 20)",
    )
    output.add_argument("--no-figures", action="store_true", help="the same as --figures 0")
    output.add_argument(
        "--maps",
        action="store_true",
        help="also keep maps of words as Parquet, a row each (maps of frames always are kept)",
    )
    output.add_argument(
        "--maps-dtype",
        choices=("float32", "float16"),
        help="type of kept maps of frames (default: as computed)",
    )
    output.add_argument(
        "--profile",
        action="store_true",
        help="wait for the GPU after every phase, and print where the time went",
    )
    output.add_argument(
        "--overwrite", action="store_true", help="start afresh in a folder that holds another run"
    )
    output.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show a bar (default: in a terminal)",
    )
