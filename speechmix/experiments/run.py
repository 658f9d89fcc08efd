"""A run: clips through models, one at a time, kept as they are done, resumable.

In: models (or functions that load them), clips, options of `speechmix.mix`. Out: a folder

    run.json                                  options, versions, whether it is complete
    words/<clip>.json, .TextGrid              where each word is, and how that is known
    maps/<model>/<clip>/<measure>.<stack>.safetensors
    figures/<model>/<clip>.png
    written/<model>/<clip>.json               of a clip without a text: what the model wrote itself and was fed
    spelling/<model>/<clip>.json              with ablation: what the two tables below hold, clip by clip
    scores/model=.../.../stack=.../*.parquet   one row per clip, layer, target and source (score_files.py)
    cue_contribution.parquet, .csv            one row per clip, model, stack, measure, rows and layer
    transcripts.parquet, .csv                 with ablation: what each trained model writes, and its error rate
    ablation.parquet, .csv                    with ablation: one row per clip, model and silenced stack
    clips.csv                                 one row per clip: text, cue, target, foil, alignment, what else is known
    states/, probes.csv, probe_answers.csv    with probes: what can be read off the target, layer by layer (probing.py)
    skipped.csv                               what was left out and why

Whatever is kept says what it is made of (store.py), so a run that was stopped goes on where it was, and one whose clips,
models or aligner have changed makes again just what depends on them. One process writes to a folder at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..adapters.model import Model
from ..errors import InputError, SpeechmixError, StorageError
from ..files.locks import writing_to
from ..files.names import refuse_doubled, same_file
from ..files.parquet_files import read_parquet
from ..files.text_files import read_csv, write_csv
from ..inputs.clips import Clip
from ..inputs.reading_ahead import read_ahead
from ..scoring.batches import clips_together, in_groups
from ..scoring.question import Question
from .few_clips import CLIPS_BY_LAYER, few_of
from .folder import ABLATION, CONTRIBUTIONS, SCORES, TRANSCRIPTS, RunFolder
from .out_of_memory import memory_errors_named
from .probing import PROBED_TWINS, ProbedModel, keep_states, write_probes
from .score_files import ScoreFiles
from .store import draw, judged, maps_of
from .tables import TableWriter, ablation_table, clip_table, contribution_table, identified, result_line
from .word_times import with_words


@dataclass
class Run:
    """What a run did.

    Attributes
    ----------
    out : Path
    done : int
        (clip, model) pairs scored, resumed ones included.
    skipped : list of dict
        clip, model, reason.
    """

    out: Path
    done: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)

    def skip(self, clip: str, reason: object, model: str = "") -> None:
        self.skipped.append({"clip": clip, "model": model, "reason": str(reason)})

    @property
    def contributions(self) -> pd.DataFrame:
        """Table of cue contributions; empty if no clip has cue and target."""
        return self._table(CONTRIBUTIONS)

    @property
    def ablation(self) -> pd.DataFrame:
        """Table of ablations; empty if none was asked for or possible."""
        return self._table(ABLATION)

    @property
    def transcripts(self) -> pd.DataFrame:
        """Table of transcripts by trained models; empty if none was asked for or possible."""
        return self._table(TRANSCRIPTS)

    @property
    def clips(self) -> pd.DataFrame:
        """Table of the clips; all but seconds is text, for names may look like numbers ("001")."""
        return read_csv(RunFolder(self.out).clips).astype({"seconds": float})

    def _table(self, name: str) -> pd.DataFrame:
        path = RunFolder(self.out).table(name)
        return read_parquet(path) if path.is_file() else pd.DataFrame()

    def summary(self) -> str:
        """One count, and the reasons."""
        lines = [f"{self.done} done, {len(self.skipped)} skipped; results in {self.out}"]
        reasons: dict[tuple[str, str], list[str]] = {}
        for row in self.skipped:
            reasons.setdefault((row["clip"], row["reason"]), []).append(row["model"])
        for (clip, reason), models in list(reasons.items())[:20]:
            by = f" by {len(models)} models" if len(models) > 1 else f" by {models[0]}" if models[0] else ""
            lines.append(f"  skipped {clip}{by}: {reason}")
        if len(reasons) > 20:
            lines.append(f"  ... and {len(reasons) - 20} more in skipped.csv")
        return "\n".join(lines)


def score_clips(
    models: Model | Iterable[Model | Callable[[], Model]],
    clips: Sequence[Clip],
    out: str | Path,
    *,
    measures: Sequence[str] = ("value_zeroing",),
    aligner: Model | None = None,
    align_method: str = "auto",
    figures: int | None = None,
    ablation: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    report: Callable[[str], None] = print,
    skipped: Sequence[tuple[str, str]] = (),
    batch_size: int | str = "auto",
    twin_clips: int | None = None,
    probes: bool = False,
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
        How many clips to draw a figure of, per model; all by default.
    ablation : bool
        Also silence each clip's cue in each stack (`speechmix.ablate`), for clips with a foil and models that spell,
        and let trained models transcribe the clips.
    overwrite : bool
        Go on in a folder that holds a run with other options: what depends on them is made again.
    progress : bool
        Show a bar on standard error.
    report : callable
        Gets one line a clip, and one for whatever is found damaged.
    skipped : sequence of (clip, reason)
        What was already left out, e.g. while reading the manifest.
    batch_size : int or "auto"
        Of `speechmix.mix`.
    twin_clips : int, optional
        How many clips the random twins of a model hear after its first one (`few_of`). They only say how much the draw of
        weights matters: they have maps and cue contributions, no figures, no ablation and no rows in the table of scores.
        By default they are treated as the first.
    probes : bool
        Also read the states of the target and of the deciding position, of trained models and a few of their twins, and probe
        them for the clips' number (a column `number`), at the end.
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
        If `out` cannot be written to: another process holds it, the disk is full, ... What was finished is kept.
    """
    models, clips = [models] if isinstance(models, Model) else models, list(clips)
    strangers = [clip for clip in clips if not isinstance(clip, Clip)]
    if strangers:
        raise InputError(f"expected clips, found {strangers[0]!r:.80}: make one with speechmix.Clip.from_file")
    refuse_doubled(clips)
    question = Question.of_run({"measures": measures, **options})
    run, folder = Run(Path(out)), RunFolder(Path(out))
    for name, reason in skipped:
        run.skip(name, reason)
    with writing_to(run.out):
        alignment = {
            "method": align_method,
            "aligner": aligner and aligner.label,
            "weights": aligner and aligner.fingerprint,
        }
        folder.begin(question, alignment, overwrite, report)
        wants_words = question.units == "word"
        ready = list(_aligned(run, folder, clips, aligner, align_method, report, progress, wants_words))
        had_tables = folder.scores.is_dir() or folder.table(SCORES).is_file()
        probed = _score(
            run, folder, models, ready, question, batch_size, figures, ablation, progress, report, twin_clips, probes
        )
        if probes:
            write_probes(folder, probed, ready, report)
        write_csv(pd.DataFrame(run.skipped, columns=["clip", "model", "reason"]), folder.skipped)
        if had_tables and not run.done:
            report(f"nothing could be scored, and {run.out} has tables of an earlier start: they stay as they are")
            return run
        write_csv(clip_table(ready), folder.clips)
        folder.finish(run.done)
    return run


def _score(
    run: Run,
    folder: RunFolder,
    models,
    ready: Sequence[Clip],
    question: Question,
    batch_size,
    figures,
    ablation,
    progress,
    report,
    twin_clips: int | None,
    probes: bool,
) -> dict[ProbedModel, set[str]]:
    """Score the clips with one model after the other; the tables stand when all are done. Returns whose states were kept."""
    probed: dict[ProbedModel, set[str]] = {}
    with ExitStack() as files:
        contributions, ablations, transcripts = (
            files.enter_context(TableWriter(run.out / name)) for name in (CONTRIBUTIONS, ABLATION, TRANSCRIPTS)
        )
        scores = files.enter_context(ScoreFiles(folder.scores))
        labels: dict[Any, str] = {}
        with_twin: set[str] = set()
        for model in models:
            model = model if isinstance(model, Model) else model()
            label = same_file(model.label)
            if label in labels:
                labels_of_both = " and ".join(repr(name) for name in dict.fromkeys((labels[label], model.label)))
                raise InputError(
                    f"two models are called {labels_of_both}, one name in files: give them runs, or folders, of their own names"
                )
            labels[label] = model.label
            model.forget_fingerprint()
            further = twin_clips is not None and model.init == "random" and model.name in with_twin
            with_twin |= {model.name} if model.init == "random" else set()
            heard = few_of(ready, twin_clips) if further and twin_clips is not None else ready
            by_layer = {clip.name for clip in few_of(ready, CLIPS_BY_LAYER)} if model.init == "trained" else set()
            asked_to_spell = ablation and not further and model.can_spell
            twins = sum(1 for other in probed if other.name == model.name and other.init == "random")
            reads_states = probes and (model.init == "trained" or twins < PROBED_TWINS)
            this_model = ProbedModel(model.name, model.init, model.seed, model.label)
            if reads_states:
                probed[this_model] = set()
            drawn = 0 if further else len(ready) if figures is None else figures
            for number, (clip, maps) in enumerate(
                _scored(folder, model, heard, question, batch_size, progress, report)
            ):
                try:
                    if isinstance(maps, SpeechmixError):
                        raise maps
                    with memory_errors_named():
                        shares = contribution_table(maps, clip, model)
                        spelled = {}
                        if asked_to_spell:
                            spelled = judged(folder, model, clip, report, by_layer=clip.name in by_layer)
                        if reads_states and clip.words:
                            keep_states(folder, model, clip, report)
                            probed[this_model].add(clip.name)
                        draw(folder, model, clip, maps, question, wanted=number < drawn)
                except StorageError:
                    raise
                except SpeechmixError as error:
                    run.skip(clip.name, error, model.label)
                    report(f"{clip.name}  {model.label}  SKIPPED: {error}")
                    continue
                contributions.append(shares)
                if not further:
                    scores.append(maps, clip, model)
                ablations.append(ablation_table(spelled.get("ablation", []), clip, model))
                transcripts.append(identified(pd.DataFrame(spelled.get("transcripts", [])), clip, model))
                run.done += 1
                report(result_line(clip, model, shares))
        if not run.done:
            for writer in (contributions, scores, ablations, transcripts):
                writer.keep_former = True
    if run.done:
        for ending in ("parquet", "csv"):  # of an earlier version
            folder.table(SCORES, ending).unlink(missing_ok=True)
    return probed


def _scored(
    folder, model: Model, clips: Sequence[Clip], question, batch_size, progress, report
) -> Iterator[tuple[Clip, Any]]:
    """Each clip with its maps (or its error), in groups that share a forward pass, the next clips read ahead."""
    at_once = clips_together(model)
    ahead = read_ahead(clips, sample_rate=model.sample_rate, count=at_once)
    shown = _bar(ahead, progress, f"score {model.label}", total=len(clips))
    with model.unchanged():
        for group in in_groups(shown, at_once):
            yield from zip(group, maps_of(folder, model, group, question, report, batch_size=batch_size), strict=True)


def _aligned(run: Run, folder: RunFolder, clips, aligner, method, report, progress, wants_words) -> Iterator[Clip]:
    """Clips with words; those that cannot get them are recorded."""
    todo = [clip for clip in clips if clip.words is None]
    bar = _bar(clips, progress and bool(todo), "align")
    for clip in bar:
        try:
            with memory_errors_named():
                clip.validate()
                if clip.words is None and (clip.text or wants_words):
                    clip = with_words(folder, clip, aligner, method, report)
                    for doubt in clip.doubts:
                        report(f"{clip.name}  word times are DOUBTFUL: {doubt}")
        except StorageError:
            raise
        except SpeechmixError as error:
            run.skip(clip.name, error)
            report(f"{clip.name}  SKIPPED: {error}")
            continue
        yield clip


def _bar(items: Iterable, show: bool, description: str, *, total: int | None = None) -> Iterable:
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="clip", leave=False, total=total)
