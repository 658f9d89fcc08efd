"""Add `--fill`, what replaces a removed word, and split its values by the side of the input."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_AUDIO_FILLS = ("zeros", "room", "noise", "word")


def add_fill_option(command: argparse._ActionsContainer, *, default: str) -> None:
    """Add `--fill`, which may be repeated."""
    command.add_argument(
        "--fill",
        action="append",
        help=f"replaces a removed word. Audio: {', '.join(_AUDIO_FILLS)}; text: remove, unk, pad, "
        f"mask or a token; may be repeated (default: {default})",
    )


def split_fills(fills: Sequence[str] | None) -> tuple[list[str] | None, list[str] | None]:
    """Split fills into those of audio and those of text; None where there is none.

    Examples
    --------
    >>> split_fills(["zeros", "unk"]), split_fills(None)
    ((['zeros'], ['unk']), (None, None))
    """
    audio_fills = [fill for fill in fills or () if fill in _AUDIO_FILLS]
    token_fills = [fill for fill in fills or () if fill not in _AUDIO_FILLS]
    return audio_fills or None, token_fills or None
