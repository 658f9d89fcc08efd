"""Slurm as the executor of a run, by submitit: each task of a job array does one shard.

In: a job, with models as functions that load them. Out: the run of one process. The folder of the
run must be at the same path on all machines; what tasks print, and what submitit sends them, lies in
`slurm/` there. A task that reaches its time limit or is preempted is put back by submitit and goes
on; one that dies is submitted once more. When this process is stopped, its tasks are cancelled; what
they have done is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError, MissingExtraError, SpeechmixError
from ...files.json_files import Json
from ...files.shard_assignment import Shard
from ...runs.executors.local_workers import (
    FAILED,
    MAX_STARTS,
    failure_message,
    pickle_job,
    progress_bar,
    raise_for_dead_workers,
    run_pickled_job,
)
from ...runs.results.run_folder import RunFolder
from ...runs.score_clips import RunJob
from ...runs.scored_run import Run
from ...runs.shard_merge import drop_repeated_reasons

if TYPE_CHECKING:
    from submitit import AutoExecutor, Job

_DEFAULTS: Mapping[str, Json] = {
    "name": "speechmix",
    "timeout_min": 240,
    "cpus_per_task": 2,
    "mem_gb": 8,
    "slurm_setup": [  # srun does not take the cores over from sbatch
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"
    ],
    "slurm_additional_parameters": {"requeue": True},  # where a node dies
}
_SECONDS_BETWEEN_LOOKS = {"slurm": 10.0, "local": 0.2}


@dataclass(frozen=True)
class SlurmExecutor:
    """Tasks of a Slurm job array do a job, each one shard of it (extra ``slurm``).

    Give it to `score_clips` as ``executor``, with models as functions that load them.

    Parameters
    ----------
    tasks : int
        How many; no more than there are clips. Each loads the models.
    parameters : mapping
        Of `submitit.AutoExecutor.update_parameters`: ``timeout_min``, ``mem_gb``, ``cpus_per_task``,
        ``gpus_per_node``, ``slurm_partition``, ``slurm_array_parallelism`` and others. By default a
        task has four hours, two cores, 8 GB and no GPU.
    cluster : {"slurm", "local"}
        "local": tasks are processes of this machine, to try a command without a cluster.

    Raises
    ------
    InputError
        If there is not one task.

    Examples
    --------
    >>> from functools import partial
    >>> import speechmix
    >>> from speechmix.runs.score_clips import score_clips
    >>> models = [partial(speechmix.load, "openai/whisper-small")]
    >>> executor = SlurmExecutor(48, {"gpus_per_node": 1, "slurm_partition": "gpu"})
    >>> score_clips(models, speechmix.read_clips("clips.tsv"), "run", executor=executor)  # doctest: +SKIP
    """

    tasks: int
    parameters: Mapping[str, Json] = field(default_factory=dict)
    cluster: str = "slurm"

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise InputError(f"expected at least one task, found {self.tasks}")
        if self.cluster not in _SECONDS_BETWEEN_LOOKS:
            raise InputError(f"expected a cluster of slurm or local, found {self.cluster!r}")

    def execute(self, job: RunJob) -> Run:
        """Do a job by tasks that each load its models.

        InputError if there is no Slurm, or a parameter or a model cannot be used; SpeechmixError if
        a task died twice. What it and the others did is kept, and the same job goes on there.
        """
        job = replace(job, models=list(job.models), out=job.out.resolve())
        sent = pickle_job(job)
        executor = self._make_executor(job)
        count = min(self.tasks, max(1, len(job.clips)))
        run = Run(job.out)
        waiting = [Shard(index, count) for index in range(1, count + 1)]
        with progress_bar(len(job.clips), count, job.progress) as show:
            for start in range(MAX_STARTS):
                tasks = _submit(executor, sent, waiting)
                job.report(f"{len(tasks)} tasks are submitted: job {tasks[0][1].job_id}")
                try:
                    for shard, task in self._wait(tasks):
                        outcome = _outcome(task)
                        if outcome is None:
                            continue
                        kind, *content = outcome
                        if kind == FAILED:
                            error, text = content
                            raise error(text)
                        scored, skipped = content
                        run.done += scored
                        run.skipped += skipped
                        waiting.remove(shard)
                        show(
                            sum(
                                not any(left.holds(clip.name) for left in waiting)
                                for clip in job.clips
                            )
                        )
                        job.report(f"[{shard}] done, {scored} scored")
                finally:
                    for _, task in tasks:
                        if not task.done():
                            task.cancel(check=False)
                dead = {
                    shard: f"job {task.job_id}: {task.paths.stderr}"
                    for shard, task in tasks
                    if shard in waiting
                }
                if not dead:
                    break
                again = "submitted again" if start + 1 < MAX_STARTS else "its clips are missing"
                for shard, how in dead.items():
                    job.report(f"[{shard}] the task died ({how}): {again}")
        raise_for_dead_workers(dead, job, RunFolder(job.out))
        run.skipped[:] = drop_repeated_reasons(run.skipped)
        return run

    def _make_executor(self, job: RunJob) -> AutoExecutor:
        try:
            import submitit
        except ImportError as error:
            raise MissingExtraError(
                "submitit", "slurm", "Slurm as the executor of a run"
            ) from error
        try:
            executor = submitit.AutoExecutor(job.out / "slurm", cluster=self.cluster)
            executor.update_parameters(**{**_DEFAULTS, **self.parameters})
        except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"no tasks can be submitted: {error}") from error
        return executor

    def _wait(self, tasks: Sequence[tuple[Shard, Job[Any]]]) -> Iterator[tuple[Shard, Job[Any]]]:
        """Tasks as they end."""
        at_work = dict(tasks)
        while at_work:
            for shard in [shard for shard, task in at_work.items() if task.done()]:
                yield shard, at_work.pop(shard)
            if at_work:
                time.sleep(_SECONDS_BETWEEN_LOOKS[self.cluster])


class ShardTask:
    """One shard, as a function that submitit calls, and puts back before its time is over."""

    def __call__(self, job: bytes, shard: str) -> tuple[Any, ...]:
        """Do a shard of a pickled job; what it says goes to the task's log."""
        try:
            return run_pickled_job(job, shard, lambda *message: print(message[-1], flush=True))
        except SpeechmixError as error:
            return failure_message(error)

    def checkpoint(self, job: bytes, shard: str) -> Any:
        """What goes on later: the same, for the folder knows what is done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job, shard)


def _submit(
    executor: AutoExecutor, job: bytes, shards: Sequence[Shard]
) -> list[tuple[Shard, Job[Any]]]:
    with executor.batch():  # one job array
        tasks = [executor.submit(ShardTask(), job, str(shard)) for shard in shards]
    return [*zip(shards, tasks, strict=True)]


def _outcome(task: Job[Any]) -> tuple[Any, ...] | None:
    """What a task returned; None where it died."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        outcome: tuple[Any, ...] = task.result()
    except (FailedJobError, UncompletedJobError):  # its log says why
        return None
    return outcome
