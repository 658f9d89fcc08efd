"""`speechmix spectral-explain`: which frequency band of which word, phone or window a decision rests on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...errors import SpeechmixError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clip_options,
    collect_aligned_clips,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    add_seed_option,
    add_twin_options,
    list_twin_seeds,
    load_model,
    select_only_model,
)

_EXAMPLES = """examples:
  speechmix spectral-explain clips.tsv --model FOLDER --units phone --out spectral
  speechmix spectral-explain a.wav --model CLASSIFIER --units 100 --band 0 --band 2000 --band 8000
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    text = "which frequency band of which word, phone or window decides"
    command = commands.add_parser("spectral-explain", help=text, epilog=_EXAMPLES)
    command.set_defaults(command=_spectral_explain)
    add_clip_options(command)
    add_model_option(command)
    add = command.add_argument
    add("--units", default="word", help="word, clip, a tier (phone) or milliseconds")
    add("--bands", type=int, default=6, metavar="N", help="number of mel bands (default: 6)")
    add("--band", type=float, action="append", metavar="HZ", help="edge of a band; repeatable")
    add("--fill", action="append", help="zeros, noise or mean; repeatable")
    add("--label", action="append", help="label of a classifier; two for a contrast")
    add("--out", metavar="FOLDER", help="folder for table, JSON and figure of each clip")
    add_twin_options(command)
    add_seed_option(command)
    add_loading_options(command)


def _spectral_explain(options: argparse.Namespace) -> int:
    from .spectral_explain import DEFAULT_FILLS, spectral_explain

    skipped: SkippedItems = []
    units = float(options.units) if options.units.replace(".", "").isdecimal() else options.units
    collect = collect_aligned_clips if isinstance(units, str) and units != "clip" else collect_clips
    clips, source = collect(options, skipped), select_only_model(options)
    model, seeds = load_model(options, source), list_twin_seeds(options)
    settings = {
        "units": units,
        "bands": options.band or options.bands,
        "fills": options.fill or DEFAULT_FILLS,
        "objective": tuple(options.label) if options.label else None,
        "twins": [load_model(options, source, init="random", seed=seed) for seed in seeds],
        "seed": options.seed or 0,
        "progress": sys.stderr.isatty(),
    }
    explained_count = 0
    for clip in clips:
        try:
            result = spectral_explain(model, clip, **settings)
            output_path = result.write(Path(options.out) / clip.name) if options.out else None
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        explained_count += 1
        print(f"{clip.name}: {result.summary}")
        if output_path:
            print(f"table and figure: {output_path}")
    print_skipped(skipped)
    return 0 if explained_count else 1
