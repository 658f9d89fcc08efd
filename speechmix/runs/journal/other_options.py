"""Refuse to restart a stage with other options."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from .stage_files import UNFINISHED
from .stage_lines import read_header, read_stage_options


def check_output_options(path: Path, options: JsonObject, overwrite: bool) -> None:
    """Refuse an output made with other options, or remove it if it may be overwritten; one without
    a header is set aside."""
    if not path.is_file():
        return
    header = read_header(path)
    if not header:
        if path.stat().st_size and not path.name.endswith(UNFINISHED):
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            warnings.warn(
                f"{path} is damaged (or of an older version): set aside as {aside.name} and made "
                "again",
                stacklevel=3,
            )
            return
        path.unlink()
    elif header["options"] != options:
        if not overwrite:
            raise InputError(
                f"{path} was made with other options ({_format_difference(header['options'], options)}): "
                "choose another folder, or overwrite it"
            )
        path.unlink()


def check_shard_options(output: Path, options: JsonObject) -> None:
    """Refuse a shard that is not of the options of the other shards of the output."""
    others = read_stage_options(output)
    if others and others != options:
        raise InputError(
            f"the shards of {output.stem} in {output.parent} are made with other options "
            f"({_format_difference(others, options)}): use "
            "theirs, choose another folder, or overwrite all of them"
        )


def _format_difference(stored: JsonObject, now: JsonObject) -> str:
    names = sorted(name for name in {*stored, *now} if stored.get(name) != now.get(name))
    return "; ".join(f"{name}: {stored.get(name)!r}, now {now.get(name)!r}" for name in names)[:500]
