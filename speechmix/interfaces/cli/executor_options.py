"""Who does the work of a command: this process, one shard, workers of this machine, a Ray cluster.

In: the parser's group of options; then the parsed options. Out: the executor of every kind of result.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from ...files.shards import Shard
    from ...runs.executors.executor import Executor

Command = argparse.ArgumentParser | argparse._ArgumentGroup
_PROCESS, _RAY = "process", "ray"


def add_executor_options(command: Command) -> None:
    """Add all options by which `executor_of` chooses."""
    add_shard_option(command)
    add_workers_option(command)
    command.add_argument(
        "--engine",
        choices=(_PROCESS, _RAY),
        default=_PROCESS,
        help="this process (default), or workers on a Ray cluster that take the clips block by "
        "block",
    )
    command.add_argument(
        "--address",
        help="of the Ray cluster: auto, HOST:PORT (default: RAY_ADDRESS, or this machine alone)",
    )


def add_shard_option(command: Command) -> None:
    """Add which shard of the clips a process takes."""
    command.add_argument(
        "--shard",
        default="1/1",
        metavar="I/N",
        help="only this part of the clips, counted from 1 (3/48)",
    )


def add_workers_option(command: Command) -> None:
    """Add by how many processes of this machine the clips are scored."""
    command.add_argument(
        "--workers",
        default="1",
        metavar="N",
        help="processes on this machine, or auto (default: 1)",
    )


def executor_of(options: argparse.Namespace, sources: Sequence[str]) -> Executor:
    """Return who does the work, for models of these sources: the one place where it is chosen.

    Raises
    ------
    InputError
        If options contradict each other.
    """
    from ...runs.executors.executor import InProcess

    workers = worker_count(options, sources)
    if options.engine == _RAY:
        from ...runs.executors.ray_executor import RayExecutor

        if shard_of(options).count > 1:
            raise InputError("--shard and --engine ray: give one of them, for Ray does all clips")
        return RayExecutor(options.address)
    if options.address is not None:
        raise InputError("--address goes with --engine ray")
    if workers > 1:
        from ...runs.executors.local_workers import LocalWorkers

        return LocalWorkers(workers, options.device)
    return InProcess(shard_of(options))


def refuse_executor(options: argparse.Namespace, advice: str) -> None:
    """Refuse a shard, workers or a cluster where a command works in this process alone.

    Raises
    ------
    InputError
        If one is given.
    """
    if shard_of(options).count > 1 or options.workers != "1" or options.engine != _PROCESS:
        raise InputError(f"--shard, --workers and --engine are not of this command: {advice}")


def shard_of(options: argparse.Namespace) -> Shard:
    """Return the shard of the options.

    Raises
    ------
    InputError
        If it is none.
    """
    from ...files.shards import Shard

    return Shard.parse(options.shard)


def worker_count(options: argparse.Namespace, sources: Sequence[str]) -> int:
    """Return how many workers score with models of these sources.

    Raises
    ------
    InputError
        If it is no number, or a shard or a cluster is given, too.
    """
    from ...files.shards import WHOLE
    from ...runs.executors.machine_resources import workers_for

    if options.workers == "1":
        return 1
    if "shard" in vars(options) and shard_of(options) != WHOLE:
        raise InputError(
            "--workers divides a run among the processes of one machine, --shard among machines: "
            "give one of them"
        )
    if vars(options).get("engine") == _RAY:
        raise InputError(
            "--workers divides a run among the processes of one machine, --engine ray among those "
            "of a cluster: give one of them"
        )
    if options.workers == "auto":
        return workers_for(sources, device=options.device, revision=vars(options).get("revision"))
    if not (options.workers.isascii() and options.workers.isdigit() and int(options.workers)):
        raise InputError(
            f"expected --workers auto, or a number of at least 1, found {options.workers!r}"
        )
    return int(options.workers)
