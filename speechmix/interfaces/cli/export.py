"""`speechmix export RUN`: what a run found of a clip as tiers for Praat or ELAN.

In: a run's folder, a clip's name. Out: a file for each trained model, the words, then a tier for
each measure, stack and layer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import InputError
from .arguments import Subparsers

_EXAMPLES = """examples:
  speechmix export runs/livre --clip livre --layer best
  speechmix export runs/livre --clip livre --format eaf --out annotations --target chats
"""
_ENDINGS = {"textgrid": ".TextGrid", "eaf": ".eaf"}


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    export = commands.add_parser(
        "export",
        help="shares of a run as tiers: TextGrid for Praat, .eaf for ELAN",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.set_defaults(command=_export)
    export.add_argument("run", metavar="RUN", help="folder of a run")
    export.add_argument("--clip", required=True, help="name of the clip")
    export.add_argument(
        "--format", choices=sorted(_ENDINGS), default="textgrid", help="textgrid (default) or eaf"
    )
    export.add_argument(
        "--out", metavar="FOLDER", help="folder, for a file of each model (default: RUN/tiers)"
    )
    export.add_argument(
        "--target", help="the word that receives, as in score (default: the clip's target)"
    )
    export.add_argument("--measure", action="append", help="only this measure; may be repeated")
    export.add_argument("--stack", action="append", help="only this stack; may be repeated")
    export.add_argument(
        "--layer",
        action="append",
        help="a layer, counted from 0, or best: where the cue gives most",
    )
    export.add_argument(
        "--audio", metavar="FOLDER", help="where the audio files are, if they were moved"
    )


def _export(options: argparse.Namespace) -> int:
    from ...files.locks import without_leftovers
    from ...reporting.tier_export import export_tiers

    with without_leftovers(options.out or Path(options.run) / "tiers"):
        paths = export_tiers(
            options.run,
            options.clip,
            ending=_ENDINGS[options.format],
            out=options.out,
            target=options.target,
            measures=options.measure,
            stacks=options.stack,
            layers=_layers(options.layer),
            audio=options.audio,
        )
    for path in paths:
        print(f"tiers: {path}")
    return 0


def _layers(asked: list[str] | None) -> str | list[int]:
    if not asked or asked == ["best"]:
        return "best" if asked else "all"
    try:
        return [int(layer) for layer in asked]
    except ValueError:
        raise InputError(f"--layer takes numbers, or best alone, found {' '.join(asked)}") from None
