"""`speechmix check`: load models, and check that their layers are understood."""

from __future__ import annotations

import argparse

from .command_parser import Subparsers
from .model_options import add_loading_options, add_model_option, load_model


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    check = commands.add_parser(
        "check", help="load a model and check that its layers are understood"
    )
    check.set_defaults(command=_check)
    add_model_option(check)
    add_loading_options(check, precision=True)


def _check(options: argparse.Namespace) -> int:
    from ...files.versions import versions

    for source in options.model:
        model = load_model(options, source)
        print(model.describe())
        processors = {
            "feature extractor": model.feature_extractor,
            "tokenizer": model.tokenizer,
        }
        names = [name for name, processor in processors.items() if processor]
        print(f"  processor: {', '.join(names) or 'none found (prepared inputs only)'}")
        print(
            "  self-check passed: attention rows sum to one, the replayed layers equal the forward "
            "pass, zeroing values changes the output"
        )
    print(versions())
    return 0
