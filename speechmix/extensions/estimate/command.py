"""`speechmix estimate`: estimate the cost of a run; and a line with the cost before a long run."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...files.json_files import JsonObject
from ...interfaces.cli.command_parser import Subparsers

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

_EXAMPLES = """examples:
  speechmix estimate --model openai/whisper-small --clip-count 200 --target-rows-only
  speechmix estimate --model openai/whisper-medium --model openai/whisper-small --twins 1
  speechmix estimate --model Qwen/Qwen2-Audio-7B-Instruct --items items.jsonl
  speechmix estimate --pilot runs/pilot
"""
_CLIP_SECONDS = 5.0  # of a clip, by default
_LONG_SECONDS = 180  # a run this long is announced
_SMALL_COST = 10**9  # parameters times clips of a run that is short on any machine


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from ...interfaces.cli.clip_options import add_outside_option
    from ...interfaces.cli.model_options import (
        add_loading_options,
        add_model_option,
        add_twin_options,
    )
    from ...interfaces.cli.score_options import add_stack_option

    command = commands.add_parser(
        "estimate",
        help="estimate the cost of a run: parameters, memory, time here and on a GPU; or clips",
        description="Only the config of a model on the hub is read; with --items, the model is loaded. "
        "With --pilot: how many groups of clips find a difference of 5, 10 and 15 points to untrained "
        "models, from the spread of a pilot run.",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_estimate)
    add_model_option(command, required=False)
    command.add_argument(
        "--pilot", metavar="RUN", help="folder of a run of some clips, with two twins or more"
    )
    command.add_argument(
        "--clip-count", type=int, default=1, metavar="N", help="number of clips (default: 1)"
    )
    command.add_argument(
        "--seconds",
        type=float,
        default=_CLIP_SECONDS,
        metavar="S",
        help="length of a clip (default: 5)",
    )
    command.add_argument(
        "--measure", action="append", help="value_zeroing (default), ...; may be repeated"
    )
    add_stack_option(command)
    command.add_argument(
        "--target-rows-only", action="store_true", help="only the rows of the target"
    )
    add_twin_options(command)
    add_loading_options(command)
    items = command.add_argument_group("a listening report, in place of scores")
    items.add_argument("--items", metavar="PATH", help="its items, as for `speechmix listening`")
    items.add_argument("--dtype", help="precision of the weights (default: float32)")
    add_outside_option(items)


def _estimate(options: argparse.Namespace) -> int:
    if options.pilot:
        return _print_groups_needed(options.pilot)
    if not options.model:
        raise InputError("expected --model MODEL (may be repeated), or --pilot RUN")
    if options.items:
        _refuse_score_options(options)
        return _estimate_listening(options)
    from ...interfaces.cli.model_options import split_revision
    from ...mixing.passes.request import MixRequest
    from .estimate import estimate

    for name, revision in map(split_revision, options.model):
        print(
            estimate(
                name,
                clips=options.clip_count,
                seconds=options.seconds,
                measures=options.measure or MixRequest.measures,
                stacks=options.stack,
                targets="target" if options.target_rows_only else None,
                twins=options.twins,
                device=options.device,
                revision=revision,
            ).text(),
            flush=True,
        )
    return 0


def _print_groups_needed(pilot: str) -> int:
    """Print how many groups of clips a study needs."""
    from ...evaluation.statistics.claim_rule import DEFAULT_TWINS
    from ...evaluation.statistics.random_twin_comparison import POWER
    from .estimate import groups_needed

    print(groups_needed(pilot).to_string(index=False, na_rep="never", float_format="{:.1f}".format))
    print(
        f"\nIndependent groups of clips that find a difference to untrained models in {100 * POWER:.0f} % of "
        f"studies with {DEFAULT_TWINS} twins. A negative difference of skewed shares needs up to twice as "
        "many. A pilot of 10 groups knows the spread only roughly: the numbers may be half or three times "
        "as large."
    )
    return 0


def _refuse_score_options(options: argparse.Namespace) -> None:
    """Raise an error for options of scores where a listening report is asked about."""
    is_given = {
        "--clip-count": options.clip_count != 1,
        "--seconds": options.seconds != _CLIP_SECONDS,
        "--measure": options.measure,
        "--stack": options.stack,
        "--target-rows-only": options.target_rows_only,
        "--twins": options.twins,
    }
    if names := [name for name, value in is_given.items() if value]:
        raise InputError(f"{', '.join(names)}: not with --items, which counts a listening report")


def _estimate_listening(options: argparse.Namespace) -> int:
    from ...interfaces.cli.clip_options import SkippedItems, print_skipped
    from ...interfaces.cli.model_options import create_loaders
    from ..listening.items import read_listening_items
    from ..listening.listening import estimate_listening

    skipped: SkippedItems = []
    items = read_listening_items(
        options.items, allow_outside=options.allow_outside, skipped=skipped
    )
    print_skipped(skipped)
    for source, load in zip(options.model, create_loaders(options, options.model), strict=True):
        cost = estimate_listening(load(), items)
        print_skipped(cost.skipped)
        print(f"{source}: {cost}", flush=True)
    return 0


def announce_duration(
    loaders: Sequence[Callable[[], Model]],
    clips: Sequence[Clip],
    print_message: Callable[[str], object],
    **cost_options: Any,
) -> list[Callable[[], Model]]:
    """Make the first loader print how long the run will take, if that is long.

    Parameters
    ----------
    loaders : sequence of callable
        Of all models of a run, twins included.
    clips : sequence of Clip
        Those that this process scores.
    print_message : callable
    **cost_options
        Measures, stacks and targets, as for `speechmix.estimate`.
    """
    first_loader, *others = loaders
    announcing_loader = partial(
        _load_and_announce, first_loader, len(loaders), clips, print_message, cost_options
    )
    return [announcing_loader, *others]


def _load_and_announce(
    load: Callable[[], Model],
    model_count: int,
    clips: Sequence[Clip],
    print_message: Callable[[str], object],
    cost_options: JsonObject,
) -> Model:
    model = load()
    with suppress(Exception):  # an estimate must not stop a run
        line = describe_duration(model, model_count, clips, **cost_options)
        if line:
            print_message(line)
    return model


def describe_duration(
    model: Model, model_count: int, clips: Sequence[Clip], **cost_options: Any
) -> str:
    """Return a line about the time of a long run, or an empty string for a short one."""
    parameter_count = sum(weight.numel() for weight in model.module.parameters())
    if parameter_count * model_count * len(clips) < _SMALL_COST:
        return ""
    from .estimate import estimate, format_seconds

    lengths = [clip.duration for clip in itertools.islice(clips, 20)]
    cost = estimate(
        model,
        clips=len(clips),
        seconds=sum(lengths) / len(lengths),
        twins=model_count - 1,
        **cost_options,
    )
    if cost.total_seconds < _LONG_SECONDS:
        return ""
    return (
        f"estimated time: {format_seconds(cost.total_seconds)} for {len(clips)} clips and "
        f"{model_count} model{'s' * (model_count > 1)} like {model.name} "
        f"({format_seconds(cost.seconds_per_clip)} per clip; stored results are not computed again)"
    )
