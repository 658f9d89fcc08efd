"""`speechmix listening`: does a model use the sound, or does it guess from the text?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...interfaces.cli.clip_options import SkippedItems, add_outside_option, print_skipped
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import add_loading_options, add_prefix_option, create_loaders
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_group_option,
    choose_executor,
    refuse_executor_options,
)

if TYPE_CHECKING:
    from .listening import Listening

_EXAMPLES = """examples:
  speechmix estimate --model Qwen/Qwen2-Audio-7B-Instruct --items items.jsonl
  speechmix listening Qwen/Qwen2-Audio-7B-Instruct --items items.jsonl
  speechmix listening MODEL OTHER_MODEL --items items.jsonl --out runs/listening --workers 4
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "listening",
        help="does an audio language model use the sound, or guess from the text?",
        description="Test whether the answers of a model depend on the sound: exchange it, and mute it.\n"
        "Columns of the items: path, prompt, answer; optional: options, hint, text_answer, kind, pair.",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_listening)
    command.add_argument("models", nargs="*", metavar="MODEL", help=argparse.SUPPRESS)
    command.add_argument("--model", action="append", help="hub id or folder; may be repeated")
    command.add_argument(
        "--items",
        required=True,
        metavar="PATH",
        help="required: table (.jsonl, .tsv, .csv) or data set",
    )
    command.add_argument(
        "--where", action="store_true", help="also find layers and heads that carry the sound"
    )
    command.add_argument(
        "--seconds", type=float, metavar="S", help="also find which stretches of S s are needed"
    )
    command.add_argument("--out", metavar="FOLDER", help="folder of a run, for tables and the page")
    add_executor_options(command.add_argument_group("shards and processes, with --out"))
    add_prefix_option(command)
    add_group_option(command)
    add_outside_option(command)
    add_loading_options(command, precision=True, engine=False)


def _listening(options: argparse.Namespace) -> int:
    from .items import read_listening_items
    from .listening import listening
    from .listening_page import write_listening_page
    from .listening_runs import listen_to_items

    skipped: SkippedItems = []
    sources = [*options.models, *(options.model or ())]
    if not sources:
        raise InputError("no model: give a hub id or a folder, as in `speechmix listening MODEL`")
    items = read_listening_items(
        options.items, allow_outside=options.allow_outside, skipped=skipped
    )
    loaders, out = create_loaders(options, sources), options.out
    request: dict[str, Any] = {"seconds": options.seconds, "where": options.where}
    request["group"] = options.group
    request["progress"] = sys.stderr.isatty()
    results: Sequence[Listening] | None
    if out:
        executor = choose_executor(options, sources)
        results = listen_to_items(loaders, items, out, executor=executor, **request)
    else:
        refuse_executor_options(options, "give a folder as --out")
        results = [listening(load(), items, **request) for load in loaders]
    print_skipped(skipped)
    if results is None:
        print(f"shard {options.shard} is finished; `speechmix status {out}` lists the others")
        return 0
    for result in results:
        print_skipped(result.skipped)
        print(f"{result.model_name}\n{result.summary}\n{result.card_line}\n")
    if out:
        print(f"page: {write_listening_page(results, f'{out}/listening.html')}")
    return 0
