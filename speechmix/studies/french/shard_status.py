"""How far the shards of one stage of a study are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.shard_assignment import Shard
from ...runs.journal.stage_files import (
    UNFINISHED,
    StageFiles,
    format_indices,
    shard_file,
    stage_command,
)
from ...runs.journal.stage_lines import (
    count_kept_and_dropped,
    decode_checked_line,
    format_reasons,
    lines,
    read_origin,
    read_stage_options,
)

_STAGES_WITHOUT_MODEL = ("mine", "align")  # stages without a model of their own


def describe_shards(
    output: Path, files: StageFiles, expected: int, outdated: Collection[int]
) -> dict[str, object]:
    """Status of one output."""
    kept_count, dropped = 0, Counter[str]()
    damaged: set[int] = set()
    for index in sorted(files.finished_shards | files.unfinished):
        file = shard_file(output, Shard(index, files.count))
        try:
            shard_lines = (
                lines(file) if index in files.finished_shards else _read_complete_lines(file)
            )
            shard_kept, shard_dropped = count_kept_and_dropped(shard_lines)
        except InputError:
            damaged.add(index)
            continue
        kept_count, dropped = kept_count + shard_kept, dropped + shard_dropped
    missing = (
        {index for index in range(1, expected + 1) if index not in files.finished_shards}
        | damaged
        | {*outdated}
    )
    command = stage_command(output)
    return {
        "stage": command,
        "model": read_stage_options(output).get("model", output.stem)
        if command not in _STAGES_WITHOUT_MODEL
        else "",
        "shards_done": expected - len(missing),
        "shards": expected,
        "clips_done": kept_count,
        "left_out": dropped.total(),
        "reasons": format_reasons(dropped),
        "missing": format_indices(missing),
        "unfinished": format_indices(files.unfinished),
        "damaged": format_indices(damaged),
        "outdated": format_indices(outdated),
    }


def outdated_shards(output: Path, files: StageFiles) -> set[int]:
    """Complete shards that are of other options or another corpus than the one that was written
    last."""
    digests, write_times = {}, {}
    for index in files.finished_shards:
        file = shard_file(output, Shard(index, files.count))
        with suppress(InputError, FileNotFoundError):  # damaged; removed since
            digests[index], write_times[index] = read_origin(file), file.stat().st_mtime_ns
    last_digest = digests[max(digests, key=write_times.__getitem__)] if digests else {}
    return {index for index in digests if digests[index] != last_digest}


def _read_complete_lines(file: Path) -> Iterator[JsonObject]:
    """Whole lines of a file that is not finished."""
    try:
        with file.with_name(f"{file.name}{UNFINISHED}").open("rb") as file_lines:
            yield from (
                line
                for line in map(decode_checked_line, file_lines)
                if line is not None and "key" in line
            )
    except FileNotFoundError:  # finished since
        return
    except OSError as error:
        raise InputError(f"cannot read {file}{UNFINISHED} ({error})") from error


def parse_shard_indices(text: str) -> Iterator[int]:
    """Numbers of a list as `format_indices` writes it."""
    for index_range in filter(None, text.split(",")):
        first, _, last_digest = index_range.partition("-")
        yield from range(int(first), int(last_digest or first) + 1)
