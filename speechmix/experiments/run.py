"""A run: clips through models, one at a time, kept as they are done, resumable.

In: models (or functions that load them), clips, options of `speechmix.mix`. Out: a folder

    run.json                                  options and versions
    words/<clip>.json, .TextGrid              where each word is, and how that is known
    maps/<model>/<clip>/<measure>.<stack>.safetensors
    figures/<model>/<clip>.png
    scores.parquet, .csv                      one row per clip, model, stack, measure, layer, target and source
    cue_contribution.parquet, .csv            one row per clip, model, stack, measure, rows and layer
    transcripts.parquet, .csv                 with ablation: what each trained model writes, and its error rate
    ablation.parquet, .csv                    with ablation: one row per clip, model and silenced stack
    clips.csv                                 one row per clip: text, cue, target, foil, alignment, what else is known
    skipped.csv                               what was left out and why

A clip's maps are moved into place when they are complete, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..adapters.check import versions
from ..adapters.model import Model
from ..alignment import align
from ..batches import clips_together, in_groups
from ..clips import Clip, read_ahead
from ..errors import InputError, SpeechmixError
from ..evaluation.spelling import can_spell
from .store import draw, judged, maps_of, store_words, stored_words
from .tables import TableWriter, clip_table, contribution_table, identified, result_line, score_table

CONTRIBUTIONS, SCORES, ABLATION, TRANSCRIPTS = "cue_contribution", "scores", "ablation", "transcripts"


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
        return pd.read_csv(self.out / "clips.csv", keep_default_na=False, dtype=str).astype({"seconds": float})

    def _table(self, name: str) -> pd.DataFrame:
        path = self.out / f"{name}.parquet"
        return pd.read_parquet(path) if path.is_file() else pd.DataFrame()

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
    models: Iterable[Model | Callable[[], Model]],
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
    **options: Any,
) -> Run:
    """Score clips with models into a run folder.

    Parameters
    ----------
    models : iterable of Model, or of functions that load one
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
        Start afresh in a folder that holds another run.
    progress : bool
        Show a bar on standard error.
    report : callable
        Gets one line a clip.
    skipped : sequence of (clip, reason)
        What was already left out, e.g. while reading the manifest.
    **options
        Of `speechmix.mix`: stacks, targets, heads, ...

    Returns
    -------
    Run

    Raises
    ------
    InputError
        If `out` holds a run with other options.
    """
    options = {"measures": list(measures), **options}
    run = Run(_open_folder(Path(out), options, overwrite))
    for name, reason in skipped:
        run.skip(name, reason)
    wants_words = options.get("units", "word") == "word"
    ready = list(_aligned(run, clips, aligner, align_method, report, progress, wants_words))
    clip_table(ready).to_csv(run.out / "clips.csv", index=False)
    names = (CONTRIBUTIONS, SCORES, ABLATION, TRANSCRIPTS)
    with ExitStack() as files:
        contributions, scores, ablations, transcripts = (
            files.enter_context(TableWriter(run.out / name)) for name in names
        )
        labels: set[str] = set()
        for model in models:
            model = model if isinstance(model, Model) else model()
            if model.label in labels:
                raise InputError(
                    f"two models are called {model.label!r}: give them runs, or folders, of their own names"
                )
            labels.add(model.label)
            for number, (clip, maps) in enumerate(_scored(run, model, ready, options, progress)):
                try:
                    if isinstance(maps, SpeechmixError):
                        raise maps
                    shares = contribution_table(maps, clip, model)
                    spelled = judged(run.out, model, clip) if ablation and can_spell(model) else {}
                    if figures is None or number < figures:
                        draw(run.out, model, clip, maps)
                except SpeechmixError as error:
                    run.skip(clip.name, error, model.label)
                    report(f"{clip.name}  {model.label}  SKIPPED: {error}")
                    continue
                contributions.append(shares)
                scores.append(score_table(maps, clip, model))
                ablations.append(identified(pd.DataFrame(spelled.get("ablation", [])), clip, model))
                transcripts.append(identified(pd.DataFrame(spelled.get("transcripts", [])), clip, model))
                run.done += 1
                report(result_line(clip, model, shares))
    pd.DataFrame(run.skipped, columns=["clip", "model", "reason"]).to_csv(run.out / "skipped.csv", index=False)
    return run


def _scored(run: Run, model: Model, clips: Sequence[Clip], options, progress) -> Iterator[tuple[Clip, Any]]:
    """Each clip with its maps (or its error), in groups that share a forward pass, the next clips read ahead."""
    at_once = clips_together(model)
    ahead = read_ahead(clips, sample_rate=model.sample_rate, count=at_once)
    shown = _bar(ahead, progress, f"score {model.label}", total=len(clips))
    with model.unchanged():
        for group in in_groups(shown, at_once):
            yield from zip(group, maps_of(run.out, model, group, options), strict=True)


def _open_folder(out: Path, options: dict[str, Any], overwrite: bool) -> Path:
    """Make the folder, or make sure that it holds a run with the same options."""
    description = {"options": json.loads(json.dumps(options, default=str)), "versions": versions()}
    path = out / "run.json"
    if path.is_file() and not overwrite:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("options") != description["options"]:
            raise InputError(
                f"{out} holds a run with other options ({found.get('options')}): choose another folder, or overwrite it"
            )
    elif overwrite:
        for part in ("maps", "words", "figures"):
            shutil.rmtree(out / part, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(description, indent=2, ensure_ascii=False), encoding="utf-8")
    return out


def _aligned(run: Run, clips, aligner, method, report, progress, wants_words) -> Iterator[Clip]:
    """Clips with words; those that cannot get them are recorded."""
    folder = run.out / "words"
    folder.mkdir(exist_ok=True)
    todo = [clip for clip in clips if clip.words is None]
    bar = _bar(clips, progress and bool(todo), "align")
    for clip in bar:
        try:
            clip.validate()
            if clip.words is None and (clip.text or wants_words):
                clip = stored_words(folder, clip) or store_words(folder, _quietly_aligned(clip, aligner, method))
                for doubt in clip.doubts:
                    report(f"{clip.name}  word times are DOUBTFUL: {doubt}")
        except SpeechmixError as error:
            run.skip(clip.name, error)
            report(f"{clip.name}  SKIPPED: {error}")
            continue
        yield clip


def _quietly_aligned(clip: Clip, aligner, method) -> Clip:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubts are reported in the clip's own line
        return align(clip, model=aligner, method=method)


def _bar(items: Iterable, show: bool, description: str, *, total: int | None = None) -> Iterable:
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="clip", leave=False, total=total)
