"""Add the options by which a command writes word times, and choose the file of each recording.

In: a command and its formats; then its parsed options. Out: a path for each recording, or None where
the times are printed. An existing file is only replaced where that is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from ...files.names import distinct_file_names


def add_output_options(command: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Add `--out`, `--format` and `--overwrite`."""
    command.set_defaults(formats=formats)
    command.add_argument(
        "--out",
        metavar="PATH",
        help=f"a file that ends in .{', .'.join(formats)}, or a folder with --format (default: print)",
    )
    command.add_argument(
        "--format",
        choices=formats,
        help="write NAME.FORMAT for each recording, into the folder of --out or this one",
    )
    command.add_argument("--overwrite", action="store_true", help="replace existing files")


def choose_output_paths(options: argparse.Namespace, names: Sequence[str]) -> list[Path | None]:
    """Return the file of each recording; None where the times are printed.

    InputError if one file is named for several recordings, the two options do not agree, or a file
    exists that is not to be replaced.
    """
    if options.out is None and options.format is None:
        return [None] * len(names)
    out = Path(options.out or ".")
    endings = {f".{name}".lower(): name for name in options.formats}
    out_format = endings.get(out.suffix.lower()) if not out.is_dir() else None
    if out_format is None and options.format is None:
        raise InputError(
            f"--out {out}: expected a file that ends in .{', .'.join(options.formats)}, or a folder and "
            "--format"
        )
    if out_format is None:
        file_names = distinct_file_names(names)
        paths = [out / f"{file_names[name]}.{options.format}" for name in names]
    elif len(names) > 1:
        raise InputError(
            f"--out {out} is one file, for {len(names)} recordings: give a folder, and --format"
        )
    elif options.format not in (None, out_format):
        raise InputError(f"--out {out} and --format {options.format} name two formats: give one")
    else:
        paths = [out]
    for path in paths:
        if path.exists() and not options.overwrite:
            raise InputError(f"{path} exists: give --overwrite to replace it, or another --out")
    if out_format is None:
        out.mkdir(parents=True, exist_ok=True)
    return list(paths)
