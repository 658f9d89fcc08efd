"""What a run keeps of each clip: maps, ablation and transcript, figure (word times: word_times.py).

Each is written whole or not at all, with the hash of everything that went into it (its *question*), and is used by a later
start only if that is still the same. What is damaged is said, and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..adapters import Model
from ..errors import InputError, SpeechmixError
from ..evaluation.spelling import character_error_rate, transcribe
from ..files.identity import digest
from ..files.whole_files import whole_file
from ..inputs.clips import Clip
from ..inputs.cue_and_target import stored_cue
from ..interventions.ablation import CONTROL, ablate_with_control
from ..maps.mixing import Maps, MixingMap
from ..measures.registry import OF_SOME_MEASURES, measure_named
from ..scoring.forward import mix
from ..scoring.question import Question
from .checked_json import Report, stored_json, write_checked
from .folder import RunFolder
from .out_of_memory import OutOfMemory, memory_errors_named
from .own_texts import remember_written, written_of

_FEW_PAIRS = 256  # (target position, source) pairs at once, where memory ran out with as many as fit


def maps_question(model: Model, clip: Clip, question: Question, name: str) -> str:
    """Hash of what decides the maps of one measure: model, clip (not its cue) and the options that the measure reads."""
    asked, measure = question.described(), measure_named(name)
    unread = {"measures", *OF_SOME_MEASURES} - set(measure.options)
    clip_says = {name: value for name, value in clip.ingredients.items() if name != "cue"}
    model_says = {"weights": model.fingerprint, "dtype": str(model.state_dtype)}
    return digest(
        {
            "measure": measure.identity,
            **model_says,
            **clip_says,
            **{name: asked[name] for name in asked if name not in unread},
            **written_of(model, clip),
        }
    )


def maps_of(
    folder: RunFolder,
    model: Model,
    clips: Sequence[Clip],
    question: Question,
    report: Report,
    *,
    batch_size: int | str = "auto",
) -> list[Maps | SpeechmixError]:
    """Maps of some clips: those that are kept, or computed (in one forward pass) and then kept.

    A clip that cannot be scored has its error instead.
    """
    results: list[Mapping[tuple[str, str], MixingMap] | SpeechmixError] = []
    todo: dict[tuple[str, ...], list[int]] = {}
    for index, clip in enumerate(clips):
        try:
            remember_written(folder, model, clip, question, report)
            stored_maps = _stored_maps(folder, model, clip, question, report)
        except SpeechmixError as error:
            results.append(error)
            continue
        results.append(stored_maps)
        stored_measures = {measure for measure, _ in stored_maps}
        missing = tuple(name for name in question.measures if name not in stored_measures)
        if missing:
            todo.setdefault(missing, []).append(index)
    for missing, places in todo.items():
        asked = replace(question, measures=missing)
        for index, computed in zip(
            places, _computed_and_stored(folder, model, [clips[i] for i in places], asked, batch_size), strict=True
        ):
            stored = results[index]
            results[index] = (
                computed
                if isinstance(computed, SpeechmixError) or isinstance(stored, SpeechmixError)
                else {**stored, **computed}
            )
    return [_in_order(folder, model, clip, question, maps) for clip, maps in zip(clips, results, strict=True)]


def _computed_and_stored(
    folder: RunFolder, model: Model, clips: list[Clip], question: Question, batch_size: int | str
) -> list[Maps | SpeechmixError]:
    """Maps of some clips, computed now and kept; of a recording that was replaced meanwhile the error that says so."""
    sounds = [clip.sound for clip in clips]
    results = _computed(model, clips, question, batch_size)
    for index, (clip, maps) in enumerate(zip(clips, results, strict=True)):
        if isinstance(maps, SpeechmixError):
            continue
        if clip.sound != sounds[index]:
            results[index] = InputError(f"{clip.path} was replaced while it was scored: give the same command again")
        else:
            _store_maps(folder, model, clip, question, maps)
    return results


def _in_order(
    folder: RunFolder,
    model: Model,
    clip: Clip,
    question: Question,
    maps: Mapping[tuple[str, str], MixingMap] | SpeechmixError,
) -> Maps | SpeechmixError:
    """Maps in the order that was asked for; the folder keeps just these."""
    if isinstance(maps, SpeechmixError):
        return maps
    _keep_only(folder.maps(model, clip), {_file_name(*key) for key in maps})
    return Maps({key: maps[key] for key in sorted(maps, key=_order(model, question))})


def _order(model: Model, question: Question) -> Callable[[tuple[str, str]], tuple[int, int]]:
    measures, stacks = list(question.measures), list(model.stacks)
    return lambda key: (measures.index(key[0]), stacks.index(key[1]))


def _stored_maps(
    folder: RunFolder, model: Model, clip: Clip, question: Question, report: Report
) -> dict[tuple[str, str], MixingMap]:
    """Maps that are kept, of the measures whose maps are all there and of the same question."""
    stored: dict[str, list[MixingMap]] = {}
    for path in sorted(folder.maps(model, clip).glob("*.safetensors")):
        try:
            stored_map = MixingMap.load(path)
        except InputError as error:
            report(f"{path} is damaged and made again ({error})")
            continue
        stored.setdefault(stored_map.measure, []).append(stored_map)
    usable: dict[tuple[str, str], MixingMap] = {}
    for measure in question.measures:
        maps = stored.get(measure, [])
        asked = maps_question(model, clip, question, measure) if maps else None
        stacks = {stored_map.stack for stored_map in maps}
        if maps and all(m.provenance.get("question") == asked and set(m.provenance["stacks"]) == stacks for m in maps):
            usable |= {(measure, m.stack): _said_now(folder, model, clip, m) for m in maps}
    return {key: usable[key] for key in sorted(usable, key=_order(model, question))}


def _said_now(folder: RunFolder, model: Model, clip: Clip, stored_map: MixingMap) -> MixingMap:
    """Return the map with what decides no score (the cue, the clip's name) as it is now, in the file too."""
    now = {"clip": clip.name, "cue": stored_cue(clip.cue), "alignment": clip.alignment, "fingerprint": clip.fingerprint}
    if all(stored_map.provenance.get(name) == value for name, value in now.items()):
        return stored_map
    stored_map = replace(stored_map, provenance={**stored_map.provenance, **now})
    stored_map.save(folder.maps(model, clip) / _file_name(stored_map.measure, stored_map.stack))
    return stored_map


def _store_maps(folder: RunFolder, model: Model, clip: Clip, question: Question, maps: Maps) -> None:
    """Keep maps, each with its question and the stacks that its measure has maps of."""
    questions = {measure: maps_question(model, clip, question, measure) for measure in {name for name, _ in maps}}
    for (measure, stack), computed in maps.items():
        noted = {"question": questions[measure], "stacks": [other for name, other in maps if name == measure]}
        path = folder.maps(model, clip) / _file_name(measure, stack)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(computed, provenance={**computed.provenance, **noted}).save(path)


def _file_name(measure: str, stack: str) -> str:
    return f"{measure}.{stack}.safetensors"


def _keep_only(folder: Path, names: set[str]) -> None:
    """Remove maps of other questions: of measures, or stacks, that are no longer asked for."""
    for path in folder.glob("*.safetensors"):
        if path.name not in names:
            path.unlink()


def _computed(
    model: Model, clips: list[Clip], question: Question, batch_size: int | str
) -> list[Maps | SpeechmixError]:
    """Maps of clips in one forward pass; one by one if that does not go, and in smaller batches if memory ran out."""
    try:
        with memory_errors_named():
            return _mixed(model, clips, question, batch_size)
    except SpeechmixError:  # one of them, or they do not go together
        return [_attempt(model, clip, question, batch_size) for clip in clips]


def _mixed(model: Model, clips: list[Clip], question: Question, batch_size: int | str) -> list[Maps | SpeechmixError]:
    maps = mix(model, clips, clips_at_once=len(clips), batch_size=batch_size, **question.options)
    return [maps] if isinstance(maps, Maps) else [*maps]


def _attempt(model: Model, clip: Clip, question: Question, batch_size: int | str) -> Maps | SpeechmixError:
    few_pairs = _FEW_PAIRS if isinstance(batch_size, str) else min(batch_size, _FEW_PAIRS)
    for pairs in (batch_size, few_pairs):
        try:
            with memory_errors_named():
                return _mixed(model, [clip], question, pairs)[0]
        except OutOfMemory as error:
            failure: SpeechmixError = error
        except SpeechmixError as error:
            return error
    return failure


def judged(
    folder: RunFolder, model: Model, clip: Clip, report: Report, *, by_layer: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Ablation (of each layer, too, where that is asked for) and transcript of one clip: kept, or made now and then kept."""
    path = folder.spelling(model, clip)
    stored = stored_json(path, report)
    parts: dict[str, dict[str, Any]] = {}
    asked = {"weights": model.fingerprint, "dtype": str(model.state_dtype), **clip.ingredients}
    transcribes = model.prefix.task == "transcribe"  # a translation spells no foil, and is no transcript
    if transcribes and clip.foil and clip.cue is not None:
        ablation = partial(_ablation, by_layer=by_layer)
        parts["ablation"] = {"question": digest({**asked, "by_layer": by_layer, "control": CONTROL}), "of": ablation}
    if transcribes and clip.text and model.init == "trained":
        heard = {name: asked[name] for name in ("weights", "dtype", "sound", "language", "text")}
        parts["transcripts"] = {"question": digest(heard), "of": _transcript}
    content: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        stored_part = stored.get(name)
        if not isinstance(stored_part, dict) or not isinstance(stored_part.get("rows"), list):
            stored_part = {}
        same = stored_part.get("question") == part["question"]
        content[name] = stored_part if same else {"question": part["question"], "rows": part["of"](model, clip)}
    if content != stored:
        write_checked(path, content)
    return {name: part["rows"] for name, part in content.items()}


def _ablation(model: Model, clip: Clip, *, by_layer: bool) -> list[dict[str, Any]]:
    table = ablate_with_control(model, clip, by_layer=by_layer)
    rows = table.astype({"layer": object}).to_dict("records")
    return [{str(column): None if value is pd.NA else value for column, value in row.items()} for row in rows]


def _transcript(model: Model, clip: Clip) -> list[dict[str, Any]]:
    transcript = transcribe(model, clip)
    rate = character_error_rate(clip.text or "", transcript)
    return [{"text": clip.text, "transcript": transcript, "character_error_rate": rate}]


def draw(folder: RunFolder, model: Model, clip: Clip, maps: Maps, question: Question, *, wanted: bool) -> None:
    """Draw the clip's figure, if it is wanted and not there; one of another question is removed in any case."""
    path = folder.figure(model, clip)
    if not wanted and not path.is_file():
        return
    of_maps = {measure: maps_question(model, clip, question, measure) for measure, _ in maps}
    drawn_of = digest([of_maps, clip.ingredients, clip.name, model.label, clip.doubts, clip.alignment])
    if path.is_file() and _question_of_picture(path) == drawn_of:
        return
    path.unlink(missing_ok=True)
    if not wanted:
        return
    from ..plots.one_clip import clip_figure
    from ..plots.panels import fed_text

    figure = clip_figure(clip, maps)
    fed = next((told for one in maps.values() if (told := fed_text(one.provenance))), "")
    figure.suptitle(f"{clip.name}: {model.label}" + (f"\n{fed}" if fed else ""), parse_math=False)
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150, metadata={"question": drawn_of})


def _question_of_picture(path: Path) -> str | None:
    import PIL.Image

    try:
        with PIL.Image.open(path) as picture:
            picture.load()
            return picture.info.get("question")
    except (OSError, SyntaxError, ValueError):  # what PIL raises for a damaged file
        return None
