"""Names of clips, each of them once: refuse two clips of one name, or tell them apart by their folders.

In: clips. Out: the same clips, with distinct names. Results are stored by name, so two clips of one
name would share a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from ...files.names import file_name_key, fold_name, safe_name
from .clip import Clip


def refuse_duplicate_names(clips: Sequence[Clip]) -> None:
    """Raise InputError, with both paths, if two clips have one name: they would share their
    results."""
    clip_by_name: dict[str, Clip] = {}
    for clip in clips:
        earlier_clip = clip_by_name.setdefault(fold_name(clip.name), clip)
        if earlier_clip is not clip:
            shared_name = (
                repr(clip.name)
                if clip.name == earlier_clip.name
                else f"{earlier_clip.name!r} and {clip.name!r}, one file name"
            )
            raise InputError(
                f"two clips are called {shared_name}: {_describe_location(earlier_clip)} and "
                f"{_describe_location(clip)}. Results are stored by name: give each clip its own "
                "(name=, or a column `name` in a manifest), or leave one out if they are the same"
            )


def rename_duplicates(clips: Sequence[Clip]) -> list[Clip]:
    """Return the clips with unique names: files of one name are told apart by their folders.

    ``a/001.wav`` and ``b/001.wav`` become "a_001" and "b_001"; a third, ``c/002.wav``, stays "002".
    InputError if two clips of one name are not files, were named by the caller, or are one file.
    """
    indices_by_name: dict[str, list[int]] = defaultdict(list)
    for index, clip in enumerate(clips):
        indices_by_name[fold_name(clip.name)].append(index)
    renamed_clips = list(clips)
    for indices in indices_by_name.values():
        paths = [path for index in indices if (path := clips[index].path) is not None]
        if len(indices) == 1 or len(paths) < len(indices):
            continue
        if any(
            clips[index].name != safe_name(path.stem)
            for index, path in zip(indices, paths, strict=True)
        ):
            continue  # named by the user
        for index, name in zip(indices, _make_folder_names(paths), strict=True):
            renamed_clips[index] = clips[index].with_name(name)
    refuse_duplicate_names(renamed_clips)
    return renamed_clips


def _make_folder_names(paths: Sequence[Path]) -> list[str]:
    """Names made of as many folders as it takes, the file's own last; the same for all if nothing
    tells them apart."""
    parts = [path.resolve().with_suffix("").parts for path in paths]
    for depth in range(2, max(map(len, parts)) + 1):
        names = ["_".join(folders[-depth:]) for folders in parts]
        if len({file_name_key(name) for name in names}) == len(names):
            return names
    return [path.stem for path in paths]


def _describe_location(clip: Clip) -> str:
    return str(clip.path) if clip.path is not None else f"samples in memory ({clip.duration:.2f} s)"
