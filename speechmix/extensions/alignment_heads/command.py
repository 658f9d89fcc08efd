"""`speechmix heads`: choose the alignment heads of a Whisper or another encoder-decoder speech model.

In: a model and clips with word times. Out: sentences; with a folder also tables and a figure; with
`--write` the heads in `generation_config.json`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...errors import InputError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clips_option,
    add_outside_option,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    load_model,
    select_only_model,
)
from ...interfaces.cli.score_options import add_group_option

_EXAMPLES = """examples:
  speechmix heads --model whisper-finetuned --clips aligned.tsv --write
  speechmix heads --model openai/whisper-small --clips corpus --out heads --write
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    heads = commands.add_parser(
        "heads",
        help="choose the attention heads that tell word times (word timestamps)",
        epilog=_EXAMPLES,
    )
    heads.set_defaults(command=_heads)
    add_clips_option(heads)
    add_model_option(heads)
    heads.add_argument(
        "--language", help="language of clips without one, as fr (default: detected by a Whisper)"
    )
    heads.add_argument(
        "--effects",
        type=int,
        default=10,
        metavar="N",
        help="clips whose words are also muted, 0 for none (default: 10)",
    )
    heads.add_argument(
        "--seed", type=int, help="seed that divides the clips into two halves (default: 0)"
    )
    heads.add_argument(
        "--write",
        action="store_true",
        help="write the heads into generation_config.json of the model's folder, or of --out",
    )
    heads.add_argument("--out", metavar="FOLDER", help="folder for the tables and the figure")
    add_group_option(heads)
    add_outside_option(heads)
    add_loading_options(heads)


def _heads(options: argparse.Namespace) -> int:
    from ...reporting.plots.figure_style import write_figure
    from .alignment_heads import alignment_heads

    source = select_only_model(options)
    folder = source if Path(source).is_dir() else options.out
    if options.write and not folder:
        raise InputError(f"--write: {source} is no folder of this machine; give a folder as --out")
    unread: SkippedItems = []
    clips = collect_clips(options, unread)
    heads = alignment_heads(
        load_model(options, source),
        clips,
        effect_clips=options.effects,
        group=options.group,
        seed=options.seed or 0,
        progress=sys.stderr.isatty(),
    )
    print_skipped([*unread, *heads.skipped])
    print(heads.summary)
    if options.out:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        heads.table.to_csv(out / "heads.csv", index=False)
        heads.comparison.to_csv(out / "comparison.csv", index=False)
        write_figure(heads.show(), out / "heads.png", dpi=160)
        print(f"tables and figure: {out}")
    if options.write:
        print(f"alignment heads written: {heads.write(folder)}")
        if folder != source:
            print(f"{source} is not changed: copy the file into a folder of the model, and load it")
    return 0
