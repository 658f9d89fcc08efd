"""`--engine ray` and `--engine slurm`: what the command line knows of them before it imports them."""

from __future__ import annotations

from collections.abc import Mapping

from ...files.json_files import Json
from ...runs.executors.executor import Engine, Executor


def _build_ray(address: str | None, worker_count: int, parameters: Mapping[str, Json]) -> Executor:
    from .ray_executor import RayExecutor

    return RayExecutor(address)


def _build_slurm(
    address: str | None, worker_count: int, parameters: Mapping[str, Json]
) -> Executor:
    from .slurm_executor import SlurmExecutor

    return SlurmExecutor(worker_count, parameters)


RAY = Engine(
    _build_ray,
    "ray: workers of a Ray cluster, ray:HOST:PORT of one with this address (default: RAY_ADDRESS, or "
    "this machine)",
    has_address=True,
)
SLURM = Engine(
    _build_slurm,
    "slurm: --workers tasks of Slurm",
    splits_work=True,
    parameters="of each task: timeout_min (default: 240), mem_gb (8), cpus_per_task (2), gpus_per_node (0), "
    "slurm_partition, ...; may be repeated",
)
