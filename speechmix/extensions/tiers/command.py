"""`speechmix export RUN`: write the results of a clip as tiers for Praat or ELAN.

In: a run's folder, a clip's name. Out: a file for each trained model: the words, then a tier for each
measure, stack and layer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from ...interfaces.cli.command_parser import Subparsers

_EXAMPLES = """examples:
  speechmix export runs/livre --clip livre --layer best
  speechmix export runs/livre --clip livre --format eaf --out annotations --target chats
"""
_SUFFIXES = {"textgrid": ".TextGrid", "eaf": ".eaf", "csv": ".csv"}


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from ...interfaces.cli.score_options import add_stack_option

    export = commands.add_parser(
        "export",
        help="write results of a run as tiers: TextGrid for Praat, .eaf for ELAN, or .csv",
        epilog=_EXAMPLES,
    )
    export.set_defaults(command=_export)
    export.add_argument("run", metavar="RUN", help="folder of a run")
    export.add_argument("--clip", required=True, metavar="NAME", help="name of the clip in the run")
    export.add_argument(
        "--format", choices=sorted(_SUFFIXES), default="textgrid", help="default: textgrid"
    )
    export.add_argument("--out", metavar="FOLDER", help="folder for the files (default: RUN/tiers)")
    export.add_argument("--target", help="the word that receives (default: the clip's target)")
    export.add_argument("--measure", action="append", help="only this measure; may be repeated")
    add_stack_option(export)
    export.add_argument(
        "--layer",
        action="append",
        help="a layer, from 0, or best: where the cue contributes most; may be repeated "
        "(default: all)",
    )
    export.add_argument(
        "--audio", metavar="FOLDER", help="folder of the audio files, if they were moved"
    )


def _export(options: argparse.Namespace) -> int:
    from ...files.whole_files import remove_leftovers
    from .tier_export import export_tiers

    with remove_leftovers(options.out or Path(options.run) / "tiers"):
        paths = export_tiers(
            options.run,
            options.clip,
            ending=_SUFFIXES[options.format],
            out=options.out,
            target=options.target,
            measures=options.measure,
            stacks=options.stack,
            layers=_parse_layers(options.layer),
            audio=options.audio,
        )
    for path in paths:
        print(f"tiers: {path}")
    return 0


def _parse_layers(texts: Sequence[str] | None) -> str | list[int]:
    if not texts:
        return "all"
    if list(texts) == ["best"]:
        return "best"
    try:
        return [int(layer) for layer in texts]
    except ValueError:
        raise InputError(f"--layer takes numbers, or best alone, found {' '.join(texts)}") from None
