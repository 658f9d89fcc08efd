"""Ground many recordings, stored block by block in a run's folder; resumable, in shards, by workers.

In: a model, recordings of any length, a folder. Out: a `Grounding` of each recording, and its files in the folder.
A long recording is cut into blocks of about five minutes, so that a stop loses at most one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...files.names import safe_name
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ...runs.executors.executor import Executor
from ...runs.progress import Progress
from ...runs.results.run_folder import RunFolder
from ...runs.score_clips import compute_kinds
from ...runs.shard_merge import list_job_parts, read_job_skipped
from .calibration import WordCalibration
from .ground import recording_blocks
from .grounded_words import DEFAULT_THRESHOLD
from .grounding import Grounding
from .kind import GROUNDING_KIND, stored_groundings

FORMATS = ("html", "csv", "json", "parquet", "TextGrid", "eaf", "vtt", "txt")
DEFAULT_FORMATS = ("html", "csv", "vtt", "txt")


def ground_recordings(
    model: Model | Callable[[], Model],
    recordings: Sequence[Clip],
    out: str | PathLike[str],
    *,
    calibration: str | PathLike[str] | None = None,
    loop_heads: bool = True,
    align: bool = True,
    previous_text: bool = False,
    formats: Sequence[str] = DEFAULT_FORMATS,
    threshold: float = DEFAULT_THRESHOLD,
    shard: Shard | str | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
    skipped: list[tuple[str, str]] | None = None,
) -> list[Grounding] | None:
    """Ground recordings as `speechmix.ground` does, and write their files.

    Parameters
    ----------
    model : Model, or function that loads one
    recordings : sequence of Clip
        All of them, whatever the shard. Their words and text are not used.
    out : path
        Folder of a run, or a fresh one. The files are in its folder ``grounding``.
    calibration, loop_heads, align
        As for `speechmix.ground`.
    previous_text : bool
        Condition each window of a Whisper on the text of those before (`DecodingOptions`).
    formats : sequence of {"html", "csv", "json", "parquet", "TextGrid", "eaf", "vtt", "txt"}
    threshold : float
        For the marks in the files.
    shard, executor, progress
        As for `score_clips`.
    skipped : list, optional
        Gets (name, reason) of recordings, and blocks of long ones, that could not be used.

    Returns
    -------
    list of Grounding or None
        None while other shards are not finished.

    Raises
    ------
    InputError
        If no recording can be used, two share a name, or a format is unknown.

    Examples
    --------
    >>> ground_recordings(model, clips, "runs/interviews", shard="3/48")                  # doctest: +SKIP
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise InputError(f"formats are {', '.join(FORMATS)}; found {', '.join(unknown)}")
    left_out: list[tuple[str, str]] = []
    blocks = _list_blocks(recordings, left_out)
    options = {
        "calibration": calibration and WordCalibration.from_file(calibration).to_json(),
        "loop_heads": loop_heads,
        "align": align,
        **({"previous_text": True} if previous_text else {}),  # keys of former results stay
    }
    name = GROUNDING_KIND.name
    run = compute_kinds(
        [model],
        [block for parts in blocks.values() for _, block in parts],
        Path(out),
        {name: options},
        shard=shard,
        executor=executor,
        progress=progress,
        report=lambda line: None,
    )
    if not run.is_complete:
        return None
    folder = RunFolder(Path(out))
    left_out += read_job_skipped(folder, name)
    if skipped is not None:
        skipped += left_out
    parts = [part for parts in list_job_parts(folder, name).values() for part in parts]
    stored = stored_groundings(parts)
    groundings = []
    for clip in recordings:
        block_groundings = [
            (start, stored[block.name])
            for start, block in blocks.get(clip.name, ())
            if block.name in stored
        ]
        if block_groundings:
            grounding = replace(Grounding.join(block_groundings, clip.name), clip=clip)
            groundings.append(grounding)
            for ending in formats:
                path = Path(out) / "grounding" / f"{safe_name(clip.name)}.{ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                _save(grounding, path, threshold, left_out if skipped is None else skipped)
    if not groundings:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out[:3])
        raise InputError(f"no recording can be used: {reasons or 'there are none'}")
    return groundings


def _list_blocks(
    recordings: Sequence[Clip], left_out: list[tuple[str, str]]
) -> dict[str, list[tuple[float, Clip]]]:
    """Return the blocks of each recording with their starts; a file that cannot be opened has none."""
    blocks = {}
    for clip in recordings:
        if clip.name in blocks:
            raise InputError(f"two recordings are called {clip.name!r}: rename one")
        plain = clip.replace(words=None, text=None, cue=None, target=None, foil=None)
        try:
            blocks[clip.name] = list(recording_blocks(plain))
        except SpeechmixError as error:
            left_out.append((clip.name, str(error)))
    return blocks


def _save(
    grounding: Grounding, path: Path, threshold: float, skipped: list[tuple[str, str]]
) -> None:
    """Write one file; a format that the words do not allow is recorded."""
    try:
        grounding.save(path, threshold=threshold)
    except InputError as error:
        skipped.append((grounding.name, str(error)))
