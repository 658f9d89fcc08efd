"""Names of a stage's output files, one or one per shard.

In: an output by the name that one process gives it, `pairs.jsonl`, and perhaps the shard of the
caller. Out: that file, or those of a stage that was done in shards, `pairs/1-of-48.jsonl` to
`pairs/48-of-48.jsonl`. A file that has its name is finished; while it is made it is called
`<name>.unfinished`. The number of shards is in the file names alone: there is no list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from ...errors import InputError
from ...files.shard_assignment import Shard

UNFINISHED = ".unfinished"
_STAGE_COMMANDS = {"pairs": "mine", "words": "align"}  # of outputs by their names
_MODEL_STAGE_COMMANDS = {
    "transcripts": "transcribe",
}  # by their folder's, where there is one a model


@dataclass(frozen=True)
class StageFiles:
    """Shards of an output, counted from 1; what one process does alone is one shard.

    `count` is 0 where none was begun. `done` are those whose file is complete, `unfinished` those
    whose file is not: at work, or stopped.
    """

    count: int
    finished_shards: frozenset[int] = frozenset()
    unfinished: frozenset[int] = frozenset()

    @property
    def missing(self) -> list[int]:
        """Shards that are not done, begun or not."""
        return [index for index in range(1, self.count + 1) if index not in self.finished_shards]


def shard_file(output: Path, shard: Shard) -> Path:
    """Return the file of a shard.

    Examples
    --------
    >>> shard_file(Path("study/pairs.jsonl"), Shard(3, 48)).as_posix()
    'study/pairs/3-of-48.jsonl'
    >>> shard_file(Path("study/pairs.jsonl"), Shard()).as_posix()
    'study/pairs.jsonl'
    """
    return output if shard.count == 1 else _shards_folder(output) / f"{shard.label}.jsonl"


def stage_files(output: Path) -> StageFiles:
    """Return which shards of an output there are.

    InputError if shards of several counts lie there, or shards beside the output of one process:
    then every clip is there twice.
    """
    states: dict[int, dict[bool, set[int]]] = {}
    for path in (output, output.with_name(f"{output.name}{UNFINISHED}")):
        if path.is_file():
            states.setdefault(1, {True: set(), False: set()})[path == output].add(1)
    for shard, is_complete in _list_shards(_shards_folder(output)):
        states.setdefault(shard.count, {True: set(), False: set()})[is_complete].add(shard.index)
    if len(states) > 1:
        layouts = " and ".join(
            f"{count} shards" if count > 1 else "one process" for count in sorted(states)
        )
        raise InputError(
            f"{output.parent} holds {output.stem} by {layouts}: expected one of them. Delete what "
            "is not wanted: "
            f"{', '.join(_files_to_delete(output, count) for count in sorted(states))}"
        )
    for count, state in states.items():
        return StageFiles(count, frozenset(state[True]), frozenset(state[False] - state[True]))
    return StageFiles(0)


def list_started_shards(output: Path) -> list[Shard]:
    """All shards of an output as it was begun, done or not; where it was not, all of it as one.

    Examples
    --------
    >>> list_started_shards(Path("nowhere/pairs.jsonl"))
    [Shard(index=1, count=1)]
    """
    count = stage_files(output).count or 1
    return [Shard(index, count) for index in range(1, count + 1)]


def check_shard_count(output: Path, shard: Shard) -> None:
    """Raise InputError where an output was made in another number of shards, or by one process."""
    files = stage_files(output)
    if files.count in (0, shard.count):
        return
    stored_layout = f"in {files.count} shards" if files.count > 1 else "by one process"
    go_on = f"go on with --shard i/{files.count}" if files.count > 1 else "go on without --shard"
    shard_option = f"--shard {shard}" if shard.count > 1 else "no --shard"
    raise InputError(
        f"{output.stem} in {output.parent} is made {stored_layout}, and this is {shard_option}: {go_on}, or delete "
        f"{_files_to_delete(output, files.count)} to begin again"
    )


def list_required_shards(output: Path, shard: Shard) -> list[Shard]:
    """Return the shards of an output that hold the clips of a shard: of the same count just this
    one.

    Of 24 shards, 3/48 needs 3/24 alone: position modulo 48 decides position modulo 24. InputError
    if one of them is not done; it says which, and how to do them.
    """
    files = stage_files(output)
    first = f"run it first (speechmix {stage_command(output)})"
    if not files.count:
        raise InputError(f"the stage {output.stem} was not done in {output.parent}: {first}")
    common = common_shard(shard, files.count)
    missing = [index for index in files.missing if common.index == (index - 1) % common.count + 1]
    if missing and files.count == 1:
        raise InputError(
            f"the stage {output.stem} was stopped before its end in {output.parent}: {first}"
        )
    if missing:
        raise InputError(_describe_missing_shards(output, files, missing))
    return [
        Shard(index, files.count) for index in range(common.index, files.count + 1, common.count)
    ]


def common_shard(shard: Shard, count: int) -> Shard:
    """Return the smallest shard that holds the clips of this one and is made of whole shards of
    another count.

    Examples
    --------
    >>> print(common_shard(Shard(3, 48), 48), common_shard(Shard(3, 48), 24), common_shard(Shard(3, 48), 32))
    3/48 3/24 3/16
    >>> print(common_shard(Shard(), 48), common_shard(Shard(3, 48), 1))
    1/1 1/1
    """
    common = gcd(shard.count, count)
    return Shard((shard.index - 1) % common + 1, common)


def list_outputs(folder: Path, *, begun: bool = False) -> list[Path]:
    """List the outputs in a folder, sorted, by the names that one process gives them.

    Of those in shards also the unfinished ones are listed; with `begun`, also those that one
    process has begun and not finished.
    """
    outputs = set(folder.glob("*.jsonl"))
    if begun:
        outputs |= {
            path.with_name(path.name.removesuffix(UNFINISHED))
            for path in folder.glob(f"*.jsonl{UNFINISHED}")
        }
    outputs |= {
        path.with_name(f"{path.name}.jsonl")
        for path in folder.glob("*")
        if path.is_dir() and _list_shards(path)
    }
    return sorted(outputs)


def stage_command(output: Path) -> str:
    """Return the command that makes an output: "mine", "align", "transcribe" or "faithfulness"."""
    return _STAGE_COMMANDS.get(output.stem) or _MODEL_STAGE_COMMANDS.get(
        output.parent.name, output.stem
    )


def format_indices(indices: Iterable[int]) -> str:
    """Return numbers as `sbatch --array` takes them.

    Examples
    --------
    >>> format_indices([12, 7, 20, 21, 22])
    '7,12,20-22'
    """
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    )


def _describe_missing_shards(output: Path, files: StageFiles, missing: list[int]) -> str:
    """Say which shards are missing, and how they are made."""
    names = [f"{index}/{files.count}" for index in missing]
    few = (
        f"shard {names[0]}"
        if len(names) == 1
        else f"shards {', '.join(names[:-1])} and {names[-1]}"
    )
    shards = (
        few
        if len(names) <= 4
        else f"{len(names)} of {files.count} shards ({format_indices(missing)})"
    )
    unfinished = files.unfinished & set(missing)
    state = f" ({format_indices(unfinished)} unfinished: at work, or stopped)" if unfinished else ""
    command = stage_command(output)
    where, title = output.parent, output.stem
    if command in _MODEL_STAGE_COMMANDS.values():
        where, title = where.parent, f"{where.name} of {title}"
    return (
        f"{title} lack {shards}{state}: speechmix {command} ... --shard {names[0]}. "
        f"`speechmix status {where} --missing {command}` lists them all"
    )


def _shards_folder(output: Path) -> Path:
    """Folder of an output's shards."""
    return output.with_suffix("")


def _list_shards(folder: Path) -> list[tuple[Shard, bool]]:
    """Shards in a folder, each with whether it is complete."""
    shards = []
    for path in folder.glob("*-of-*"):
        name = re.fullmatch(
            rf"([1-9]\d*)-of-([1-9]\d*)\.jsonl({re.escape(UNFINISHED)})?", path.name
        )
        if name and 1 < int(name[2]) >= int(name[1]):
            shards.append((Shard(int(name[1]), int(name[2])), not name[3]))
    return shards


def _files_to_delete(output: Path, count: int) -> str:
    """What to delete to be rid of an output in so many shards."""
    if count > 1:
        return f"{_shards_folder(output)}/*-of-{count}.*"
    return str(output if output.is_file() else output.with_name(f"{output.name}{UNFINISHED}"))
