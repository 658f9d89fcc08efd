"""A run: clips through models, one at a time, kept as they are done, resumable, alone or in shards.

In: models (or functions that load them), clips, options of `speechmix.mix`. Out: a folder

    run.json                                  options, versions, whether it is complete, which part files its tables are made of
    results/<model>/<part>.parquet            what is known of each clip, as it was computed (results.py)
    scores/model=.../.../stack=.../*.parquet  one row per clip, layer, target and source (score_files.py); not for frames
    maps/<model>/<part>.parquet, .safetensors maps in files of their own: of frames, and of words if asked for (map_files.py)
    cue_contribution.parquet, .csv            one row per clip, model, stack, measure, rows and layer
    transcripts.parquet, .csv                 with ablation: what each trained model writes, and its error rate
    ablation.parquet, .csv                    with ablation: one row per clip, model and silenced stack
    clips.csv                                 one row per clip: text, cue, target, foil, alignment, what else is known
    probes.csv, probe_answers.csv             with probes: what can be read off the target, layer by layer (probing.py)
    skipped.csv                               what was left out and why
    times.csv                                 where the time went, by model and phase (run_times.py)
    words/<clip>.TextGrid                     where each word was placed, for runs of up to a thousand clips
    figures/<model>/<clip>.png

Whatever is kept says what it is made of, so a run that was stopped goes on where it was, and one
whose clips, models or aligner have changed makes again just what depends on them. One process
writes to a folder at a time, or one for each shard of the run: each then does the clips whose names
are its own, and the one that ends last writes the tables (merging.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters.model import Model
from ..errors import InputError, SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.locks import locked, writing_to
from ..files.names import refuse_doubled, refuse_doubled_label
from ..files.shards import Shard
from ..inputs.clips.clip import Clip
from ..mixing.measures.mixing_strength import REVISION as STRENGTH_REVISION
from ..mixing.passes.request import Question
from ..reporting.clip_figures import draw_clips
from .aligned_clips import AlignedClips, Progress
from .clip_store import ClipAsked
from .merging import Marker, begun_shards, missing_shards, write_skipped, write_tables
from .model_run import ModelRun, Wanted
from .results.map_files import check_maps_dtype
from .results.part_files import Owner, opened_part
from .results.run_folder import SCORES, RunFolder
from .results.run_parts import sweep
from .results.run_times import RunTimes
from .resume import figure_marks, stands, told_of
from .run_explanations import ToExplain
from .scored_run import Run
from .twin_clips import CLIPS_BY_LAYER, few_of

if TYPE_CHECKING:
    from .executors.block_driver import BlockEngine

_SECONDS_OF_A_LOCK = 120  # that another shard may take to begin, or to write the tables


def score_clips(
    models: Model | Iterable[Model | Callable[[], Model]],
    clips: Sequence[Clip],
    out: str | Path,
    *,
    measures: Sequence[str] = ("value_zeroing",),
    aligner: Model | None = None,
    align_method: str = "auto",
    figures: int | None = 20,
    ablation: bool = False,
    overwrite: bool = False,
    progress: Progress = True,
    report: Callable[[str], None] = print,
    skipped: Sequence[tuple[str, str]] = (),
    batch_size: int | str = "auto",
    twin_clips: int | None = None,
    probes: bool = False,
    shard: Shard | str | None = None,
    profile: bool = False,
    engine: BlockEngine | None = None,
    maps: bool = False,
    maps_dtype: str | None = None,
    explain: int = 0,
    **options: Any,
) -> Run:
    """Score clips with models into a run folder.

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        Taken one after the other, so that functions keep only one model in memory.
    clips : sequence of Clip
        Clips with text but no words are aligned first.
    out : path
    measures : sequence of str
    aligner : Model, optional
        Model with a CTC head that aligns; else see `speechmix.align`.
    align_method : {"auto", "ctc", "synthesis"}
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
    batch_size : int or "auto"
        Of `speechmix.mix`.
    twin_clips : int, optional
        How many clips the random twins of a model hear after its first one (`few_of`). They only
        say how much the draw of weights matters: they have cue contributions, and no maps, figures,
        ablation or rows in the table of scores. By default they are treated as the first.
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
    engine : BlockEngine, optional
        Hand the clips out to the workers of a cluster (`RayEngine`); the folder is the same as
        without.
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
    models, clips = [models] if isinstance(models, Model) else models, list(clips)
    strangers = [clip for clip in clips if not isinstance(clip, Clip)]
    if strangers:
        raise InputError(
            f"expected clips, found {strangers[0]!r:.80}: make one with speechmix.Clip.from_file"
        )
    refuse_doubled(clips)
    question = Question.of_run({"measures": measures, **options})
    check_maps_dtype(maps_dtype, question)
    shard = Shard.parse(shard) if isinstance(shard, str) else shard or Shard()
    if engine is not None and shard.count > 1:
        raise InputError(
            f"expected an engine or a shard, found both (shard {shard}): an engine does all clips"
        )
    run, folder = Run(Path(out)), RunFolder(Path(out))
    alignment = {
        "method": align_method,
        "aligner": aligner and aligner.label,
        "weights": aligner and aligner.fingerprint,
    }
    few = None if twin_clips is None else _names(few_of(clips, twin_clips))
    drawn = _names(clips[:figures])  # the same whatever the shard, as are those below
    by_layer = _names(few_of(clips, CLIPS_BY_LAYER)) if ablation else frozenset()
    kept_names = [None if names is None else sorted(names) for names in (drawn, by_layer, few)]
    to_explain = ToExplain.of(clips, explain)
    flags: list[Any] = [
        ablation,
        probes,
        maps,
        maps_dtype,
        *kept_names,
        *([sorted(to_explain.always)] if explain else []),
    ]
    flags.append({"mixing_strength": STRENGTH_REVISION})  # shards of one run have the same columns
    asked_of_all = digest([question.described(), alignment, _described(clips), flags])
    for name, reason in skipped:
        run.skip(name, reason)
    with _held(folder, shard):
        with locked(folder.path, wait=0 if shard.count == 1 else _SECONDS_OF_A_LOCK):
            folder.begin(
                question,
                alignment,
                overwrite,
                report,
                shards=shard.count,
                asked_of_all=asked_of_all,
            )
        own = [clip for clip in clips if shard.holds(clip.name)]
        drawn_clips = [clip for clip in clips[:figures] if shard.holds(clip.name)]
        former = Marker.read(folder, shard)
        if former and stands(
            folder,
            shard,
            former,
            asked_of_all,
            question,
            own,
            models,
            run.skipped,
            drawn_clips,
            report,
        ):
            report(
                f"{folder.path} stands as it was finished: clips, models and options are the same"
            )
            run.done = former.done
            _finish(folder, former, clips, shard, report)
            return run
        had_tables = bool(folder.standing_parts()) or folder.table(SCORES).is_file()
        (folder.shards / f"{shard.label}.json").unlink(missing_ok=True)
        marker = Marker(shard.label, asked="", skipped=run.skipped)
        aligned = AlignedClips(
            folder, clips, shard, aligner, align_method, needs_words=question.units == "word"
        )
        times = RunTimes(folder, shard, exact=profile)
        with times.counted():
            ready, marker.clips = aligned.kept(run.skip, report, progress)
        asked_of = {clip.name: ClipAsked.of(clip) for clip in ready}
        wanted = Wanted(
            question,
            batch_size,
            ablation,
            probes,
            drawn,
            by_layer,
            asked_of,
            few,
            maps,
            maps_dtype,
            to_explain,
        )
        if engine is None:
            _score(run, folder, models, ready, wanted, marker, shard, report, progress, times)
        else:
            engine.score(run, folder, models, ready, wanted, marker, report, progress)
        with times.counted():
            _draw(run, folder, marker, ready, wanted, report)
        marker.done, sounds = run.done, {name: clip.sound for name, clip in asked_of.items()}
        marker.told = told_of(asked_of_all, question, own, lambda clip: sounds.get(clip.name))
        if marker.told:
            marker.figures = {
                name: list(mark) for name, mark in figure_marks(folder, marker, drawn_clips).items()
            }
        marker.tell_asked(asked_of_all)
        if had_tables and not run.done and shard.count == 1:
            write_skipped(folder, run.skipped)
            report(
                f"nothing could be scored, and {run.out} has tables of an earlier start: they stay "
                "as they are"
            )
            return run
        marker.write(folder)
        _finish(folder, marker, clips, shard, report)
    return run


@contextmanager
def _held(folder: RunFolder, shard: Shard) -> Iterator[None]:
    """Hold the whole folder for a run of one process, while no shard is at work there; for a shard
    what is the shard's."""
    if shard.count > 1:
        with writing_to(folder.shards, shard.label):
            yield
        return
    with writing_to(folder.path), ExitStack() as shards:
        for label in begun_shards(folder):
            shards.enter_context(locked(folder.shards, label))
        yield


def _described(clips: Sequence[Clip]) -> list[list[Any]]:
    """What each clip is, but for its sound: one that changes is found by the shard that holds the
    clip."""
    return [[clip.name, clip.annotations, dict(clip.meta)] for clip in clips]


def _names(clips: Sequence[Clip]) -> frozenset[str]:
    return frozenset(clip.name for clip in clips)


def _score(
    run: Run,
    folder: RunFolder,
    models: Iterable[Model | Callable[[], Model]],
    ready: Sequence[Clip],
    wanted: Wanted,
    marker: Marker,
    shard: Shard,
    report: Callable[[str], None],
    progress: Progress,
    times: RunTimes,
) -> None:
    """Score the clips with one model after the other, and note in the marker where its results
    are."""
    labels: dict[str, str] = {}
    twins: dict[str, int] = {}
    for model in models:
        with times.counted() as counting:
            model = counting.loaded(model)
            refuse_doubled_label(labels, model.label)
            model.forget_fingerprint()
            twin = twins.get(model.name, 0)
            twins[model.name] = twin + (model.init == "random")
            counting.owner = owner = Owner.of(model)
            of_model = ModelRun(folder, model, owner, wanted, twin=twin)
            marker.add(
                folder,
                owner,
                of_model.score(ready, shard, run, report, progress),
                probed=of_model.probed,
            )


def _draw(
    run: Run,
    folder: RunFolder,
    marker: Marker,
    ready: Sequence[Clip],
    wanted: Wanted,
    report: Callable[[str], None],
) -> None:
    """Draw the figures of the clips that were scored, now that all models are."""
    if not wanted.drawn and not folder.path.joinpath("figures").is_dir():
        return

    def failed(name: str, error: SpeechmixError, label: str) -> None:
        run.skip(name, error, label)
        report(f"{name}  {label}  {error}")

    parts = [opened_part(folder.path / name) for _, names, _ in marker.models for name in names]
    draw_clips(
        folder, parts, ready, wanted=wanted.drawn, measures=wanted.question.measures, failed=failed
    )


def _finish(
    folder: RunFolder,
    marker: Marker,
    clips: Sequence[Clip],
    shard: Shard,
    report: Callable[[str], None],
) -> None:
    """Write the tables if all shards are done; only one who is alone there removes what is needed
    no more."""
    with locked(folder.path, wait=0 if shard.count == 1 else _SECONDS_OF_A_LOCK):
        missing = missing_shards(folder, marker.asked, shard.count)
        if missing:
            report(
                f"shard {shard} is done; {len(missing)} of {shard.count} are not: `speechmix "
                f"status {folder.path}`"
            )
            return
        markers = [
            Marker.read(folder, Shard(index, shard.count)) for index in range(1, shard.count + 1)
        ]
        write_tables(folder, [marker for marker in markers if marker is not None], clips, report)
        with ExitStack() as shards:
            try:
                for label in begun_shards(folder):
                    shards.enter_context(locked(folder.shards, label))
            except StorageError:
                return  # one of them was started again: it will
            sweep(folder)
