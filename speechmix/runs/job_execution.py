"""Execute a job or one shard in this process: align, compute, write tables.

Detect that a repeated run is already complete, so that nothing is recomputed.

In: a request, the clips of a shard, models; the completion record of the shard. Out: whether all of
it is the same, to the package's own code, and all of its files are as they were written. Where
anything differs, or a clip could not be scored, the start takes its usual way, clip by clip, which
uses what is still true and makes the rest. Runs of few clips always do: that takes them a second at
most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters.model import Model
from ..errors import InputError, SpeechmixError, StorageError
from ..files.cache_keys import FileMark, digest, joined_digests, versions
from ..files.json_files import Json, JsonObject
from ..files.names import refuse_duplicate_label
from ..files.shard_assignment import Shard
from ..files.whole_files import hold_lock, hold_writing_lock
from ..inputs.audio.audio_source import cached_recording
from ..inputs.clips.clip import Clip
from ..inputs.words.unit_tiers import PHONE, TIER_UNITS
from ..mixing.measures.measure_functions import find_measure
from ..mixing.passes.batches import split_into_groups
from ..mixing.passes.request import MixRequest
from .clip_aligner import ClipAligner, remember_recordings
from .kinds.result_kind import ClipSnapshot
from .model_run import ModelRun
from .results.clip_result_files import Owner, Part, open_part
from .results.result_store import Results, checked_part, remove_unlisted_parts
from .results.run_folder import SCORES, RunFolder, RunState
from .results.run_times import RunTimes
from .scored_run import Run
from .shard_merge import (
    FACTS,
    CompletionRecord,
    list_missing_shards,
    list_shard_labels,
    write_job_tables,
    write_skipped,
    write_tables,
)

if TYPE_CHECKING:
    from .score_clips import RunJob


N_SPOT_CHECKED_CLIPS = 1_000  # a run of no more is always gone through


def shard_fingerprint(
    run_key: str,
    mix_request: MixRequest,
    clips: Sequence[Clip],
    sound_of: Callable[[Clip], str | None],
) -> str:
    """Hash all that decides what a shard stores, but its models.

    It is "" if the shard has few clips, or a sound is not known. `run_key` is the hash of the run's
    request. `sound_of` returns the hash of a clip's recording, which is not read for this: None
    where it would have to be.
    """
    if len(clips) <= N_SPOT_CHECKED_CLIPS:
        return ""
    hashed = blake2b(digest_size=16)
    for clip in clips:
        if (sound := sound_of(clip)) is None:
            return ""
        audio_path = "" if clip.path is None else os.path.abspath(clip.path)
        says = (clip.name, sound, clip.alignment or "", *clip.doubts, audio_path)
        hashed.update("\0".join(says).encode("utf-8", "surrogatepass") + b"\n")
    measures = [find_measure(name).identity for name in mix_request.measures]
    return digest([run_key, measures, hashed.hexdigest(), versions(), _package()])


@cache
def _package() -> str:
    """Hash the package's code: after any change in it, no result counts as unchanged."""
    folder, hashed = Path(__file__).parents[1], blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.py")):
        hashed.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return hashed.hexdigest()


def read_figure_marks(
    folder: RunFolder, marker: CompletionRecord, drawn_clips: Iterable[Clip]
) -> dict[str, FileMark]:
    """Size and hash of the pictures that are there of some clips, by the models of a completion
    record."""
    labels = [str(owner["label"]) for owner, _ in marker.models]
    paths = [folder.figure_path(label, clip) for clip in drawn_clips for label in labels]
    return {
        path.relative_to(folder.path).as_posix(): FileMark.of(path)
        for path in paths
        if path.is_file()
    }


def is_unchanged(
    folder: RunFolder,
    marker: CompletionRecord,
    run_key: str,
    mix_request: MixRequest,
    clips: Sequence[Clip],
    models: Iterable[Model | Callable[[], Model]],
    skipped: Sequence[Mapping[str, Json]],
    drawn_clips: Iterable[Clip],
) -> bool:
    """Say whether the shard has results of this request, and they are as they were written.

    `marker` is its completion record, `run_key` the hash of the run's request. The models are
    loaded one after the other, if all else is the same; an iterator, which can be used but once, is
    left alone. `skipped` is what was left out before the run began: whatever else the shard left
    out is tried again. `drawn_clips` are those of the shard that have pictures.
    """
    if not marker.told or not isinstance(models, Sequence) or len(marker.models) != len(models):
        return False
    if marker.skipped != list(skipped) or not _remember_whole_parts(folder, marker):
        return False
    if marker.told != shard_fingerprint(run_key, mix_request, clips, _find_known_sound):
        return False
    marks = read_figure_marks(folder, marker, drawn_clips)
    if {name: list(mark) for name, mark in marks.items()} != marker.figures:
        return False
    return all(
        _model_owner(model) == owner
        for model, (owner, _) in zip(models, marker.models, strict=True)
    )


def _find_known_sound(clip: Clip) -> str | None:
    """Hash of a clip's recording, if an earlier start read it and the file is still the same, or it
    is in memory."""
    if clip.path is None:
        return clip.audio_hash
    remembered = cached_recording(clip.path)
    return remembered and remembered[0]


def _remember_whole_parts(folder: RunFolder, marker: CompletionRecord) -> bool:
    """Whether parts, scores and maps are there and whole; if so, the clips' recordings are known."""
    recorded = RunState(folder).table_parts()

    def open_whole(name: str) -> Part:
        return checked_part(folder, folder.path / name, recorded.get(folder.path / name))

    try:
        for name in marker.model_parts:
            open_whole(name)
        for name in marker.clips:
            remember_recordings(open_whole(name).contents(FACTS))
    except (InputError, OSError):
        return False
    return True


def _model_owner(model: Model | Callable[[], Model]) -> JsonObject:
    loaded = model if isinstance(model, Model) else model()
    loaded.forget_fingerprint()  # its weights may have been changed since
    return vars(Owner.of(loaded))


_LOCK_WAIT_SECONDS = 120  # that another shard may take to begin, or to write the tables


class StartedJob:
    """A job, or one shard of it, while this process does it.

    `ready` are the clips of the shard that have words, where they are needed; `marker` is the
    completion record of the shard.
    """

    ready: list[Clip]
    model_run: ModelRun
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
        groups = split_into_groups(self.job.clips, 100)  # a text for each clip takes longer
        clips = joined_digests(
            *(
                digest([(clip.name, clip.annotations, dict(clip.meta)) for clip in group])
                for group in groups
            )
        )
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
            former,
            self.request_hash,
            job.mix_request,
            self._shard_clips,
            job.models,
            self.run.skipped,
            self._drawn_clips,
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
        self.model_run = ModelRun(
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
        if (
            not self.model_run.drawn_clip_names
            and not self.folder.path.joinpath("figures").is_dir()
        ):
            return
        from ..reporting.clip_figures import draw_clip_figures

        def failed(name: str, error: SpeechmixError, label: str) -> None:
            self.run.skip(name, error, label)
            self.job.report(f"{name}  {label}  {error}")

        parts = [open_part(self.folder.path / name) for name in self.marker.model_parts]
        measures = self.job.mix_request.measures
        draw_clip_figures(
            self.folder,
            parts,
            self.ready,
            clips_to_draw=self.model_run.drawn_clip_names,
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
            run = started.model_run
            results = Results(folder, owner, started.shard, job.report, own_kinds=run.own_kinds)
            parts = run.of_model(model, twin=twin).score(
                results, started.ready, started.run, job.report, job.progress
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
