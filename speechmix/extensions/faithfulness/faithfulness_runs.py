"""Faithfulness of measures over many clips: stored in a run's folder clip by clip, resumable, in shards.

In: a model, clips, options, a folder. Out: the evaluation, and its tables in the folder
(kind.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ...runs.executors.executor import Executor
from ...runs.progress import Progress
from ...runs.results.run_folder import RunFolder, RunState
from ...runs.score_clips import compute_kinds
from ...runs.shard_merge import list_job_parts, read_job_clips, read_job_skipped
from .kind import FAITHFULNESS_KIND, stored_faithfulness
from .options import DEFAULT_MEASURES, MIN_WORDS, evaluation_options, resolve_measures
from .results import FaithfulnessResults


def faithfulness_of_clips(
    model: Model | Callable[[], Model],
    clips: Sequence[Clip],
    out: str | Path,
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    min_words: int = MIN_WORDS,
    group: str | None = None,
    aligner: Model | Callable[[], Model] | None = None,
    align_method: str = "auto",
    shard: Shard | str | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    skipped: list[tuple[str, str]] | None = None,
    **options: Any,
) -> FaithfulnessResults | None:
    """Evaluate measures as `speechmix.faithfulness` does, and store what is found of each clip.

    Parameters
    ----------
    model : Model, or function that loads one
        With its head.
    clips : sequence of Clip
        All clips of the evaluation, whatever the shard; those without words are aligned first.
    out : path
        Folder of a run, or a fresh one. Gets the tables, beside those of other models.
    measures, min_words, group
        As for `speechmix.faithfulness`.
    aligner, align_method, shard, executor, progress
        As for `score_clips`.
    skipped : list, optional
        Gets (name, reason) of clips that were left out.
    **options
        perturbations, aggregations, metrics, protocol, units of `speechmix.faithfulness`.

    Returns
    -------
    FaithfulnessResults or None
        None while other shards are not done. Who ends last has the evaluation, with the tables of
        one process.

    Raises
    ------
    InputError
        For options that cannot be, two clips of one name, or no clip that can be used.
    StorageError
        If another process does this shard, or the folder cannot be written to. What was computed is
        kept.

    Examples
    --------
    >>> faithfulness_of_clips(model, clips, "runs/small", shard="3/48")                   # doctest: +SKIP
    """
    evaluation_options(**options, min_words=min_words)
    if isinstance(model, Model):
        resolve_measures(model, measures)
    request = {"measures": measures, "min_words": min_words, **options}
    name = FAITHFULNESS_KIND.name
    run = compute_kinds(
        [model],
        clips,
        out,
        {name: {option: value for option, value in request.items() if value is not None}},
        aligner=aligner,
        align_method=align_method,
        group=group,
        shard=shard,
        executor=executor,
        progress=progress,
        report=lambda line: None,
    )
    if not run.is_complete:
        return None
    folder = RunFolder(Path(out))
    left_out = read_job_skipped(folder, name)
    if skipped is not None:
        skipped += left_out
    parts = list_job_parts(folder, name).values()
    job_clips = read_job_clips(folder, clips, name)
    evaluations = stored_faithfulness(parts, job_clips, group or RunState(folder).group)
    if not evaluations:
        reasons = "; ".join(reason for _, reason in left_out[:3])
        raise InputError(f"no clip can be used: {reasons or 'there are none'}")
    return evaluations[0]
