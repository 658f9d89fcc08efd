"""`speechmix engine`: what an engine writes about clips, and how far a copy of its weights is from it."""

from __future__ import annotations

import argparse

from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clip_options,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_inference_engine_option,
    add_loading_options,
    add_model_option,
    load_model,
    select_only_model,
)

_EXAMPLES = """examples:
  speechmix engine clip.wav --model faster-whisper-small --inference-engine ctranslate2:int8
  speechmix engine clips.tsv --model ggml-base.en-q5_1.bin --inference-engine whisper.cpp
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "engine",
        help="what CTranslate2, whisper.cpp or ONNX Runtime write, and how far a copy is",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_engine)
    add_clip_options(command)
    add_model_option(command)
    add_inference_engine_option(command, required=True)
    add_loading_options(command, engine=False)


def _engine(options: argparse.Namespace) -> int:
    import warnings

    from .engine_distance import MAX_MEAN_NATS, MIN_AGREEMENT

    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    model = load_model(options, select_only_model(options))
    print(model.describe())
    for clip in clips:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is printed here
            distance = model.engine.measure(model, clip)
        print(f"{distance}\n  {distance.text}")
        if distance.is_too_far:
            print(
                f"  Over {MAX_MEAN_NATS:g} nats on average, or under {MIN_AGREEMENT:.0%} of tokens, nothing is explained."
            )
    print_skipped(skipped)
    return 0 if clips else 1
