"""Status of a study: done, missing and stopped shards of each stage.

In: a study folder. Out: a table with a row a stage and model, the same as a text, and the numbers
of the shards to submit again. Nothing is written, and no lock is taken: it can be read while shards
are at work.

How far the shards of one stage of a study are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache, partial
from os import PathLike
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.shard_assignment import Shard
from ...runs.journal.stage_files import (
    UNFINISHED,
    StageFiles,
    format_indices,
    list_outputs,
    shard_file,
    stage_command,
    stage_files,
)
from ...runs.journal.stage_lines import (
    count_kept_and_dropped,
    decode_checked_line,
    format_reasons,
    input_digests,
    lines,
    read_origin,
    read_stage_inputs,
    read_stage_options,
)
from .dataset import is_dataset
from .study_folder import EXAMPLES, PAIRS, TRANSCRIPTS, WORDS

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


COLUMNS = (
    "stage",
    "model",
    "shards_done",
    "shards",
    "clips_done",
    "left_out",
    "reasons",
    "missing",
    "unfinished",
    "damaged",
    "outdated",
)
_STATE_DESCRIPTIONS = {
    "unfinished": "at work, or stopped",
    "damaged": "made again by the stage",
    "outdated": "of other options or another corpus than what was written last, or of other pairs "
    "than those at hand",
}


def is_study(folder: str | PathLike[str]) -> bool:
    """Whether a folder holds a stage of a study, finished or not.

    Examples
    --------
    >>> is_study("nowhere")
    False
    """
    return any(stage_files(Path(folder) / output).count for output in (PAIRS, WORDS))


def study_status(study: str | PathLike[str]) -> pd.DataFrame:
    """Where each stage of a study stands.

    Parameters
    ----------
    study : path
        Study folder; shards may be at work in it.

    Returns
    -------
    DataFrame
        A row for each stage ("mine", "align", "transcribe") and model, with the columns

        shards_done, shards
            How many are complete, of how many; a stage that one process does alone is one shard. A
            stage that was not begun has as many as the one before it.
        clips_done, left_out, reasons
            Clips in complete and in unfinished shards, those that were left out, and why.
        missing, unfinished, damaged, outdated
            Numbers of shards, as `sbatch --array` takes them ("7,12,20-31"): not complete; of
            those, begun and at work, or stopped; complete, but with a line that was changed;
            complete, but of other options or another corpus than the shard that was written last,
            or of other pairs than those at hand. Damaged and outdated ones count as missing.

    Raises
    ------
    InputError
        If the folder is no study, or holds a stage in two numbers of shards.

    Examples
    --------
    >>> import tempfile
    >>> from speechmix.files.shard_assignment import Shard
    >>> from speechmix.runs.journal.stage_journal import run_stage
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = run_stage(folder / "pairs.jsonl", [], dict, options={}, shard=Shard(2, 3))
    >>> study_status(folder)[["stage", "shards_done", "shards", "missing"]].values.tolist()
    [['mine', 1, 3, '1,3'], ['align', 0, 3, '1-3']]
    """
    study = Path(study)
    if not is_study(study):
        raise InputError(
            f"{study} is no study folder: expected {PAIRS} or {PAIRS.removesuffix('.jsonl')}/ in it"
        )
    rows, previous_files = [], StageFiles(0)
    digests = cache(partial(_compute_pair_digests, study / PAIRS))
    for output in (
        study / PAIRS,
        study / WORDS,
        *list_outputs(study / TRANSCRIPTS, begun=True),
    ):
        files = stage_files(output)
        expected = files.count or previous_files.count
        outdated = outdated_shards(output, files)
        if output != study / PAIRS:
            pair_digests = _read_pair_digests(output, files)
            current_digests = digests(tuple(pair_digests))
            outdated |= {
                shard.index
                for shard in current_digests
                if current_digests[shard] != pair_digests[shard]
            }
        rows.append(describe_shards(output, files, expected, outdated))
        previous_files = (
            StageFiles(expected) if stage_command(output) != "transcribe" else previous_files
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def format_study_status(table: pd.DataFrame, study: str | PathLike[str]) -> str:
    """Return a status as text to print: a line a stage and model, and below it what is missing.

    Parameters
    ----------
    table : DataFrame
        From `study_status`.
    study : path
        The folder it is of, for the commands that the text names.
    """
    lines = []
    for row in table.to_dict("records"):
        shards = f"{row['shards_done']} of {row['shards']} shards" if row["shards"] > 1 else ""
        state = shards or ("done" if row["shards_done"] else "not done")
        reasons = f" ({row['reasons']})" if row["reasons"] else ""
        model = f" {row['model']}" if row["model"] else ""
        lines.append(
            f"{row['stage']}{model}: {state}; {row['clips_done']} clips done, {row['left_out']} "
            f"left out{reasons}"
        )
        lines += [
            f"    {name}: {row[name]} ({meaning})"
            for name, meaning in _STATE_DESCRIPTIONS.items()
            if row[name]
        ]
        if row["missing"] and row["shards"] > 1:
            lines.append(f"    missing: {row['missing']}")
    if not any(table["missing"]):
        lines += _describe_next_stage(Path(study), set(table["stage"]))
    return "\n".join(lines)


def _describe_next_stage(folder: Path, stages: Collection[str]) -> list[str]:
    """Where that stands which is made of all shards of the stages."""
    if is_dataset(folder / EXAMPLES):
        return ["select: done"]
    if "transcribe" not in stages:
        return [f"transcribe: not begun: speechmix transcribe {folder} --model MODEL"]
    return [f"select: not done: speechmix select {folder}"]


def shards_to_resubmit(table: pd.DataFrame, stage: str) -> str:
    """Return the shards of a stage to submit again, of all models together: "7,12,20-31", or "" if
    there are none.

    Parameters
    ----------
    table : DataFrame
        From `study_status`.
    stage : {"mine", "align", "transcribe"}

    Raises
    ------
    InputError
        If there is no such stage, or it is not done in shards, or in another number of them for
        another model.
    """
    rows = table[table["stage"] == stage]
    if rows.empty:
        stages_text = ", ".join(dict.fromkeys(table["stage"]))
        expected = f"expected one of {stages_text}" if stages_text else "no stage was begun"
        raise InputError(
            f"no shards of {stage!r} here: {expected}; a stage is known when one shard has begun"
        )
    counts = set(rows["shards"])
    if counts == {1}:
        raise InputError(
            f"{stage} is done by one process, not in shards: the same command without --shard goes "
            "on"
        )
    if len(counts) > 1:
        raise InputError(
            f"{stage} is done in {' and '.join(map(str, sorted(counts)))} shards, a model each: "
            "see the table"
        )
    return format_indices(
        {index for text in rows["missing"] for index in parse_shard_indices(text)}
    )


def _read_pair_digests(output: Path, files: StageFiles) -> dict[Shard, str]:
    """By complete shard of an output, the hash of the pairs that it says it is of."""
    pair_digests = {}
    for shard in (Shard(index, files.count) for index in sorted(files.finished_shards)):
        with suppress(InputError):
            pairs = read_stage_inputs(shard_file(output, shard)).get("pairs")
            if pairs is not None:
                pair_digests[shard] = pairs
    return pair_digests


def _compute_pair_digests(pairs: Path, shards: tuple[Shard, ...]) -> dict[Shard, str]:
    """Hash of the pairs at hand, by shard; nothing where they are not complete."""
    try:
        digests = input_digests(pairs, "text", "path", shards=shards) if shards else []
    except InputError:
        return {}
    return dict(zip(shards, digests, strict=True))
