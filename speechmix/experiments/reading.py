"""A run's folder, read back: its tables, its clips with their sound, and their maps.

In: a folder written by `experiments.run`, whole or damaged: a table that cannot be read is an `InputError` that names it, a map
is left out of its clip. Audio is where the clip table says, or in a folder that is given (a run that was made on another
machine): a file named like the clip, or like its audio file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, SpeechmixError
from ..files.text_files import read_csv
from ..files.whole_files import UNFINISHED
from ..inputs.clips import Clip, safe_name
from ..inputs.words import check_words
from ..maps.mixing import MixingMap
from .checked_tables import check_tables, damaged, described_run

if TYPE_CHECKING:
    from .run import Run

Maps = dict[tuple[str, str, int | None], dict[tuple[str, str], MixingMap]]
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")


STOPPED = (
    "This run was stopped before its end: the tables are those of an earlier start, if there was one, and may lack clips whose "
    "maps are there. Start it again with the same options, and it goes on where it was."
)


def open_run(folder: str | PathLike) -> Run:
    """Read what a run left; its `done` and `skipped` as the run itself counted them.

    A run that was stopped before its end is opened with a warning.

    Raises
    ------
    InputError
        If the folder holds no run, or one of its tables cannot be read.
    """
    from .run import Run

    folder = Path(folder)
    if (folder / "run.json").is_file() and not (folder / "clips.csv").is_file():
        raise InputError(f"{folder} holds a run that was stopped before its tables were written: start it again")
    if not (folder / "run.json").is_file() or not (folder / "clips.csv").is_file():
        raise InputError(f"{folder} holds no run: expected run.json and clips.csv, as `speechmix score` leaves them")
    skipped = folder / "skipped.csv"
    reasons = read_csv(skipped).to_dict("records") if skipped.is_file() else []
    if any(set(reason) != {"clip", "model", "reason"} for reason in reasons[:1]):
        raise damaged(skipped, f"the columns clip, model and reason, found {', '.join(map(str, reasons[0]))}")
    run = Run(folder, skipped=reasons)
    description = described_run(run)
    done = description.get("done")
    run.done = (
        done
        if isinstance(done, int)
        else sum(1 for model in model_folders(folder) for clip in clip_folders(model) if clip.suffix != ".part")
    )
    if description.get("state") == "running":
        warnings.warn(f"{folder}: {STOPPED}", stacklevel=2)
    check_tables(folder)
    return run


def model_folders(run: Path) -> Iterator[Path]:
    """Folders of maps by model, in alphabetical order."""
    return (path for path in sorted(run.glob("maps/*")) if path.is_dir() and not _is_unfinished(path))


def clip_folders(model: Path) -> Iterator[Path]:
    """Folders of a model's maps by clip, in alphabetical order; what dead processes left is no clip."""
    return (path for path in sorted(model.iterdir()) if path.is_dir() and not _is_unfinished(path))


def _is_unfinished(path: Path) -> bool:
    return path.name.startswith(UNFINISHED)


def read_map(path: Path) -> MixingMap:
    """Read a map of a run.

    Raises
    ------
    InputError
        If the file is damaged, or does not say of which model and clip it is.
    """
    mixing_map = MixingMap.load(path)
    known = mixing_map.provenance
    words, texts = known.get("words") or (), ("text", "foil", "alignment")
    right = isinstance(known.get("model"), str) and isinstance(known.get("init"), str)
    right &= isinstance(known.get("seed"), int | None) and all(
        isinstance(known.get(name), str | None) for name in texts
    )
    right &= isinstance(words, list | tuple) and all(
        isinstance(word, list | tuple) and len(word) == 3 for word in words
    )
    if not right:
        raise damaged(path, "a map that says of which model and clip it is")
    if words:
        check_words(words, where=str(path))
    for role in ("cue", "target"):
        index = known.get(role)
        if index is not None and not (isinstance(index, int) and 0 <= index < len(words)):
            raise damaged(path, f"a {role} that is one of the {len(words)} words, found {index!r}")
    return mixing_map


def maps_of_clip(run: Run, name: str, *, unreadable: list[str] | None = None) -> Maps:
    """Maps of a clip by (model, init, seed) and (measure, stack): trained models and one random twin of each.

    Parameters
    ----------
    run : Run
    name : str
    unreadable : list, optional
        Gets the reason for each map that is left out because it cannot be read; without it there is a warning.
    """
    by_model: Maps = {}
    reasons: list[str] = []
    asked = str(clip_row(run, name).get("fingerprint") or "")
    for folder in model_folders(run.out):
        maps = {}
        for path in sorted((folder / safe_name(name)).glob("*.safetensors")):
            try:
                one = read_map(path)
            except SpeechmixError as error:
                reasons.append(str(error))
                continue
            if asked in ("", one.provenance.get("fingerprint", asked)):  # else of an earlier start that asked otherwise
                maps[one.measure, one.stack] = one
        if not maps:
            continue
        known = next(iter(maps.values())).provenance
        key = (known["model"], known["init"], known.get("seed"))
        twin = next((other for other in by_model if other[:2] == key[:2] == (key[0], "random")), None)
        if twin is not None:
            if (twin[2] or 0) <= (key[2] or 0):
                continue
            del by_model[twin]
        by_model[key] = maps
    if unreadable is not None:
        unreadable += reasons
    elif reasons:
        warnings.warn(f"{len(reasons)} maps of {name!r} are left out: {reasons[0]}", stacklevel=2)
    return dict(sorted(by_model.items(), key=lambda item: (item[0][0], item[0][1] != "trained")))


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
        language=row.get("language") or None, sound=row.get("sound") or None,
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
    return next((path for path in (*candidates, given) if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have, from a damaged table
        return False
