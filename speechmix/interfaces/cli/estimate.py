"""`speechmix estimate`: what a run costs before it is begun; and the line that says so before a
long one.

In: the parser's subcommands; models and clips of a run. Out: lines for people. The line before a
run never makes it fail.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...files.json_files import JsonObject
from .arguments import Subparsers

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

_EXAMPLES = """examples:
  speechmix estimate --model openai/whisper-small --clips 200 --target-rows-only
  speechmix estimate --model openai/whisper-medium --model openai/whisper-large-v3-turbo --clips 1000 --random-twin 0
"""
_LONG = 180  # seconds of a run that are worth a line before it
_SHORT = 10**9  # parameters times clips that are over in less on any machine


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from .model_options import add_loading_options

    command = commands.add_parser(
        "estimate",
        help="what a run will cost: parameters, memory, time here and on a GPU",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=_estimate)
    command.add_argument(
        "--model",
        action="append",
        required=True,
        help="hub id (only its config is read) or folder; may be repeated",
    )
    command.add_argument(
        "--clips", type=int, default=1, metavar="N", help="how many clips (default: 1)"
    )
    command.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of a clip (default: 5)"
    )
    command.add_argument(
        "--measure", action="append", help="value_zeroing (default), ...; may be repeated"
    )
    command.add_argument(
        "--stack", action="append", help="encoder, decoder, cross (default: all there are)"
    )
    command.add_argument(
        "--target-rows-only", action="store_true", help="only the target word's rows"
    )
    command.add_argument(
        "--random-twin",
        type=int,
        action="append",
        metavar="SEED",
        help="count a random twin, too; may be repeated",
    )
    add_loading_options(command)


def _estimate(options: argparse.Namespace) -> int:
    from ...mixing.passes.estimate import estimate
    from ...mixing.passes.request import MixRequest

    for source in options.model:
        print(
            estimate(
                source,
                clips=options.clips,
                seconds=options.seconds,
                measures=options.measure or MixRequest.measures,
                stacks=options.stack,
                targets="target" if options.target_rows_only else None,
                twins=len(set(options.random_twin or ())),
                device=options.device,
                revision=options.revision,
            ).text(),
            flush=True,
        )
    return 0


def announcing(
    loaders: Sequence[Callable[[], Model]],
    clips: Sequence[Clip],
    say: Callable[[str], object],
    **asked: Any,
) -> list[Callable[[], Model]]:
    """Have the first model that is loaded say how long the run will take, if that is long.

    Parameters
    ----------
    loaders : sequence of callable
        Of all models of a run, twins among them.
    clips : sequence of Clip
        What this process scores.
    say : callable
    **asked
        Measures, stacks and targets, as for `speechmix.estimate`.
    """
    first, *others = loaders
    return [partial(_announced, first, len(loaders), clips, say, asked), *others]


def _announced(
    load: Callable[[], Model],
    n_models: int,
    clips: Sequence[Clip],
    say: Callable[[str], object],
    asked: JsonObject,
) -> Model:
    model = load()
    with suppress(Exception):  # a run does not fail for what is said about it
        line = long_run(model, n_models, clips, **asked)
        if line:
            say(line)
    return model


def long_run(model: Model, n_models: int, clips: Sequence[Clip], **asked: Any) -> str:
    """Return the line about a run that takes minutes; nothing of a shorter one, which costs a look
    at the parameters."""
    parameters = sum(weight.numel() for weight in model.module.parameters())
    if parameters * n_models * len(clips) < _SHORT:
        return ""
    from ...mixing.passes.cost_estimate import format_seconds
    from ...mixing.passes.estimate import estimate

    lengths = [clip.duration for clip in itertools.islice(clips, 20)]
    seconds = sum(lengths) / len(lengths)
    estimate_of_run = estimate(
        model, clips=len(clips), seconds=seconds, twins=n_models - 1, **asked
    )
    if estimate_of_run.total_seconds < _LONG:
        return ""
    return (
        f"about {format_seconds(estimate_of_run.total_seconds)}: {len(clips)} clips, {n_models} "
        f"model{'s' * (n_models > 1)} like {model.name}, "
        f"{format_seconds(estimate_of_run.seconds_per_clip)} a clip (estimated; what was scored before takes no time)"
    )
