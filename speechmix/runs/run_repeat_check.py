"""Detect that a repeated run is already complete, so that nothing is recomputed.

In: a request, the clips of a shard, models; the completion record of the shard. Out: whether all of
it is the same, to the package's own code, and all of its files are as they were written. Where
anything differs, or a clip could not be scored, the start takes its usual way, clip by clip, which
uses what is still true and makes the rest. Runs of few clips always do: that takes them a second at
most.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

from ..adapters.model import Model
from ..errors import InputError
from ..files.cache_keys import digest
from ..files.file_fingerprints import FileMark
from ..files.json_files import Json, JsonObject
from ..files.shard_assignment import Shard
from ..files.versions import versions
from ..inputs.audio.loading import cached_recording
from ..inputs.clips.clip import Clip
from ..mixing.measures.measure_functions import find_measure
from ..mixing.passes.request import MixRequest
from .clip_aligner import remember_recordings
from .results.clip_result_files import Owner
from .results.part_integrity import checked_part
from .results.result_store import Results
from .results.run_folder import RunFolder
from .results.run_state import RunState
from .shard_record import CompletionRecord

N_SPOT_CHECKED_CLIPS = 1_000  # a run of no more is always gone through


def shard_fingerprint(
    run_key: str,
    mix_request: MixRequest,
    clips: Sequence[Clip],
    sound_of: Callable[[Clip], str | None],
) -> str:
    """Hash all that decides what a shard stores, but its models.

    It is "" if the shard has few clips, or a sound is not known. `run_key` is the hash of the run's
    request. `sound_of` returns the hash of a clip's recording, which is not read for this: None
    where it would have to be.
    """
    if len(clips) <= N_SPOT_CHECKED_CLIPS:
        return ""
    hashed = blake2b(digest_size=16)
    for clip in clips:
        if (sound := sound_of(clip)) is None:
            return ""
        audio_path = "" if clip.path is None else os.path.abspath(clip.path)
        says = (clip.name, sound, clip.alignment or "", *clip.doubts, audio_path)
        hashed.update("\0".join(says).encode("utf-8", "surrogatepass") + b"\n")
    measures = [find_measure(name).identity for name in mix_request.measures]
    return digest([run_key, measures, hashed.hexdigest(), versions(), _package()])


@cache
def _package() -> str:
    """Hash the package's code: after any change in it, no result counts as unchanged."""
    folder, hashed = Path(__file__).parents[1], blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.py")):
        hashed.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return hashed.hexdigest()


def read_figure_marks(
    folder: RunFolder, marker: CompletionRecord, drawn_clips: Iterable[Clip]
) -> dict[str, FileMark]:
    """Size and hash of the pictures that are there of some clips, by the models of a completion
    record."""
    labels = [str(owner["label"]) for owner, _ in marker.models]
    paths = [folder.figure_path(label, clip) for clip in drawn_clips for label in labels]
    return {
        path.relative_to(folder.path).as_posix(): FileMark.of(path)
        for path in paths
        if path.is_file()
    }


def is_unchanged(
    folder: RunFolder,
    shard: Shard,
    marker: CompletionRecord,
    run_key: str,
    mix_request: MixRequest,
    clips: Sequence[Clip],
    models: Iterable[Model | Callable[[], Model]],
    skipped: Sequence[Mapping[str, Json]],
    drawn_clips: Iterable[Clip],
    report: Callable[[str], None],
) -> bool:
    """Say whether the shard has results of this request, and they are as they were written.

    `marker` is its completion record, `run_key` the hash of the run's request. The models are
    loaded one after the other, if all else is the same; an iterator, which can be used but once, is
    left alone. `skipped` is what was left out before the run began: whatever else the shard left
    out is tried again. `drawn_clips` are those of the shard that have pictures. `report` gets a
    line for a damaged part of the clips' rows.
    """
    if not marker.told or not isinstance(models, Sequence) or len(marker.models) != len(models):
        return False
    if marker.skipped != list(skipped):
        return False
    with Results(folder, Owner(), shard, report) as of_clips:
        remember_recordings(of_clips)
    if marker.told != shard_fingerprint(
        run_key, mix_request, clips, _find_known_sound
    ) or not _has_all_files(folder, marker, drawn_clips):
        return False
    return all(
        _model_owner(model) == owner
        for model, (owner, _) in zip(models, marker.models, strict=True)
    )


def _find_known_sound(clip: Clip) -> str | None:
    """Hash of a clip's recording, if an earlier start read it and the file is still the same, or it
    is in memory."""
    if clip.path is None:
        return clip.audio_hash
    remembered = cached_recording(clip.path)
    return remembered and remembered[0]


def _has_all_files(
    folder: RunFolder, marker: CompletionRecord, drawn_clips: Iterable[Clip]
) -> bool:
    """Whether parts, scores, maps and pictures are there and whole."""
    standing = RunState(folder).table_parts()
    try:
        for name in (*marker.clips, *(name for _, names in marker.models for name in names)):
            checked_part(folder, folder.path / name, standing.get(folder.path / name))
    except (InputError, OSError):
        return False
    return {
        name: list(mark) for name, mark in read_figure_marks(folder, marker, drawn_clips).items()
    } == marker.figures


def _model_owner(model: Model | Callable[[], Model]) -> JsonObject:
    loaded = model if isinstance(model, Model) else model()
    loaded.forget_fingerprint()  # its weights may have been changed since
    return vars(Owner.of(loaded))
