"""Add the options of `speechmix score`, and collect the arguments of `score_clips`.

Choose who computes the results: this process, one shard, workers of this machine, an engine of an
extension.

In: the options of a command. Out: the executor for every kind of result.

Add `--fill`, what replaces a removed word, and split its values by the side of the input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...runs.executors.executor import Executor, InProcess, find_engines
from .model_options import (
    add_model_option,
    add_prefix_options,
    add_seed_option,
    add_twin_options,
    list_engine_kinds,
    split_revision,
)

if TYPE_CHECKING:
    from ...files.shard_assignment import Shard


OptionContainer = argparse.ArgumentParser | argparse._ArgumentGroup
_PROCESS = "process"


def add_executor_options(command: OptionContainer) -> None:
    """Add all options from which `choose_executor` chooses."""
    add_shard_option(command)
    add_pool_options(command)


def add_pool_options(command: OptionContainer) -> None:
    """Add the workers of this machine, and the engines of extensions with their parameters."""
    engines = find_engines()
    add_workers_option(command)
    command.add_argument(
        "--engine",
        type=_parse_engine,
        default=_PROCESS,
        metavar="ENGINE",
        help="; ".join(
            ["this process (default)", *(engine.summary for engine in engines.values())]
        ),
    )
    for name, engine in engines.items():
        if engine.parameters:
            command.add_argument(
                f"--{name}",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help=engine.parameters,
            )


def _parse_engine(text: str) -> str:
    forms = [_PROCESS]
    for name, engine in find_engines().items():
        forms += [name, f"{name}:HOST:PORT"] if engine.has_address else [name]
    name, colon, _ = text.partition(":")
    if (f"{name}:HOST:PORT" if colon else name) not in forms:
        expected = " or ".join(filter(None, [", ".join(forms[:-1]), forms[-1]]))
        raise argparse.ArgumentTypeError(
            f"expected {expected}, found {text!r}; what writes the transcripts is --inference-engine"
        )
    return text


def add_shard_option(command: OptionContainer) -> None:
    """Add the option that selects one part of the clips."""
    command.add_argument(
        "--shard", default="1/1", metavar="I/N", help="compute only part I of N, as 3/48"
    )


def add_workers_option(command: OptionContainer) -> None:
    """Add the number of processes on this machine."""
    command.add_argument(
        "--workers",
        default="1",
        metavar="N",
        help="processes on this machine, or auto (default: 1)",
    )


def choose_executor(options: argparse.Namespace, sources: Sequence[str]) -> Executor:
    """Return the executor that the options name, for models of these sources.

    InputError if options contradict each other.
    """
    worker_count = resolve_worker_count(options, sources)
    name, _, address = options.engine.partition(":")
    engines = find_engines()
    for other, engine in engines.items():
        if other != name and engine.parameters and vars(options)[other]:
            raise InputError(f"--{other} needs --engine {other}")
    if name != _PROCESS and parse_shard(options).count > 1:
        raise InputError(f"--engine {name} computes all shards: leave --shard out")
    if name in engines:
        engine = engines[name]
        if engine.splits_work and options.workers in ("1", "auto"):
            raise InputError(f"--engine {name} needs a number of tasks: --workers 48")
        parameters = vars(options)[name] if engine.parameters else []
        split_parameters = dict(_split_parameter(name, text) for text in parameters)
        return engine.build(address or None, worker_count, split_parameters)
    if worker_count > 1:
        from ...runs.executors.local_workers import LocalWorkers

        return LocalWorkers(worker_count, options.device)
    return InProcess(parse_shard(options))


def _split_parameter(engine_name: str, text: str) -> tuple[str, Json]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise InputError(f"--{engine_name} takes NAME=VALUE, as mem_gb=16; found {text!r}")
    return name, int(value) if value.isascii() and value.isdecimal() else value


def refuse_executor_options(options: argparse.Namespace, advice: str) -> None:
    """Raise InputError for a shard, workers or a cluster where only this process can compute."""
    if parse_shard(options).count > 1 or options.workers != "1" or options.engine != _PROCESS:
        raise InputError(f"--shard, --workers and --engine do not apply here: {advice}")


def parse_shard(options: argparse.Namespace) -> Shard:
    """Return the shard of the options; InputError if it is not written I/N."""
    from ...files.shard_assignment import Shard

    return Shard.parse(vars(options).get("shard", "1/1"))


def resolve_worker_count(options: argparse.Namespace, sources: Sequence[str]) -> int:
    """Return the number of workers, for models of these sources.

    InputError if it is no number, or a shard or a cluster is given as well.
    """
    from ...files.shard_assignment import WHOLE
    from ...runs.executors.local_workers import plan_workers

    if options.workers == "1":
        return 1
    if parse_shard(options) != WHOLE:
        raise InputError(
            "--workers splits a run on one machine, --shard between machines: give one of them"
        )
    engine_name = vars(options).get("engine", _PROCESS).partition(":")[0]
    engine = find_engines().get(engine_name)
    if engine and not engine.splits_work:
        raise InputError(
            f"--workers splits a run on one machine, --engine {engine_name} on a cluster: give one of "
            "them"
        )
    if options.workers == "auto":
        return min(
            plan_workers([name], device=options.device, revision=revision)
            for name, revision in map(split_revision, sources)
        )
    if not (options.workers.isascii() and options.workers.isdigit() and int(options.workers)):
        raise InputError(f"--workers takes auto or a number from 1, found {options.workers!r}")
    return int(options.workers)


def add_score_options(score: argparse.ArgumentParser) -> None:
    """Add all options but those for clips and devices."""
    _add_model_options(score)
    _add_measure_options(score)
    _add_output_options(score)
    stages = score.add_argument_group("further results, for clips with cue, target and foil")
    stages.add_argument(
        "--ablate", action="store_true", help="ablate the cue stack by stack; transcribe the clips"
    )
    add_explain_option(stages)
    stages.add_argument(
        "--probe", action="store_true", help="probe hidden states for the column number"
    )
    stages.add_argument(
        "--knock-out", action="store_true", help="knock out each word in each layer"
    )
    stages.add_argument(
        "--faithfulness", action="store_true", help="evaluate which measure is faithful"
    )
    stages.add_argument(
        "--lens",
        choices=("logit", "encoder"),
        help="what the model would have written from each layer",
    )
    add_twin_clips_option(stages, default=0)
    add_group_option(stages)
    add_executor_options(score.add_argument_group("shards, processes, clusters"))


def add_explain_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: int | None = 0
) -> None:
    """Add the number of clips whose transcripts the page explains."""
    default_text = "0" if default is not None else "2 of the bundled clips, else 0"
    command.add_argument(
        "--explain",
        type=int,
        default=default,
        metavar="N",
        help=f"explain transcripts of N clips, errors of 10 N clips (default: {default_text})",
    )


def add_twin_clips_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: int
) -> None:
    """Add the number of clips for the twins after the first."""
    command.add_argument(
        "--twin-clips",
        type=int,
        default=default,
        metavar="N",
        help=f"score only N clips with the twins after the first; 0: all (default: {default or 'all'})",
    )


def collect_score_arguments(options: argparse.Namespace) -> JsonObject:
    """Return the arguments of `score_clips`, but for models, clips, folder and callbacks."""
    from ...mixing.passes.request import MixRequest

    return {
        "align_method": options.align,
        "figures": options.figures,
        "ablation": options.ablate,
        "probes": options.probe,
        "explain": options.explain,
        "kinds": {name: {} for name in ("knock_out", "faithfulness") if vars(options)[name]}
        | list_engine_kinds(options)
        | ({"lens": {"kind": options.lens}} if options.lens else {}),
        "twin_clips": options.twin_clips or None,
        "group": options.group,
        "overwrite": options.overwrite,
        "progress": sys.stderr.isatty() if options.progress is None else options.progress,
        "profile": options.profile,
        "maps": options.maps,
        "maps_dtype": options.maps_dtype,
        "measures": options.measure or MixRequest.measures,
        "stacks": options.stack,
        "layers": options.layer,
        "units": options.units,
        "heads": options.heads,
        "pooling": options.pooling,
        "rounding": options.rounding,
        "include": options.include or [],
        "targets": "target" if options.target_rows_only else None,
    }


def _add_model_options(score: argparse.ArgumentParser) -> None:
    group = score.add_argument_group("models")
    add_model_option(group)
    add_twin_options(group)
    add_seed_option(group)
    add_prefix_options(group)


def _add_measure_options(score: argparse.ArgumentParser) -> None:
    from ...mixing.passes.request import ALLOWED_VALUES, AUDIO_UNITS, MixRequest

    group = score.add_argument_group("scores")
    group.add_argument(
        "--measure",
        action="append",
        help="value_zeroing (default), attention, alti, ...; may be repeated; options behind the "
        "name: value_zeroing:distance=euclidean",
    )
    add_stack_option(group)
    group.add_argument(
        "--layer", type=int, action="append", help="only this layer, from 0; may be repeated"
    )
    for option in ("units", "heads", "pooling", "rounding"):
        values = AUDIO_UNITS if option == "units" else ALLOWED_VALUES[option]
        default = getattr(MixRequest, option)
        group.add_argument(
            f"--{option}", choices=values, default=default, help=f"default: {default}"
        )
    group.add_argument(
        "--include",
        action="append",
        choices=ALLOWED_VALUES["include"],
        help="also rows and columns for these; may be repeated",
    )
    group.add_argument(
        "--target-rows-only", action="store_true", help="only the rows of the target: much faster"
    )


def add_stack_option(
    command: argparse._ActionsContainer, *, names: str = "encoder, decoder, cross"
) -> None:
    """Add `--stack`, which may be repeated."""
    command.add_argument(
        "--stack", action="append", help=f"only this stack: {names}; may be repeated (default: all)"
    )


def add_group_option(command: argparse._ActionsContainer) -> None:
    """Add `--group`, the column of clips that says which belong together."""
    command.add_argument(
        "--group",
        metavar="COLUMN",
        help="column whose values say which clips belong together (default: speakers, or pair, "
        "sentence and target word)",
    )


def _add_output_options(score: argparse.ArgumentParser) -> None:
    output = score.add_argument_group("output")
    output.add_argument(
        "--out", required=True, metavar="FOLDER", help="folder of the run: tables, scores, figures"
    )
    output.add_argument(
        "--figures",
        type=int,
        default=20,
        metavar="N",
        help="draw N clips per trained model (default: 20)",
    )
    output.add_argument(
        "--maps", action="store_true", help="also store maps of words as Parquet, one row per map"
    )
    output.add_argument(
        "--maps-dtype",
        choices=("float32", "float16"),
        help="dtype of stored maps of frames (default: as computed)",
    )
    output.add_argument(
        "--profile", action="store_true", help="measure and print the time of each phase"
    )
    output.add_argument(
        "--overwrite", action="store_true", help="replace another run in the same folder"
    )
    output.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show a progress bar (default: in a terminal)",
    )


_AUDIO_FILLS = ("zeros", "room", "noise", "word")


def add_fill_option(command: argparse._ActionsContainer, *, default: str) -> None:
    """Add `--fill`, which may be repeated."""
    command.add_argument(
        "--fill",
        action="append",
        help=f"replaces a removed word. Audio: {', '.join(_AUDIO_FILLS)}; text: remove, unk, pad, "
        f"mask or a token; may be repeated (default: {default})",
    )


def split_fills_by_side(fills: Sequence[str] | None) -> tuple[list[str] | None, list[str] | None]:
    """Split fills into those of audio and those of text; None where there is none.

    Examples
    --------
    >>> split_fills_by_side(["zeros", "unk"]), split_fills_by_side(None)
    ((['zeros'], ['unk']), (None, None))
    """
    audio_fills = [fill for fill in fills or () if fill in _AUDIO_FILLS]
    token_fills = [fill for fill in fills or () if fill not in _AUDIO_FILLS]
    return audio_fills or None, token_fills or None
