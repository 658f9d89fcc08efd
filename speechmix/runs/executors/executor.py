"""Who does a job: this process, workers of this machine, tasks of Slurm, or a Ray cluster.

In: a job (run_job.py). Out: what became of it; the folder is the same whoever did it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...files.shard_assignment import WHOLE, Shard

if TYPE_CHECKING:
    from ..run_job import RunJob
    from ..scored_run import Run


class Executor(Protocol):
    """Who does the clips of a job: `InProcess`, `LocalWorkers`, `SlurmExecutor` or `RayExecutor`."""

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
