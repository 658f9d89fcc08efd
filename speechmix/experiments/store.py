"""What a run keeps of each clip: word times, maps, ablation and transcript, figure.

Each is written whole or not at all, and read back by a later start of the same run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..adapters import Model
from ..alignment.readers import write_textgrid
from ..clips import Clip, safe_name
from ..errors import SpeechmixError
from ..evaluation.ablation import ablate
from ..evaluation.spelling import character_error_rate, transcribe
from ..mixing import Maps, MixingMap
from ..scoring import mix
from ..spans import Word


def store_words(folder: Path, clip: Clip) -> Clip:
    content = {
        "alignment": clip.alignment,
        "doubts": clip.doubts,
        "text": clip.text,
        "words": [asdict(word) for word in clip.words],
    }
    path = folder / f"{clip.name}.json"
    write_textgrid(folder / f"{clip.name}.TextGrid", clip.words, clip.duration)
    _write_json(path, content)
    return clip


def stored_words(folder: Path, clip: Clip) -> Clip | None:
    path = folder / f"{clip.name}.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["text"] != clip.text:
        return None
    aligned = clip.with_words([Word(**word) for word in found["words"]], alignment=found["alignment"])
    aligned.doubts = tuple(found["doubts"])
    return aligned


def maps_of(out: Path, model: Model, clips: Sequence[Clip], options: dict[str, Any]) -> list[Maps | SpeechmixError]:
    """Maps of some clips: those of an earlier start of this run, or computed (in one forward pass) and stored.

    A clip that cannot be scored has its error instead.
    """
    found: dict[int, Maps | SpeechmixError] = {}
    for index, clip in enumerate(clips):
        stored = _stored(out, model, clip, options)
        if stored is not None:
            found[index] = stored
    missing = [index for index in range(len(clips)) if index not in found]
    if not missing:
        return [found[index] for index in range(len(clips))]
    try:
        computed: list[Any] = mix(model, [clips[i] for i in missing], clips_at_once=len(missing), **options)
    except SpeechmixError:  # one of them, or they do not go together
        computed = [_attempt(model, clips[i], options) for i in missing]
    for index, maps in zip(missing, computed, strict=True):
        found[index] = maps if isinstance(maps, SpeechmixError) else _store(out, model, clips[index], maps)
    return [found[index] for index in range(len(clips))]


def _attempt(model: Model, clip: Clip, options: dict[str, Any]) -> Maps | SpeechmixError:
    try:
        return mix(model, clip, **options)
    except SpeechmixError as error:
        return error


def _stored(out: Path, model: Model, clip: Clip, options: dict[str, Any]) -> Maps | None:
    folder = out / "maps" / safe_name(model.label) / clip.name
    if not folder.is_dir():
        return None
    found = [MixingMap.load(path) for path in sorted(folder.glob("*.safetensors"))]
    if found and all(_same_question(one, model, clip) for one in found):
        stacks = list(model.stacks)
        found.sort(key=lambda one: (options["measures"].index(one.measure), stacks.index(one.stack)))
        return Maps({(one.measure, one.stack): one for one in found})
    shutil.rmtree(folder)
    _figure_path(out, model, clip).unlink(missing_ok=True)
    return None


def _store(out: Path, model: Model, clip: Clip, maps: Maps) -> Maps:
    folder = out / "maps" / safe_name(model.label) / clip.name
    partial = folder.with_name(folder.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for (measure, stack), found in maps.items():
        found.save(partial / f"{measure}.{stack}.safetensors")
    os.replace(partial, folder)
    return maps


def _same_question(stored: MixingMap, model: Model, clip: Clip) -> bool:
    """Whether a stored map belongs to the model and the clip as they are now: the same weights, text, words, ..."""
    words = [[word.text, word.start, word.end] for word in clip.words or ()]
    known = stored.provenance
    asked = (model.fingerprint, clip.text, words, clip.target, clip.foil)
    return tuple(known.get(name) for name in ("weights", "text", "words", "target", "foil")) == asked


def judged(out: Path, model: Model, clip: Clip) -> dict[str, list[dict[str, Any]]]:
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
    _write_json(path, judged)
    return judged


def draw(out: Path, model: Model, clip: Clip, maps: Maps) -> None:
    path = _figure_path(out, model, clip)
    if path.is_file():
        return
    from ..reports.clip_figure import clip_figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = clip_figure(clip, maps)
    figure.suptitle(f"{clip.name}: {model.label}")
    figure.savefig(_partial(path), format="png", dpi=150)
    os.replace(_partial(path), path)


def _figure_path(out: Path, model: Model, clip: Clip) -> Path:
    return out / "figures" / safe_name(model.label) / f"{clip.name}.png"


def _write_json(path: Path, content: Any) -> None:
    _partial(path).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(_partial(path), path)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".part")
