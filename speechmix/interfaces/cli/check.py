"""`speechmix check`: load a model, and check that its layers are understood."""

from __future__ import annotations

import argparse

from .arguments import Subparsers
from .model_options import add_loading_options, loaded


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    check = commands.add_parser(
        "check", help="load a model and check that its layers are understood"
    )
    check.add_argument("model", help="hub id or folder")
    check.set_defaults(command=_check)
    add_loading_options(check, precision=True)


def _check(options: argparse.Namespace) -> int:
    from ...files.versions import versions

    model = loaded(options, options.model)
    print(model.describe())
    parts = [
        name
        for name, part in (
            ("feature extractor", model.feature_extractor),
            ("tokenizer", model.tokenizer),
        )
        if part
    ]
    print(f"  processor: {', '.join(parts) or 'none found (prepared inputs only)'}")
    print(
        "  self-check passed: attention rows sum to one, replay equals the forward pass, zeroing "
        "has an effect"
    )
    print(versions())
    return 0
