"""Who does a job: this process, workers of this machine, or an engine that an extension adds.

In: a job (score_clips.py). Out: what became of it; the folder is the same whoever did it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...extension import load_all
from ...files.json_files import Json
from ...files.shard_assignment import WHOLE, Shard

if TYPE_CHECKING:
    from ..score_clips import RunJob
    from ..scored_run import Run


class Executor(Protocol):
    """Who does the clips of a job, as `InProcess` and `LocalWorkers`."""

    def execute(self, job: RunJob) -> Run:
        """Do a job.

        It raises what `RunJob.run` raises, and InputError if a model cannot be sent to a worker.
        """


@dataclass(frozen=True)
class InProcess:
    """This process does all clips, or those of one shard."""

    shard: Shard = WHOLE

    def execute(self, job: RunJob) -> Run:
        """Do the shard of a job."""
        return job.run(self.shard)


@dataclass(frozen=True)
class Engine:
    """What the option `--engine` takes by a name, as an extension adds it.

    Parameters
    ----------
    build : callable
        From address, number of workers and parameters to the executor.
    summary : str
        What the help of `--engine` says of it.
    has_address : bool
        True if an address may stand behind the name: ``NAME:HOST:PORT``.
    splits_work : bool
        True if `--workers` says into how many parts a run is split.
    parameters : str
        Help of the option ``--NAME``, which sets parameters of the engine; empty if it has none.
    """

    build: Callable[[str | None, int, Mapping[str, Json]], Executor]
    summary: str
    has_address: bool = False
    splits_work: bool = False
    parameters: str = ""


def find_engines() -> dict[str, Engine]:
    """Return the engines of all extensions by name."""
    return {name: engine for _, name, engine in load_all("engines", Engine)}
