"""Choose who computes the results: this process, one shard, workers of this machine, a Ray cluster.

In: the options of a command. Out: the executor for every kind of result.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from ...files.shard_assignment import Shard
    from ...runs.executors.executor import Executor

OptionContainer = argparse.ArgumentParser | argparse._ArgumentGroup
_PROCESS, _RAY = "process", "ray"


def add_executor_options(command: OptionContainer) -> None:
    """Add all options from which `choose_executor` chooses."""
    add_shard_option(command)
    add_pool_options(command)


def add_pool_options(command: OptionContainer) -> None:
    """Add the workers of this machine and those of a Ray cluster."""
    add_workers_option(command)
    command.add_argument(
        "--engine",
        choices=(_PROCESS, _RAY),
        default=_PROCESS,
        help="this process (default), or workers of a Ray cluster",
    )
    command.add_argument(
        "--address",
        help="address of the Ray cluster: auto, HOST:PORT (default: RAY_ADDRESS, or this machine)",
    )


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
    from ...runs.executors.executor import InProcess

    worker_count = resolve_worker_count(options, sources)
    if options.engine == _RAY:
        from ...runs.executors.ray_executor import RayExecutor

        if parse_shard(options).count > 1:
            raise InputError("--engine ray computes all shards: leave --shard out")
        return RayExecutor(options.address)
    if options.address is not None:
        raise InputError("--address needs --engine ray")
    if worker_count > 1:
        from ...runs.executors.local_workers import LocalWorkers

        return LocalWorkers(worker_count, options.device)
    return InProcess(parse_shard(options))


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
    from ...runs.executors.machine_resources import plan_workers

    if options.workers == "1":
        return 1
    if parse_shard(options) != WHOLE:
        raise InputError(
            "--workers splits a run on one machine, --shard between machines: give one of them"
        )
    if vars(options).get("engine") == _RAY:
        raise InputError(
            "--workers splits a run on one machine, --engine ray on a cluster: give one of them"
        )
    if options.workers == "auto":
        return plan_workers(sources, device=options.device, revision=vars(options).get("revision"))
    if not (options.workers.isascii() and options.workers.isdigit() and int(options.workers)):
        raise InputError(f"--workers takes auto or a number from 1, found {options.workers!r}")
    return int(options.workers)
