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
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..adapters.check import versions
from ..adapters.model import Model
from ..alignment import align
from ..alignment.readers import write_textgrid
from ..clips import Clip, safe_name
from ..errors import InputError, SpeechmixError
from ..evaluation.ablation import ablate
from ..evaluation.cue import cue_contribution
from ..evaluation.spelling import can_spell, character_error_rate, transcribe
from ..mixing import Maps, MixingMap
from ..scoring import mix
from ..spans import Word
from .tables import TableWriter

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
        """Table of the clips."""
        return pd.read_csv(self.out / "clips.csv", keep_default_na=False)

    def _table(self, name: str) -> pd.DataFrame:
        path = self.out / f"{name}.parquet"
        return pd.read_parquet(path) if path.is_file() else pd.DataFrame()

    def summary(self) -> str:
        """One count, and the reasons."""
        lines = [f"{self.done} done, {len(self.skipped)} skipped; results in {self.out}"]
        lines += [
            f"  skipped {row['clip']} {row['model']}: {row['reason']}".replace(" :", ":") for row in self.skipped[:20]
        ]
        if len(self.skipped) > 20:
            lines.append(f"  ... and {len(self.skipped) - 20} more in skipped.csv")
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
        for model in models:
            model = model if isinstance(model, Model) else model()
            for number, clip in enumerate(_bar(ready, progress, f"score {model.label}")):
                try:
                    maps = _maps_of(run.out, model, clip, options)
                    shares = contribution_table(maps, clip, model)
                    judged = _judged(run.out, model, clip) if ablation and can_spell(model) else {}
                    if figures is None or number < figures:
                        _draw(run.out, model, clip, maps)
                except SpeechmixError as error:
                    run.skip(clip.name, error, model.label)
                    report(f"{clip.name}  {model.label}  SKIPPED: {error}")
                    continue
                contributions.append(shares)
                scores.append(score_table(maps, clip, model))
                ablations.append(_identified(pd.DataFrame(judged.get("ablation", [])), clip, model))
                transcripts.append(_identified(pd.DataFrame(judged.get("transcripts", [])), clip, model))
                run.done += 1
                report(result_line(clip, model, shares))
    pd.DataFrame(run.skipped, columns=["clip", "model", "reason"]).to_csv(run.out / "skipped.csv", index=False)
    return run


def contribution_table(maps: Maps, clip: Clip, model: Model) -> pd.DataFrame:
    """Cue contribution per stack, measure and layer; empty without cue and target.

    `rows` says of which rows of the map: all of the "target"'s, or the "deciding" one (decoder, with a foil).
    `share_of_length` is what the cue would get if every frame (token) of the sources counted the same.
    """
    found, columns = [], ["cue", "target", "stack", "measure", "rows", "layer", "contribution", "share_of_length"]
    if clip.cue is not None and clip.target is not None:
        cue, target = clip.words[clip.cue].text, clip.words[clip.target].text
        for (measure, stack), one in maps.items():
            sources = one.without("silence", "padding").sources
            length = sum(len(s) for s in sources if s.word == clip.cue) / sum(map(len, sources))
            known = {"cue": cue, "target": target, "stack": stack, "measure": measure, "share_of_length": length}
            for rows in _rows_of(one, clip):
                shares = cue_contribution(one, cue=clip.cue, target=clip.target, rows=rows)
                found += [
                    {**known, "rows": rows, "layer": layer, "contribution": share}
                    for layer, share in zip(one.layers, shares.tolist(), strict=True)
                ]
    return _identified(pd.DataFrame(found, columns=columns), clip, model)


def _rows_of(found: MixingMap, clip: Clip) -> list[str]:
    """Which rows can be asked about: in a decoder, a target the cue comes after has no cue column to look at."""
    if found.stack == "decoder" and clip.cue > clip.target:
        return []
    deciding = found.stack != "encoder" and "deciding_position" in found.provenance
    return ["target", "deciding"] if deciding else ["target"]


def clip_table(clips: Sequence[Clip]) -> pd.DataFrame:
    """One row per clip, with the further columns of its manifest."""
    rows = []
    for clip in clips:
        words = clip.words or ()
        cue, target = (words[i].text if i is not None else "" for i in (clip.cue, clip.target))
        known = {"clip": clip.name, "seconds": round(clip.duration, 3), "text": clip.text, "cue": cue, "target": target}
        doubts = " ".join(clip.doubts)
        rows.append({**known, "foil": clip.foil, "alignment": clip.alignment, "doubts": doubts, **clip.meta})
    return pd.DataFrame(rows)


def score_table(maps: Maps, clip: Clip, model: Model) -> pd.DataFrame:
    """Every score of every map, raw and as a share of its row."""
    tables = [found.to_dataframe().assign(share=found.normalized().scores.ravel()) for found in maps.values()]
    return _identified(pd.concat(tables, ignore_index=True), clip, model)


def result_line(clip: Clip, model: Model, shares: pd.DataFrame) -> str:
    """One line a clip: length, words, alignment, and where the cue contributes most."""
    parts = [clip.name, model.label, f"{clip.duration:.2f} s, {len(clip.words or ())} words"]
    if clip.doubts:
        parts.append("DOUBTFUL word times")
    if len(shares):
        cue, target = clip.words[clip.cue].text, clip.words[clip.target].text
        shares = shares[shares.rows == "target"]
        chosen = shares[shares.measure == shares.measure.iloc[0]]
        peaks = (group.loc[group.contribution.idxmax()] for _, group in chosen.groupby("stack", sort=False))
        shown = ", ".join(f"{p.stack} {100 * p.contribution:.1f} % (layer {p.layer})" for p in peaks)
        parts.append(f"{cue} -> {target}: {shares.measure.iloc[0]} peaks at {shown}")
    return "  ".join(parts)


def _identified(table: pd.DataFrame, clip: Clip, model: Model) -> pd.DataFrame:
    for position, (column, value) in enumerate(
        (("clip", clip.name), ("model", model.name), ("init", model.init), ("seed", model.seed))
    ):
        table.insert(position, column, value)
    return table.astype({"seed": "Int64"})


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
                clip = _restored(folder, clip) or _stored(folder, _quietly_aligned(clip, aligner, method))
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


def _stored(folder: Path, clip: Clip) -> Clip:
    content = {
        "alignment": clip.alignment,
        "doubts": clip.doubts,
        "text": clip.text,
        "words": [asdict(word) for word in clip.words],
    }
    path = folder / f"{clip.name}.json"
    write_textgrid(path.with_suffix(".TextGrid"), clip.words, clip.duration)
    path.with_suffix(".part").write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(path.with_suffix(".part"), path)
    return clip


def _restored(folder: Path, clip: Clip) -> Clip | None:
    path = folder / f"{clip.name}.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["text"] != clip.text:
        return None
    aligned = clip.with_words([Word(**word) for word in found["words"]], alignment=found["alignment"])
    aligned.doubts = tuple(found["doubts"])
    return aligned


def _maps_of(out: Path, model: Model, clip: Clip, options: dict[str, Any]) -> Maps:
    """Maps of one clip: those of an earlier start of this run, or computed and stored."""
    folder = out / "maps" / safe_name(model.label) / clip.name
    if folder.is_dir():
        found = [MixingMap.load(path) for path in sorted(folder.glob("*.safetensors"))]
        if found and all(_same_question(one, clip) for one in found):
            stacks = list(model.stacks)
            found.sort(key=lambda one: (options["measures"].index(one.measure), stacks.index(one.stack)))
            return Maps({(one.measure, one.stack): one for one in found})
        shutil.rmtree(folder)
    maps = mix(model, clip, **options)
    partial = folder.with_name(folder.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for (measure, stack), found in maps.items():
        found.save(partial / f"{measure}.{stack}.safetensors")
    os.replace(partial, folder)
    return maps


def _same_question(stored: MixingMap, clip: Clip) -> bool:
    """Whether a stored map belongs to the clip as it is now: the same text, words, target and foil."""
    words = [[word.text, word.start, word.end] for word in clip.words or ()]
    known = stored.provenance
    asked = (clip.text, words, clip.target, clip.foil)
    return tuple(known.get(name) for name in ("text", "words", "target", "foil")) == asked


def _judged(out: Path, model: Model, clip: Clip) -> dict[str, list[dict[str, Any]]]:
    """Ablation and transcript of one clip, kept beside its maps."""
    path = out / "maps" / safe_name(model.label) / clip.name / "spelling.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    judged: dict[str, list[dict[str, Any]]] = {}
    if clip.foil and clip.cue is not None:
        judged["ablation"] = ablate(model, clip).to_dict(orient="records")
    if clip.text and model.init == "trained":
        transcript = transcribe(model, clip)
        rate = character_error_rate(clip.text, transcript)
        judged["transcripts"] = [{"text": clip.text, "transcript": transcript, "character_error_rate": rate}]
    path.write_text(json.dumps(judged, ensure_ascii=False), encoding="utf-8")
    return judged


def _draw(out: Path, model: Model, clip: Clip, maps: Maps) -> None:
    path = out / "figures" / safe_name(model.label) / f"{clip.name}.png"
    if path.is_file():
        return
    from ..reports.clip_figure import clip_figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = clip_figure(clip, maps)
    figure.suptitle(f"{clip.name}: {model.label}")
    figure.savefig(path, dpi=150)


def _bar(items: Sequence, show: bool, description: str) -> Iterable:
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="clip", leave=False)
