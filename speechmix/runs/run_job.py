"""Job of a run: clips, models, result kinds and folder; whole or one shard.

In: models, clips, kinds with their options. Out: part files of all results, and when the last shard is
done the tables that are made of them. A job without a name is the run itself (`score_clips`); one with
a name computes kinds alone, in the folder of a run or a fresh one (`compute_kinds`), and leaves what
the run has as it is.

Choose the clips that further random twins are run on.

In: the clips of a run. Out: some of them, whole pairs, sentences and words
(`evaluation.statistics.groups`) and evenly over sides, templates and controls, so that fewer clips
answer the same question. Speakers are no reason to leave clips together: some of each are wanted.
The first random twin of a model is run on all clips, as the trained model is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..adapters.model import Model
from ..evaluation.statistics.groups import (
    SPEAKER_COLUMNS,
    assign_groups,
    build_item_table,
    choose_evenly,
)
from ..files.json_files import Json
from ..files.shard_assignment import WHOLE, Shard
from ..inputs.clips.clip import Clip
from ..mixing.passes.request import MixRequest
from .clip_aligner import ClipAligner
from .job_execution import StartedJob, lock_run_folder, score_in_process
from .kinds.result_kind import ResultKind
from .kinds.word_times import WORD_TIMES_KIND
from .progress import Progress
from .scored_run import Run

Loads = Iterable[Model | Callable[[], Model]]
Report = Callable[[str], None]


@dataclass(frozen=True)
class RunJob:
    """Kinds of results that are computed of clips by models.

    The clips are all of them, whatever the shard. `kinds` come in the order in which they are
    computed, each with its options; a run's folder holds maps by one `mix_request`. `name` is that
    of a job that computes kinds alone, "" for the run. `figures` is how many clips to draw, None
    for all; `twin_clips` are the names of the clips that further random twins get; `group` is the
    column that says which clips belong together. `skipped` are clips that were dropped before, with
    reasons.
    """

    models: Loads
    clips: Sequence[Clip]
    out: Path
    kinds: tuple[tuple[ResultKind, Mapping[str, Json]], ...]
    mix_request: MixRequest
    name: str = ""
    aligner: Model | Callable[[], Model] | None = None
    align_method: str = "auto"
    figures: int | None = 0
    twin_clips: frozenset[str] | None = None
    group: str | None = None
    overwrite: bool = False
    profile: bool = False
    skipped: Sequence[tuple[str, str]] = ()
    progress: Progress = True
    report: Report = print

    @property
    def model_kinds(self) -> tuple[tuple[ResultKind, Mapping[str, Json]], ...]:
        """Kinds that are computed of each model; word times are of the clips alone."""
        return tuple(pair for pair in self.kinds if pair[0].name != WORD_TIMES_KIND.name)

    @property
    def drawn_clips(self) -> Sequence[Clip]:
        """Clips that are drawn: the same whatever the shard."""
        return self.clips[: self.figures]

    def with_reports(self, report: Report, progress: Progress) -> RunJob:
        """Return the same job with other callbacks."""
        return replace(self, report=report, progress=progress)

    def description(self) -> list[object]:
        """Return what the kinds are, for a hash of the whole job."""
        kinds = [
            [
                kind.name,
                kind.version,
                {name: _describe_value(value) for name, value in options.items()},
            ]
            for kind, options in self.kinds
        ]
        twins = None if self.twin_clips is None else sorted(self.twin_clips)
        names = [clip.name for clip in self.drawn_clips]
        return [kinds, names, twins, *([self.group] if self.group else [])]

    def run(
        self,
        shard: Shard = WHOLE,
        score: Callable[[StartedJob], None] | None = None,
        align: Callable[[StartedJob, ClipAligner], Mapping[str, str | None]] | None = None,
    ) -> Run:
        """Do the job, or one shard of it.

        `score` computes the results of all models, by default in this process. `align` computes
        word times before, and returns by clip None, or why it has none. InputError if the folder
        holds a run with other options; StorageError if it cannot be written to. What was finished
        is kept.
        """
        aligner = (
            self.aligner if isinstance(self.aligner, Model) or not self.aligner else self.aligner()
        )
        started = StartedJob(self, shard, aligner)
        for name, reason in self.skipped:
            started.run.skip(name, reason)
        with lock_run_folder(started.folder, shard):
            if not self.name:
                started.begin_run()
                if started.is_up_to_date():
                    return started.run
            started.compute(score or score_in_process, align)
        return started.run


def _describe_value(value: Any) -> object:
    """Return an option as the hash of a job has it."""
    if isinstance(value, frozenset):
        return sorted(value)
    described = getattr(value, "described", None)
    return described() if described else value


CLIPS_BY_LAYER = 48  # in which ablation silences the cue layer by layer
# Columns of a manifest by which clips are put in order, so that each kind has its part.
_KINDS = ("control", "side", "template")


def choose_twin_clips(clips: Sequence[Clip], most: int) -> list[Clip]:
    """At most `most` or so of the clips that have a cue and a target, whole groups of them; in the
    order in which they came.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> few = choose_twin_clips(bundled.clips(), 24)
    >>> len(few), len({clip.meta["pair"] for clip in few})
    (24, 12)
    """
    eligible_clips = [
        clip for clip in clips if None not in (clip.cue_request, clip.target_request)
    ] or list(clips)
    if len(eligible_clips) <= most:
        return eligible_clips
    table = build_item_table(eligible_clips)
    table["group"], _ = assign_groups(table.drop(columns=[*SPEAKER_COLUMNS], errors="ignore"))
    kinds = [name for name in _KINDS if name in table]
    groups = list(
        dict.fromkeys((table.sort_values(kinds, kind="stable") if kinds else table)["group"])
    )
    count = max(round(most * len(groups) / len(eligible_clips)), 1)
    names = set(table[table["group"].isin(choose_evenly(groups, count))]["clip"])
    return [clip for clip in eligible_clips if clip.name in names]
