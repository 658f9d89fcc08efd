"""`--engine ray` of the commands that many workers can share, and where the cluster is.

In: the parser's group of options. Out: the engine that was asked for; none for the process itself.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from ...runs.executors.ray_executor import RayEngine

_PROCESS, RAY = "process", "ray"


def add_engine_options(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add who does the work."""
    command.add_argument(
        "--engine",
        choices=(_PROCESS, RAY),
        default=_PROCESS,
        help="this process (default), or workers on a Ray cluster that take the clips block by "
        "block",
    )
    command.add_argument(
        "--address",
        help="of the Ray cluster: auto, HOST:PORT (default: RAY_ADDRESS, or this machine alone)",
    )


def engine_of(options: argparse.Namespace) -> RayEngine | None:
    """The engine that was asked for.

    Raises
    ------
    InputError
        If a cluster is named and not asked for.
    """
    if options.engine == RAY:
        from ...runs.executors.ray_executor import RayEngine

        return RayEngine(options.address)
    if options.address is not None:
        raise InputError("--address goes with --engine ray")
    return None
