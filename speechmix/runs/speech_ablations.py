"""The published ablation of speech over clips and models, kept clip by clip, resumable; trained
models and random twins.

In: models (or functions that load them), clips, a folder. Out: a `SpeechAblation`, and in the
folder (it may be that of a run)

    speech_ablation/<model>/<clip>.json       what was read of each clip
    speech_ablation.parquet, .csv             one row per clip, model, way to take a word away, reading and aggregation
    speech_ablation_means.csv                 over clips, by template and number, beside untrained models
    speech_ablation.png, .pdf                 the same drawn
    speech_ablation_skipped.csv               what was left out and why
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..adapters.model import Model
from ..alignment import align
from ..errors import InputError, SpeechmixError, StorageError
from ..evaluation.ablated_speech import PARTS, ablated_speech
from ..evaluation.statistics.groups import groups_of
from ..files.cache_keys import digest
from ..files.json_files import write_checked_json
from ..files.locks import writing_to
from ..files.names import refuse_doubled, safe_name
from ..files.parquet_files import read_parquet
from ..files.shards import Shard
from ..files.text_files import write_csv
from ..inputs.clips.clip import Clip
from ..interventions.speech_ablation import ablate_speech
from .checked_json import stored_json
from .out_of_memory import memory_errors_named
from .results.part_files import Owner
from .results.result_store import Results
from .results.run_folder import SPEECH_ABLATION, RunFolder
from .results.tidy_tables import TableWriter, clip_table, identified
from .revisions import revision_entry
from .twin_clips import few_of
from .word_times import with_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Loads = Iterable[Model | Callable[[], Model]]
MEANS, SKIPPED = f"{SPEECH_ABLATION}_means.csv", f"{SPEECH_ABLATION}_skipped.csv"


@dataclass(frozen=True, eq=False)
class SpeechAblation:
    """What clips lose without the cue, another word, or the target.

    Parameters
    ----------
    table : DataFrame
        A row for each clip, model, way to take a word away, reading and aggregation: clip,
        fingerprint, model, init, seed, side, template, number, control, group, and the columns of
        `ablate_speech`.
    skipped : list of dict
        clip, model, reason.
    ties : str
        What ties clips into groups, in words.
    out : Path, optional
        The folder with the tables and the figure.
    """

    table: pd.DataFrame
    skipped: list[dict[str, str]] = field(default_factory=list)
    ties: str = ""
    out: Path | None = None

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean drops by template and number, with intervals, twins and tests; see
        `evaluation.ablated_speech`."""
        return ablated_speech(self.table)

    def figure(self, **options: Any) -> Figure:
        """Drops by template and number as points with intervals; options of
        `plots.speech_ablation_figure`."""
        from ..reporting.plots.ablated_speech import speech_ablation_figure

        return speech_ablation_figure(self.means, **options)


def speech_ablation(
    models: Model | Loads,
    clips: Sequence[Clip],
    out: str | Path | None = None,
    *,
    sound_fills: Sequence[str] = ("zeros",),
    fills_of_tokens: Sequence[str | int] | None = None,
    aligner: Model | None = None,
    align_method: str = "auto",
    twin_clips: int | None = None,
    report: Callable[[str], None] = lambda line: None,
    skipped: Sequence[tuple[str, str]] = (),
) -> SpeechAblation:
    """Take the cue out of the sound, the decoder's tokens, and both, in every clip, and say what
    the target loses.

    The experiment of Mohebbi et al. 2023 (EMNLP) on cue words, with its control (the target),
    another word beside it, and random twins. What each number is:
    `speechmix.interventions.speech_ablation.ablate_speech`.

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        Whisper or CTC, with heads. Taken one after the other. Random twins (``load(...,
        init="random")``) are compared with the trained model of their name.
    clips : sequence of Clip
        With text, cue and target; those without words are aligned first. ``clip.meta`` may say
        template, number, side, pair, lemma and control.
    out : path, optional
        A folder of its own or that of a run, whose page then shows the result. A call that was
        stopped goes on there. By default nothing is written.
    sound_fills, fills_of_tokens
        As in `ablate_speech`.
    aligner, align_method
        Of `speechmix.align`.
    twin_clips : int, optional
        How many clips random twins after the first hear; all by default.
    report : callable
        Gets a line for each clip that is left out.
    skipped : sequence of (clip, reason)
        What was already left out.

    Returns
    -------
    SpeechAblation

    Raises
    ------
    InputError
        If two clips or models share a name, or no clip could be used.
    StorageError
        If `out` cannot be written to. What was finished is kept.

    Examples
    --------
    >>> result = speechmix.speech_ablation([model, twin], clips, "runs/small")            # doctest: +SKIP
    >>> result.means[["template", "number", "condition", "trained", "random", "claim"]]   # doctest: +SKIP
    """
    refuse_doubled(clips)
    models = [models] if isinstance(models, Model) else models
    options = {
        "sound_fills": tuple(sound_fills),
        "fills_of_tokens": fills_of_tokens and tuple(fills_of_tokens),
    }
    left_out = [{"clip": name, "model": "", "reason": reason} for name, reason in skipped]
    if out is None:
        clips = _with_words(clips, None, aligner, align_method, left_out, report)
        facts, ties = _facts(clips)
        tables = list(_tables(models, clips, facts, None, options, twin_clips, left_out, report))
        _refuse_nothing(tables, left_out)
        return SpeechAblation(pd.concat(tables, ignore_index=True), left_out, ties)
    folder = RunFolder(Path(out))
    with writing_to(folder.path):
        clips = _with_words(clips, folder, aligner, align_method, left_out, report)
        facts, ties = _facts(clips)
        with TableWriter(folder.path / SPEECH_ABLATION) as writer:
            for table in _tables(
                models, clips, facts, folder, options, twin_clips, left_out, report
            ):
                writer.append(table)
            writer.keep_former = not writer.has_rows
        write_csv(
            pd.DataFrame(left_out, columns=["clip", "model", "reason"]), folder.path / SKIPPED
        )
        _refuse_nothing(writer.has_rows, left_out)
        result = SpeechAblation(
            read_parquet(folder.table(SPEECH_ABLATION)), left_out, ties, folder.path
        )
        _write_means(result, folder)
    return result


def _with_words(
    clips: Sequence[Clip],
    folder: RunFolder | None,
    aligner: Model | None,
    method: str,
    left_out: list[dict[str, str]],
    report: Callable[[str], None],
) -> list[Clip]:
    """Clips with words: their own, those that the folder keeps, or placed now. What cannot be
    aligned is recorded."""
    placed = []
    with ExitStack() as files:
        results = files.enter_context(Results(folder, Owner(), Shard(), report)) if folder else None
        for clip in clips:
            try:
                with memory_errors_named():
                    if clip.words is None and results is not None:
                        clip, *_ = with_words(results, clip, aligner, method)
                    elif clip.words is None:
                        clip = align(clip, model=aligner, method=method)
            except StorageError:
                raise
            except SpeechmixError as error:
                left_out.append({"clip": clip.name, "model": "", "reason": str(error)})
                report(f"{clip.name}  SKIPPED: {error}")
                continue
            placed.append(clip)
    return placed


def _facts(clips: Sequence[Clip]) -> tuple[dict[str, dict[str, str]], str]:
    """By clip what it is grouped and parted by, and what ties clips together."""
    table = clip_table(clips)
    groups, ties = groups_of(table)
    defaults = {"side": "all", **dict.fromkeys(PARTS, ""), "control": "no"}
    facts = table.reindex(columns=list(defaults)).fillna(defaults).astype(str).assign(group=groups)
    return dict(zip(table["clip"], facts.to_dict("records"), strict=True)), ties


def _tables(
    models: Loads,
    clips: Sequence[Clip],
    facts: dict[str, dict[str, str]],
    folder: RunFolder | None,
    options: dict[str, Any],
    twin_clips: int | None,
    left_out: list[dict[str, str]],
    report: Callable[[str], None],
) -> Iterator[pd.DataFrame]:
    """The table of each clip and model; what fails is recorded."""
    labels: set[str] = set()
    with_twin: set[str] = set()
    for model in models:
        model = model if isinstance(model, Model) else model()
        if model.label in labels:
            raise InputError(
                f"two models are called {model.label!r}: give each its own name or seed"
            )
        labels.add(model.label)
        model.forget_fingerprint()
        further = twin_clips is not None and model.init == "random" and model.name in with_twin
        with_twin |= {model.name} if model.init == "random" else set()
        for clip in few_of(clips, twin_clips) if further and twin_clips is not None else clips:
            try:
                with memory_errors_named():
                    rows = _rows_of(folder, model, clip, options, report)
            except StorageError:
                raise
            except SpeechmixError as error:
                left_out.append({"clip": clip.name, "model": model.label, "reason": str(error)})
                report(f"{clip.name}  {model.label}  SKIPPED: {error}")
                continue
            table = identified(pd.DataFrame(rows), clip, model)
            for place, (name, value) in enumerate(facts[clip.name].items()):
                table.insert(5 + place, name, value)
            yield table


def _rows_of(
    folder: RunFolder | None,
    model: Model,
    clip: Clip,
    options: dict[str, Any],
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """What is read of one clip: kept, or read now and then kept."""
    if folder is None:
        return _read(model, clip, options)
    path = folder.path / SPEECH_ABLATION / safe_name(model.label) / f"{clip.name}.json"
    asked = {
        "weights": model.fingerprint,
        "dtype": str(model.state_dtype),
        **clip.ingredients,
        **options,
    }
    question = digest({**asked, **revision_entry(SPEECH_ABLATION)})
    stored = stored_json(path, report)
    if stored.get("question") == question and isinstance(stored.get("rows"), list):
        return stored["rows"]
    rows = _read(model, clip, options)
    write_checked_json(path, {"question": question, "rows": rows})
    return rows


def _read(model: Model, clip: Clip, options: dict[str, Any]) -> list[dict[str, Any]]:
    rows = ablate_speech(model, clip, **options).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _refuse_nothing(done: Any, left_out: list[dict[str, str]]) -> None:
    if not done:
        reasons = (
            "; ".join(dict.fromkeys(row["reason"] for row in left_out[:3])) or "there are no clips"
        )
        raise InputError(f"no clip could be used: {reasons}")


def _write_means(result: SpeechAblation, folder: RunFolder) -> None:
    from ..reporting.plots.panels import write_figure

    if result.means.empty:  # every clip is a control
        (folder.path / MEANS).unlink(missing_ok=True)
        return
    write_csv(result.means, folder.path / MEANS)
    figure = result.figure()
    for ending in ("png", "pdf"):
        write_figure(figure, folder.beside_page(SPEECH_ABLATION, ending))
