"""Arguments that cannot be right, said in one line before anything large is imported or computed.

In: a parser; then its parsed options. Out: an error for an option that is given twice, an output on
another machine, and a path that is not there. No model, torch or table is needed for that.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ...errors import InputError
from ...files.json_files import JsonObject

Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"
_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]+:/"
)  # s3://bucket, gs://, https://; a Windows drive has one letter
_TABLES = (".tsv", ".csv", ".jsonl")


SCREEN_LINES = 40  # of a help text; a longer one shows the common options, --help-all the rest
COMMON_OPTIONS = frozenset(
    """
    --help --help-all --version --model --models --clips --manifest --examples --text --words --cue
    --target --foil --language --measure --measures --stack --layer --fill --twins --random-twin
    --seed --seeds --out --shard --workers --device --ablate --probe --explain --faithfulness
    --against --written --sentence --perturbation --label --position --common-voice --corpus --split
    """.split()
)


class CommandParser(argparse.ArgumentParser):
    """A parser whose help fits on one screen, and that refuses an option of one value that is given
    twice, where argparse takes the last one silently."""

    def __init__(self, *positional: Any, **named: Any):
        self.given: JsonObject = {}  # values of this call's options, by what they are stored as
        super().__init__(*positional, **named)
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help=argparse.SUPPRESS)

    def format_help(self) -> str:
        """Return the common options, if all of them take more than a screen."""
        whole = self.format_help_all()
        if len(whole.splitlines()) <= SCREEN_LINES:
            return whole
        rare = [
            action
            for action in self._actions
            if action.option_strings
            and not action.required
            and action.help is not argparse.SUPPRESS
            and COMMON_OPTIONS.isdisjoint(action.option_strings)
        ]
        former, usage = [(action, action.help) for action in rare], self.usage
        positionals = [action for action in self._actions if not action.option_strings]
        names = [
            f"{action.metavar or action.dest}{' ...' if action.nargs else ''}"
            for action in positionals
        ]
        for action in rare:
            action.help = argparse.SUPPRESS
        self.usage = " ".join(["%(prog)s [options]", *names])
        try:
            text = super().format_help()
        finally:
            self.usage = usage
            for action, help_text in former:
                action.help = help_text
        return f"{text}\n{len(rare)} more options: {self.prog} --help-all\n" if rare else text

    def format_help_all(self) -> str:
        """Return the help of all options."""
        return super().format_help()

    def parse_known_args(self, *positional: Any, **named: Any) -> Any:
        """As `argparse.ArgumentParser`; options of an earlier call are forgotten."""
        self.given.clear()
        return super().parse_known_args(*positional, **named)


class _HelpAll(argparse.Action):
    def __call__(self, parser: Any, *_: object) -> None:
        parser._print_message(parser.format_help_all(), sys.stdout)
        parser.exit()


class _StoreOnce(argparse._StoreAction):
    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        if option_string is not None and isinstance(parser, CommandParser):
            if self.dest in parser.given:
                hint = (
                    "; a cue of several words is one text, 'le club'" if self.dest == "cue" else ""
                )
                raise argparse.ArgumentError(
                    self,
                    f"given twice, {parser.given[self.dest]!r} and {values!r}: give it once{hint}",
                )
            parser.given[self.dest] = values
        super().__call__(parser, namespace, values, option_string)


def check_options(options: argparse.Namespace) -> None:
    """Refuse outputs that are no local path, and inputs that are not there.

    Raises
    ------
    InputError
    """
    for path in _texts(options, "out"):
        if _ADDRESS.match(path):
            raise InputError(
                f"--out {path}: expected a folder or file of this machine; results are copied "
                "there afterwards"
            )
    for path in _texts(options, "clips"):
        if "::" not in path and not os.path.exists(path):
            raise InputError(
                f"no such audio file: {path}. Check the spelling and the folder it is relative to"
            )
    for name in ("manifest", "corpus"):
        for path in _texts(options, name):
            if path.lower().endswith(_TABLES) and not os.path.exists(path):
                raise InputError(
                    f"no such file: {path}. Check the spelling of --manifest and the folder it is "
                    "relative to"
                )
    for path in _texts(options, "words"):
        if not os.path.exists(path):
            raise InputError(
                f"no such file of word times: {path}. Check the spelling and the folder it is "
                "relative to"
            )
    for path in (*_texts(options, "run"), *_texts(options, "runs")):
        if not os.path.exists(path):
            raise InputError(
                f"{path} holds no run: there is no such folder; expected one that `speechmix "
                "score` left"
            )
    for name in ("model", "models", "aligner"):
        for path in _texts(options, name):
            if path.startswith((".", "/", "~")) and not os.path.exists(os.path.expanduser(path)):
                raise InputError(
                    f"no such folder: {path!r}. Expected a hub id or a folder with config.json"
                )


def _texts(options: argparse.Namespace, name: str) -> Iterator[str]:
    """Values of an option that are texts; an option may hold one, several or none."""
    value = getattr(options, name, None)
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return (text for text in values if isinstance(text, str) and text)


def named_options(function: Callable[..., object], options: argparse.Namespace) -> JsonObject:
    """Parsed options that have the name of one of a function's arguments.

    Examples
    --------
    >>> named_options(lambda seed, out: None, argparse.Namespace(seed=1, verbose=True))
    {'seed': 1}
    """
    names = inspect.signature(function).parameters
    return {name: value for name, value in vars(options).items() if name in names}
