"""Execute a job or one shard in this process: align, compute, write tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..adapters.model import Model
from ..errors import SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.locks import hold_lock, hold_writing_lock
from ..files.names import refuse_duplicate_label
from ..files.shard_assignment import Shard
from ..inputs.clips.clip import Clip
from ..inputs.words.unit_tiers import PHONE, TIER_UNITS
from .clip_aligner import ClipAligner
from .kinds.result_kind import ClipSnapshot
from .model_run import ModelRun, RunRequest
from .results.clip_result_files import Owner, open_part
from .results.part_integrity import remove_unlisted_parts
from .results.run_folder import SCORES, RunFolder
from .results.run_state import RunState
from .results.run_times import RunTimes
from .run_repeat_check import is_unchanged, read_figure_marks, shard_fingerprint
from .scored_run import Run
from .shard_merge import write_job_tables, write_skipped, write_tables
from .shard_record import CompletionRecord, list_missing_shards, list_shard_labels

if TYPE_CHECKING:
    from .run_job import RunJob

_LOCK_WAIT_SECONDS = 120  # that another shard may take to begin, or to write the tables


class StartedJob:
    """A job, or one shard of it, while this process does it.

    `ready` are the clips of the shard that have words, where they are needed; `marker` is the
    completion record of the shard.
    """

    ready: list[Clip]
    request: RunRequest
    marker: CompletionRecord
    times: RunTimes

    def __init__(self, job: RunJob, shard: Shard, aligner: Model | None):
        self.job, self.shard, self._aligner = job, shard, aligner
        self.folder, self.run = RunFolder(job.out), Run(job.out)

    @cached_property
    def _alignment(self) -> dict[str, str | None]:
        aligner = self._aligner
        facts: dict[str, str | None] = {"method": self.job.align_method}
        facts["aligner"] = None if aligner is None else aligner.label
        facts["weights"] = None if aligner is None else aligner.fingerprint
        return facts

    @cached_property
    def request_hash(self) -> str:
        """Hash of clips and options, the same for all shards; a sound that changes is found by its shard."""
        clips = [[clip.name, clip.annotations, dict(clip.meta)] for clip in self.job.clips]
        return digest(
            [self.job.mix_request.described(), self._alignment, clips, self.job.description()]
        )

    @property
    def _shard_clips(self) -> list[Clip]:
        return [clip for clip in self.job.clips if self.shard.holds(clip.name)]

    @property
    def _drawn_clips(self) -> list[Clip]:
        return [clip for clip in self.job.drawn_clips if self.shard.holds(clip.name)]

    def _locked(self) -> Any:
        return hold_lock(self.folder.path, wait=0 if self.shard.count == 1 else _LOCK_WAIT_SECONDS)

    def begin_run(self) -> None:
        """Say in `run.json` what run the folder holds."""
        job = self.job
        with self._locked():
            RunState(self.folder).begin(
                job.mix_request,
                self._alignment,
                job.overwrite,
                job.report,
                shard_count=self.shard.count,
                request_hash=self.request_hash,
                group=job.group,
            )

    def is_up_to_date(self) -> bool:
        """Whether an earlier start has done all this, of very many clips; then its tables are written."""
        former, job = CompletionRecord.read(self.folder, self.shard), self.job
        if former is None or not is_unchanged(
            self.folder,
            self.shard,
            former,
            self.request_hash,
            job.mix_request,
            self._shard_clips,
            job.models,
            self.run.skipped,
            self._drawn_clips,
            job.report,
        ):
            return False
        job.report(
            f"{self.folder.path} stands as it was finished: clips, models and options are the same"
        )
        self.run.done = former.done
        self.marker = former
        self._finish()
        return True

    def compute(
        self,
        score: Callable[[StartedJob], None],
        align: Callable[[StartedJob, ClipAligner], Mapping[str, str | None]] | None,
    ) -> None:
        """Align the clips, compute all results, and write the tables if this is the last shard."""
        job, folder, shard, run = self.job, self.folder, self.shard, self.run
        had_tables = bool(RunState(folder).table_parts()) or folder.table_path(SCORES).is_file()
        if job.name and shard.count == 1:
            RunState(folder).clear_job_leftovers()
        record = CompletionRecord.path(folder, shard, job.name)
        record.parent.mkdir(parents=True, exist_ok=True)  # `status` knows a job that was stopped
        record.unlink(missing_ok=True)
        self.marker = marker = CompletionRecord(shard.label, asked="", skipped=run.skipped)
        units = job.mix_request.units
        needs_words = units in ("word", *TIER_UNITS)
        if job.name:
            needs_words = any(kind.needs_words for kind, _ in job.kinds)
        aligner = ClipAligner(
            folder,
            job.clips,
            shard,
            self._aligner,
            job.align_method,
            needs_words=needs_words,
            needs_phones=units == PHONE,
            job=job.name,
            uses_pairs=any(kind.uses_pairs for kind, _ in job.kinds),
        )
        self.times = RunTimes(folder, shard, exact=job.profile)
        with self.times.timed_phases():
            outcomes = align(self, aligner) if align else None
            self.ready, marker.clips = aligner.align_clips(
                run.skip, job.report, job.progress, outcomes
            )
        snapshots = {clip.name: ClipSnapshot.of(clip) for clip in self.ready}
        drawn_names = frozenset(clip.name for clip in job.drawn_clips)
        self.request = RunRequest(
            job.model_kinds, drawn_names, job.twin_clips, snapshots, aligner.pairs, job.name
        )
        if job.model_kinds:
            score(self)
        else:
            run.done = len(self.ready)
        marker.done = run.done
        if not job.name:
            with self.times.timed_phases():
                self._draw()
            hashes = {name: snapshot.audio_hash for name, snapshot in snapshots.items()}
            shard_clips, hash_of = self._shard_clips, lambda clip: hashes.get(clip.name)
            marker.told = shard_fingerprint(
                self.request_hash, job.mix_request, shard_clips, hash_of
            )
            if marker.told:
                marks = read_figure_marks(folder, marker, self._drawn_clips)
                marker.figures = {name: list(mark) for name, mark in marks.items()}
        marker.tell_asked(self.request_hash)
        if not job.name and had_tables and not run.done and shard.count == 1:
            write_skipped(folder, run.skipped)
            job.report(
                f"nothing could be scored, and {run.out} has tables of an earlier start: they stay as they are"
            )
            return
        marker.write(folder, job.name)
        self._finish()

    def _draw(self) -> None:
        """Draw the figures of the clips that were scored, now that all models are."""
        if not self.request.drawn_clip_names and not self.folder.path.joinpath("figures").is_dir():
            return
        from ..reporting.clip_figures import draw_clip_figures

        def failed(name: str, error: SpeechmixError, label: str) -> None:
            self.run.skip(name, error, label)
            self.job.report(f"{name}  {label}  {error}")

        parts = [
            open_part(self.folder.path / name) for _, names in self.marker.models for name in names
        ]
        measures = self.job.mix_request.measures
        draw_clip_figures(
            self.folder,
            parts,
            self.ready,
            clips_to_draw=self.request.drawn_clip_names,
            measures=measures,
            report_failure=failed,
        )

    def _finish(self) -> None:
        """Write the tables if all shards are done; who is alone there removes what is needed no more."""
        folder, job, count = self.folder, self.job, self.shard.count
        with self._locked():
            missing = list_missing_shards(folder, self.marker.asked, count, job.name)
            self.run.is_complete = not missing
            if missing:
                job.report(
                    f"shard {self.shard} is done; {len(missing)} of {count} are not: "
                    f"`speechmix status {folder.path}`"
                )
                return
            shards = (Shard(index, count) for index in range(1, count + 1))
            records = (CompletionRecord.read(folder, shard, job.name) for shard in shards)
            markers = [marker for marker in records if marker is not None]
            kinds = [kind for kind, _ in job.kinds]
            if job.name:
                write_job_tables(folder, markers, job.clips, job.report, kinds, job.name, job.group)
                return
            write_tables(folder, markers, job.clips, job.report, kinds)
            with ExitStack() as locks:
                try:
                    for label in list_shard_labels(folder):
                        locks.enter_context(hold_lock(folder.shards_dir, label))
                except StorageError:
                    return  # one of them was started again: it will
                remove_unlisted_parts(folder)


def score_in_process(started: StartedJob) -> None:
    """Compute all kinds with one model after the other, and record the part files in the completion
    record."""
    labels: dict[str, str] = {}
    twins: dict[str, int] = {}
    folder, job = started.folder, started.job
    for source in job.models:
        with started.times.timed_phases() as counting:
            model = counting.loaded(source)
            refuse_duplicate_label(labels, model.label)
            model.forget_fingerprint()
            twin = twins.get(model.name, 0)
            twins[model.name] = twin + (model.init == "random")
            counting.owner = owner = Owner.of(model)
            of_model = ModelRun(folder, model, owner, started.request, twin=twin)
            parts = of_model.score(
                started.ready, started.shard, started.run, job.report, job.progress
            )
            started.marker.add(folder, owner, parts)


@contextmanager
def lock_run_folder(folder: RunFolder, shard: Shard) -> Iterator[None]:
    """Hold the whole folder for a job of one process, while no shard is at work there; else the shard's share."""
    if shard.count > 1:
        with hold_writing_lock(folder.shards_dir, shard.label):
            yield
        return
    with hold_writing_lock(folder.path), ExitStack() as shards:
        for label in list_shard_labels(folder):
            shards.enter_context(hold_lock(folder.shards_dir, label))
        yield
