"""Check parsed options before anything large is imported or computed.

In: parsed options. Out: an error for an output on another machine, and for a path that does not
exist. No model, torch or table is needed for that.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import InputError
from ...files.json_files import JsonObject

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")  # s3://bucket; a Windows drive has one letter
_FILE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".wav", ".flac", ".mp3", ".ogg", ".opus")


def check_options(options: argparse.Namespace) -> None:
    """Raise InputError for outputs that are no local path, and for inputs that do not exist."""
    for path in _list_texts(options, "out"):
        if _URL.match(path):
            raise InputError(
                f"--out {path}: expected a folder or file on this machine; copy the results "
                "afterwards"
            )
    for path in (*_list_texts(options, "clips"), *_list_texts(options, "corpus")):
        if "::" not in path and path.lower().endswith(_FILE_SUFFIXES) and not os.path.exists(path):
            raise InputError(f"no such file: {path}. Paths are relative to {os.getcwd()}")
    for name in ("words", "texts"):
        for path in _list_texts(options, name):
            if not os.path.exists(path):
                raise InputError(
                    f"no such file: --{name} {path}. Paths are relative to {os.getcwd()}"
                )
    for path in (*_list_texts(options, "run"), *_list_texts(options, "runs")):
        if not os.path.exists(path):
            raise InputError(
                f"no such folder: {path}. Expected the folder of a run, as `speechmix score` makes it"
            )
    for name in ("model", "aligner"):
        for path in _list_texts(options, name):
            if path.startswith((".", "/", "~")) and not os.path.exists(os.path.expanduser(path)):
                raise InputError(
                    f"no such folder: {path!r}. Expected a hub id, bundled:NAME, or a folder with "
                    "config.json"
                )


def _list_texts(options: argparse.Namespace, name: str) -> Iterator[str]:
    """List the values of an option that are texts; an option may hold one, several or none."""
    value = getattr(options, name, None)
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return (text for text in values if isinstance(text, str) and text)


def select_arguments(function: Callable[..., object], options: argparse.Namespace) -> JsonObject:
    """Return the parsed options that are named like one of a function's arguments.

    Examples
    --------
    >>> select_arguments(lambda seed, out: None, argparse.Namespace(seed=1, verbose=True))
    {'seed': 1}
    """
    names = inspect.signature(function).parameters
    return {name: value for name, value in vars(options).items() if name in names}
