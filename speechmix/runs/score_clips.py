"""Score clips with models in a resumable run.

In: models (or functions that load them), clips, options of `speechmix.mix`. Out: a folder

    run.json                                  options, versions, whether it is complete, which part files its tables are made of
    results/<model>/<part>.parquet            what is known of each clip, as it was computed (result_store.py)
    scores/model=.../.../stack=.../*.parquet  one row per clip, layer, target and source (score_files.py); not for frames
    maps/<model>/<part>.parquet, .safetensors maps in files of their own: of frames, and of words if asked for (map_files.py)
    cue_contribution.parquet, .csv            one row per clip, model, stack, measure, rows and layer
    transcripts.parquet, .csv                 what trained models write for drawn clips (ablation: for all), and its error rate
    ablation.parquet, .csv                    with ablation: one row per clip, model and silenced stack
    clips.csv                                 one row per clip: text, cue, target, foil, alignment, what else is known
    faithfulness.csv, faithfulness_values.csv with the kind faithfulness: which measures rank the words that count
    probes.csv, probe_answers.csv             with probes: what probes predict from the target, layer by layer
    skipped.csv                               what was left out and why
    times.csv                                 where the time went, by model and phase (run_times.py)
    words/<clip>.TextGrid                     where each word was placed, for runs of up to a thousand clips
    figures/<model>/<clip>.png

Whatever is kept says what it is made of, so a run that was stopped goes on where it was, and one
whose clips, models or aligner have changed makes again just what depends on them. One process
writes to a folder at a time, or one for each shard of the run: each then does the clips whose names
are its own, and the one that ends last writes the tables (shard_merge.py).

A job (clips, models, result kinds and folder; whole or one shard) without a name is the run itself
(`score_clips`); one with a name computes kinds alone, in the folder of a run or a fresh one
(`compute_kinds`), and leaves what the run has as it is.

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
from ..errors import InputError
from ..evaluation.statistics.groups import (
    SPEAKER_COLUMNS,
    assign_groups,
    assign_item_groups,
    build_item_table,
    choose_evenly,
)
from ..files.json_files import Json
from ..files.shard_assignment import WHOLE, Shard
from ..inputs.clips.clip import Clip
from ..inputs.clips.clip_names import refuse_duplicate_names
from ..mixing.passes.request import MixRequest
from .clip_aligner import ClipAligner
from .executors.executor import Executor, InProcess
from .job_execution import StartedJob, lock_run_folder, score_in_process
from .kinds.ablation import ABLATION_KIND
from .kinds.generated_texts import GENERATED_TEXTS_KIND, TRANSCRIPTS_KIND
from .kinds.map_results import CONTRIBUTIONS_KIND, MapOptions
from .kinds.registry import KINDS, find_kind
from .kinds.result_kind import ResultKind
from .kinds.word_times import WORD_TIMES_KIND
from .progress import Progress
from .results.map_files import check_maps_dtype
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


def score_clips(
    models: Loads | Model | Callable[[], Model],
    clips: Sequence[Clip],
    out: str | Path,
    *,
    measures: Sequence[str] = ("value_zeroing",),
    aligner: Model | Callable[[], Model] | None = None,
    align_method: str = "auto",
    figures: int | None = 20,
    ablation: bool = False,
    overwrite: bool = False,
    progress: Progress = True,
    report: Callable[[str], None] = print,
    skipped: Sequence[tuple[str, str]] = (),
    twin_clips: int | None = None,
    group: str | None = None,
    probes: bool = False,
    shard: Shard | str | None = None,
    profile: bool = False,
    executor: Executor | None = None,
    maps: bool = False,
    maps_dtype: str | None = None,
    explain: int = 0,
    kinds: str | Sequence[str] | Mapping[str, Mapping[str, object]] = (),
    **options: Any,
) -> Run:
    """Score clips with models into a run folder.

    Parameters
    ----------
    models : Model, function that loads one, or iterable of these
        As ``functools.partial(speechmix.load, source)``. Taken one after the other, so that
        functions keep only one model in memory.
    clips : sequence of Clip
        Clips with text but no words are aligned first.
    out : path
    measures : sequence of str
    aligner, align_method
        A model that aligns, or a function that loads one; {"auto", "ctc", "synthesis"}. See `speechmix.align`.
    figures : int, optional
        How many clips to draw a figure of, per model (all: None). Random twins are lines in that of
        the trained model.
    ablation : bool
        Also silence each clip's cue in each stack (`speechmix.ablate`), for clips with a foil and
        models that spell, and let trained models transcribe the clips.
    overwrite : bool
        Go on in a folder that holds a run with other options: what depends on them is made again.
    progress : bool or callable
        Show a bar on standard error; or a function that is told each stage ("align", "score
        MODEL"), how many clips of it are done, and of how many.
    report : callable
        Gets one line a clip, and one for whatever is found damaged.
    skipped : sequence of (clip, reason)
        What was already left out, e.g. while reading the manifest.
    twin_clips : int, optional
        How many clips the random twins of a model hear after its first one (`choose_twin_clips`). They only
        say how much the draw of weights matters: they have cue contributions, and no maps, figures,
        ablation or rows in the table of scores. By default they are treated as the first.
    group : str, optional
        A column that says which clips belong together; see `speechmix.probe`.
    probes : bool
        Also read the states of the target and of the deciding position, of trained models and a few
        of their twins, and probe them for the clips' number (a column `number`), at the end.
    shard : Shard or str, optional
        "3/48": do the third of 48 shards of the run. Shards may run at once, in one folder, on
        several machines; the one that ends last writes the tables.
    profile : bool
        Wait for the GPU after every phase, so that each is charged its own time in ``times.csv``;
        without, a phase is charged what it waits for. Nothing else changes, and nothing at all on a
        CPU.
    executor : Executor, optional
        Who does the work: `LocalWorkers` of this machine, `SlurmExecutor` or `RayExecutor` for a
        cluster; this process by default. The folder is the same. Workers load the models themselves: models and aligner
        are then functions that load one.
    maps : bool
        Also keep maps of words in files of their own, a row for each map in plain columns:
        ``maps/<model>/<part>.parquet``. Maps of frames (``units="frame"``) always have files of
        their own, safetensors, instead of rows in the table of scores.
    maps_dtype : {"float32", "float16"}, optional
        Of maps of frames; as they are computed by default. Float16 keeps three digits, and scores
        up to 65,504.
    explain : int
        Of so many clips, the first, keep why trained models wrote their words
        (`speechmix.explain`), for the page; and of ten times as many where the transcript lacks the
        target.
    kinds : str, sequence of str, or mapping of str to mapping
        Further kinds of results by name (`runs.kinds.registry`), in a mapping with their options.
    **options
        Of `speechmix.mix`: stacks, targets, heads, ...

    Returns
    -------
    Run

    Raises
    ------
    InputError
        If two clips or two models share a name, or `out` holds a run with other options.
    StorageError
        If `out` cannot be written to: another process holds it, the disk is full, ... What was
        finished is kept.
    """
    clips = _check_clips(clips, group)
    mix_request = MixRequest.of_run({"measures": measures, **options})
    check_maps_dtype(maps_dtype, mix_request)
    map_options = MapOptions(mix_request, as_rows=maps, dtype=maps_dtype)
    requested: dict[str, Mapping[str, object]] = {
        GENERATED_TEXTS_KIND.name: {"stacks": mix_request.stacks},
        CONTRIBUTIONS_KIND.name: {"maps": map_options},
    }
    if ablation:
        by_layer = frozenset(clip.name for clip in choose_twin_clips(clips, CLIPS_BY_LAYER))
        requested |= {ABLATION_KIND.name: {"by_layer": by_layer}, TRANSCRIPTS_KIND.name: {}}
    elif figures != 0:  # the line and the page of a drawn clip say whether the model transcribes it
        drawn_names = frozenset(clip.name for clip in clips[:figures])
        requested[TRANSCRIPTS_KIND.name] = {"clips": drawn_names}
    if probes:
        requested["states"] = {}
    if explain:
        requested["explanations"] = find_kind("explanations").choose_options(clips, explain)
    job = RunJob(
        _list_models(models),
        clips,
        Path(out),
        requested_kinds({**requested, **_add_default_options(kinds)}),
        mix_request,
        aligner=aligner,
        align_method=align_method,
        figures=figures,
        twin_clips=_choose_clip_names(clips, twin_clips),
        group=group,
        overwrite=overwrite,
        profile=profile,
        skipped=skipped,
        progress=progress,
        report=report,
    )
    return _choose_executor(executor, shard).execute(job)


def compute_kinds(
    models: Loads | Model | Callable[[], Model],
    clips: Sequence[Clip],
    out: str | Path,
    kinds: str | Sequence[str] | Mapping[str, Mapping[str, object]],
    *,
    aligner: Model | Callable[[], Model] | None = None,
    align_method: str = "auto",
    twin_clips: int | None = None,
    group: str | None = None,
    shard: Shard | str | None = None,
    executor: Executor | None = None,
    progress: Progress = True,
    report: Callable[[str], None] = print,
    skipped: Sequence[tuple[str, str]] = (),
) -> Run:
    """Compute kinds of results alone, in the folder of a run or a fresh one.

    What the run has stays as it is. Word times that the folder has are used; the kind "words"
    computes them alone. Shards, executors and resuming are as for `score_clips`.

    Parameters
    ----------
    models, clips, out, twin_clips, group, shard, executor, progress, report, skipped
        As for `score_clips`. The kind "words" needs no model.
    aligner, align_method
        Of `speechmix.align`; by default as the run in the folder was aligned, if there is one.
    kinds : str, sequence of str, or mapping of str to mapping
        Names of kinds (`runs.kinds.registry`), in a mapping with their options.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        If two clips or models share a name, or a kind is unknown.
    StorageError
        If `out` cannot be written to.
    """
    clips = _check_clips(clips, group)
    requested = requested_kinds(_add_default_options(kinds))
    if CONTRIBUTIONS_KIND.name in {kind.name for kind, _ in requested}:
        raise InputError("maps and contributions are the run itself: compute them by score_clips")
    job = RunJob(
        _list_models(models),
        clips,
        Path(out),
        requested,
        MixRequest(),
        name="-".join(kind.name for kind, _ in requested),
        aligner=aligner,
        align_method=align_method,
        twin_clips=_choose_clip_names(clips, twin_clips),
        group=group,
        progress=progress,
        report=report,
        skipped=skipped,
    )
    return _choose_executor(executor, shard).execute(job)


def requested_kinds(
    requested: Mapping[str, Mapping[str, object]],
) -> tuple[tuple[ResultKind, Mapping[str, object]], ...]:
    """Return kinds with their options, in the order in which a run computes them."""
    kinds_by_name = {name: find_kind(name) for name in requested}
    return tuple((kinds_by_name[name], requested[name]) for name in KINDS if name in kinds_by_name)


def _add_default_options(
    kinds: str | Sequence[str] | Mapping[str, Mapping[str, object]],
) -> dict[str, Mapping[str, object]]:
    kinds = [kinds] if isinstance(kinds, str) else kinds
    options = dict(kinds) if isinstance(kinds, Mapping) else {name: {} for name in kinds}
    for name, of_kind in options.items():
        if not isinstance(of_kind, Mapping):
            raise InputError(
                f"the options of the kind {name!r} should be a mapping, such as "
                f"{{'option': 2}}; found {of_kind!r:.80}"
            )
    return options


def _list_models(models: Loads | Model | Callable[[], Model]) -> Loads:
    """Return models, or functions that load one; a single one in a list."""
    if isinstance(models, Model) or callable(models):
        return [models]
    if isinstance(models, Sequence) and not isinstance(models, str):
        strangers = [model for model in models if not isinstance(model, Model | Callable)]
    else:
        strangers = [] if isinstance(models, Iterable) and not isinstance(models, str) else [models]
    if strangers:
        raise InputError(
            f"expected models, or functions that load one, found {strangers[0]!r:.80}: make one "
            "with speechmix.load(source), or functools.partial(speechmix.load, source)"
        )
    return models


def _check_clips(clips: Sequence[Clip], group: str | None) -> list[Clip]:
    if not isinstance(clips, Iterable) or isinstance(clips, str):
        raise InputError(
            f"expected a list of clips, found {clips!r:.80}: read a file of clips with "
            "speechmix.read_clips"
        )
    strangers = [clip for clip in clips if not isinstance(clip, Clip)]
    if strangers:
        raise InputError(
            f"expected clips, found {strangers[0]!r:.80}: make one with speechmix.Clip.from_file"
        )
    refuse_duplicate_names(clips)
    if group is not None:
        assign_item_groups(build_item_table(clips), clips, group)  # an error before models run
    return list(clips)


def _choose_clip_names(clips: Sequence[Clip], count: int | None) -> frozenset[str] | None:
    return (
        None if count is None else frozenset(clip.name for clip in choose_twin_clips(clips, count))
    )


def _choose_executor(executor: Executor | None, shard: Shard | str | None) -> Executor:
    """Return who does the work: this process, all of it or one shard, unless an executor is given."""
    shard = Shard.parse(shard) if isinstance(shard, str) else shard or WHOLE
    if executor is not None and shard.count > 1:
        raise InputError(
            f"expected an executor or a shard, found both (shard {shard}): an executor does all clips"
        )
    return executor or InProcess(shard)
