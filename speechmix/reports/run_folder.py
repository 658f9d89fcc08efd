"""A run's folder, read back: its tables, its clips with their sound, and their maps.

In: a folder written by `experiments.run`. Audio is where the clip table says, or in a folder that is given (a run that was
made on another machine): a file named like the clip, or like its audio file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..clips import Clip, safe_name
from ..errors import InputError
from ..json_files import read_json_object
from ..mixing import MixingMap
from ..text_files import read_csv

if TYPE_CHECKING:
    from ..experiments.run import Run

Maps = dict[tuple[str, str, int | None], dict[tuple[str, str], MixingMap]]
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")


def open_run(folder: str | PathLike) -> Run:
    """Read what a run left; its `done` and `skipped` as the run itself counted them.

    Raises
    ------
    InputError
        If the folder holds no run.
    """
    from ..experiments.run import Run

    folder = Path(folder)
    if not (folder / "run.json").is_file() or not (folder / "clips.csv").is_file():
        raise InputError(f"{folder} holds no run: expected run.json and clips.csv, as `speechmix score` leaves them")
    skipped = folder / "skipped.csv"
    reasons = read_csv(skipped).to_dict("records") if skipped.is_file() else []
    if any(set(reason) != {"clip", "model", "reason"} for reason in reasons[:1]):
        raise InputError(f"{skipped}: expected the columns clip, model and reason, found {list(reasons[0])}")
    done = sum(1 for maps in folder.glob("maps/*/*") if maps.is_dir() and maps.suffix != ".part")
    return Run(folder, done=done, skipped=reasons)


def described_run(run: Run) -> dict[str, Any]:
    """Options and versions of a run, and its kind (title and notes of the page that was written at its end)."""
    found = {}
    for name in ("run.json", "report.json"):
        path = run.out / name
        if path.is_file():
            found |= read_json_object(path)
    return found


def maps_of_clip(run: Run, name: str) -> Maps:
    """Maps of a clip by (model, init, seed) and (measure, stack): trained models and one random twin of each."""
    found: Maps = {}
    for folder in sorted(run.out.glob(f"maps/*/{safe_name(name)}")):
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            continue
        known = MixingMap.load(paths[0]).provenance
        key = (str(known.get("model")), str(known.get("init")), known.get("seed"))
        if not isinstance(key[2], int | None):
            raise InputError(f"{paths[0]}: expected the seed of its model, found {key[2]!r:.80}")
        twin = next((other for other in found if other[:2] == key[:2] == (key[0], "random")), None)
        if twin is not None:
            if (twin[2] or 0) <= (key[2] or 0):
                continue
            del found[twin]
        found[key] = {(one.measure, one.stack): one for one in map(MixingMap.load, paths)}
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] != "trained")))


def clip_of(run: Run, name: str, maps: Maps, *, audio: str | PathLike | None = None) -> Clip | None:
    """Return the clip with its words, cue and target, or None if its audio is not to be found.

    Parameters
    ----------
    run : Run
    name : str
    maps : dict
        Of the clip, from `maps_of_clip`: they know the words.
    audio : path, optional
        Folder to look in first.
    """
    row = clip_row(run, name)
    path = _sound(row, Path(audio) if audio else None, run.out / "audio")
    known = next((one.provenance for by_model in maps.values() for one in by_model.values()), {})
    if path is None:
        return None
    words = [tuple(word) for word in known.get("words") or ()]
    clip = Clip.from_file(
        path, text=known.get("text"), cue=known.get("cue"), target=known.get("target"), foil=known.get("foil"), name=name,
        language=row.get("language") or None,
    )  # fmt: skip
    return clip.with_words(words, alignment=known.get("alignment")) if words else clip


def clip_row(run: Run, name: str) -> dict[str, Any]:
    """Row of the clip table.

    Raises
    ------
    InputError
        If there is no such clip.
    """
    clips = run.clips
    found = clips[clips["clip"] == str(name)]
    if found.empty:
        some = ", ".join(map(str, clips["clip"].head(5)))
        raise InputError(f"no clip {name!r} in {run.out}; there are {len(clips)}: {some}, ...")
    return found.iloc[0].to_dict()


def _sound(row: Mapping[str, Any], *folders: Path | None) -> Path | None:
    given = Path(str(row.get("audio_file") or ""))
    candidates: Sequence[Path] = [
        folder / name
        for folder in folders
        if folder is not None
        for name in (given.name, *(f"{row['clip']}{ending}" for ending in _SOUNDS))
        if name
    ]
    return next((path for path in (*candidates, given) if path.is_file()), None)
