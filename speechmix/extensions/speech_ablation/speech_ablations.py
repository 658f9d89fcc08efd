"""The published ablation of speech over clips and models, kept clip by clip, resumable; trained
models and random twins.

In: models (or functions that load them), clips, a folder. Out: a `SpeechAblation`, and in the
folder (it may be that of a run)

    results/<model>/                          what was computed of each clip (kinds/speech_ablation.py)
    speech_ablation.parquet, .csv             one row per clip, model, way to take a word away, reading and aggregation
    speech_ablation_means.csv                 over clips, by template and number, beside untrained models
    speech_ablation.png, .pdf                 the same drawn
    speech_ablation_skipped.csv               what was left out and why
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.parquet_files import read_parquet
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ...runs.executors.executor import Executor
from ...runs.results.run_folder import SPEECH_ABLATION, RunFolder, RunState
from ...runs.score_clips import Loads, compute_kinds
from ...runs.shard_merge import read_job_clips
from .ablated_speech import MEANS
from .kind import clip_groups
from .speech_ablation import summarize_speech_ablation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MEANS", "SpeechAblation", "speech_ablation"]


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
    grouping : str
        How many groups and speakers there are, in a sentence.
    out : Path, optional
        The folder with the tables and the figure.
    """

    table: pd.DataFrame
    skipped: list[dict[str, str]] = field(default_factory=list)
    grouping: str = ""
    out: Path | None = None

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean drops by template and number, with intervals, twins and tests; see
        `extensions.speech_ablation.speech_ablation`."""
        return summarize_speech_ablation(self.table)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table."""
        return self.table.copy()

    def show(self, **options: Any) -> Figure:
        """Drops by template and number as points with intervals; options of
        `speech_ablation_figure`."""
        from .ablated_speech import speech_ablation_figure

        return speech_ablation_figure(self.means, **options)


def speech_ablation(
    models: Model | Loads,
    clips: Sequence[Clip],
    out: str | Path | None = None,
    *,
    sound_fills: Sequence[str] = ("zeros",),
    fills_of_tokens: Sequence[str | int] | None = None,
    aligner: Model | Callable[[], Model] | None = None,
    align_method: str = "auto",
    twin_clips: int | None = None,
    group: str | None = None,
    report: Callable[[str], None] = lambda line: None,
    skipped: Sequence[tuple[str, str]] = (),
    shard: Shard | str | None = None,
    executor: Executor | None = None,
) -> SpeechAblation | None:
    """Take the cue out of the sound, the decoder's tokens, and both, in every clip, and say what
    the target loses.

    The experiment of Mohebbi et al. 2023 (EMNLP) on cue words, with its control (the target),
    another word beside it, and random twins. What each number is:
    `speechmix.extensions.speech_ablation.speech_ablation.ablate_speech`.

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
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    report : callable
        Gets a line for each clip that is left out.
    skipped : sequence of (clip, reason)
        What was already left out.
    shard, executor
        Of `score_clips`; they need a folder that stays.

    Returns
    -------
    SpeechAblation or None
        None while other shards are not done.

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
    fills = None if fills_of_tokens is None else tuple(fills_of_tokens)
    options = {"sound_fills": tuple(sound_fills), "fills_of_tokens": fills}
    common_options: JsonObject = {
        "aligner": aligner,
        "align_method": align_method,
        "report": report,
    }
    common_options |= {"twin_clips": twin_clips, "skipped": skipped, "group": group}
    if out is None:
        if shard is not None or executor is not None:
            raise InputError("a shard, or workers, need a folder: say which with out=")
        with TemporaryDirectory() as scratch:
            ablated = speech_ablation(
                models,
                clips,
                scratch,
                sound_fills=sound_fills,
                fills_of_tokens=fills,
                **common_options,
            )
            return ablated and replace(ablated, out=None)
    folder = RunFolder(Path(out))
    run = compute_kinds(
        models,
        clips,
        out,
        {SPEECH_ABLATION: options},
        progress=False,
        shard=shard,
        executor=executor,
        **common_options,
    )
    if not run.is_complete:
        return None
    is_whole = shard is None and executor is None
    if not run.done and (is_whole or not folder.table_path(SPEECH_ABLATION).is_file()):
        reasons = "; ".join(dict.fromkeys(row["reason"] for row in run.skipped[:3]))
        raise InputError(f"no clip could be used: {reasons or 'there are no clips'}")
    job_clips = read_job_clips(folder, clips, SPEECH_ABLATION)
    _, grouping = clip_groups(job_clips, group or RunState(folder).group)
    table = read_parquet(folder.table_path(SPEECH_ABLATION))
    return SpeechAblation(table, run.skipped, grouping, folder.path)
