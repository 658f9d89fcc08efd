"""Where a study stands: of each stage and model, which shards are done, missing or stopped, and what was left out and why.

In: a study folder. Out: a table with a row a stage and model, the same as a text, and the numbers of the shards to submit
again. Nothing is written, and no lock is taken: it may be asked while shards are at work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import pandas as pd

from ..errors import InputError
from ..experiments.stage_files import (
    TRIALS,
    UNFINISHED,
    StageFiles,
    command_of,
    index_list,
    outputs_in,
    shard_file,
    stage_files,
)
from ..experiments.stage_lines import header_of, kept_and_dropped, line_of, lines, options_of, said_reasons
from ..files.shards import Shard
from .study import EXAMPLES, PAIRS, TRANSCRIPTS, WORDS

_OF_CLIPS = ("mine", "align")  # stages without a model of their own
COLUMNS = (
    "stage", "model", "shards_done", "shards", "clips_done", "left_out", "reasons", "missing", "unfinished", "damaged",
)  # fmt: skip


def is_study(folder: str | PathLike) -> bool:
    """Whether a folder holds a stage of a study, finished or not.

    Examples
    --------
    >>> is_study("nowhere")
    False
    """
    return any(stage_files(Path(folder) / output).count for output in (PAIRS, WORDS))


def study_status(study: str | PathLike) -> pd.DataFrame:
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
            How many are complete, of how many; a stage that one process does alone is one shard. A stage that was not
            begun has as many as the one before it.
        clips_done, left_out, reasons
            Clips in complete and in unfinished shards, those that were left out, and why.
        missing, unfinished, damaged
            Numbers of shards, as `sbatch --array` takes them ("7,12,20-31"): not complete; of those, begun and at work, or
            stopped; complete, but with a line that was changed. Damaged ones count as missing: the stage makes them again.

    Raises
    ------
    InputError
        If the folder is no study, or holds a stage in two numbers of shards.

    Examples
    --------
    >>> import tempfile
    >>> from speechmix.files.shards import Shard
    >>> from speechmix.experiments.journal import run_stage
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = run_stage(folder / "pairs.jsonl", [], dict, options={}, shard=Shard(2, 3))
    >>> study_status(folder)[["stage", "shards_done", "shards", "missing"]].values.tolist()
    [['mine', 1, 3, '1,3'], ['align', 0, 3, '1-3']]
    """
    study = Path(study)
    if not is_study(study):
        raise InputError(f"{study} is no study folder: expected {PAIRS} or {PAIRS.removesuffix('.jsonl')}/ in it")
    rows, former = [], StageFiles(0)
    for output in _outputs(study):
        files = stage_files(output)
        expected = files.count or former.count
        rows.append(_row(output, files, expected))
        former = StageFiles(expected) if command_of(output) != "transcribe" else former
    return pd.DataFrame(rows, columns=list(COLUMNS))


def trial_status(folder: str | PathLike) -> pd.DataFrame:
    """Where the trials of a folder stand (`speechmix faithfulness --out`): a row a model, with the columns of `study_status`.

    Examples
    --------
    >>> trial_status("nowhere").empty
    True
    """
    outputs = outputs_in(Path(folder) / TRIALS)
    rows = [_row(output, files, files.count) for output in outputs for files in [stage_files(output)]]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def status_text(table: pd.DataFrame, study: str | PathLike) -> str:
    """Return a status as text to print: a line a stage and model, and below it what is missing.

    Parameters
    ----------
    table : DataFrame
        From `study_status` or `trial_status`.
    study : path
        The folder it is of, for the commands that the text names.
    """
    said = []
    for row in table.to_dict("records"):
        shards = f"{row['shards_done']} of {row['shards']} shards" if row["shards"] > 1 else ""
        state = shards or ("done" if row["shards_done"] else "not done")
        reasons = f" ({row['reasons']})" if row["reasons"] else ""
        model = f" {row['model']}" if row["model"] else ""
        said.append(
            f"{row['stage']}{model}: {state}; {row['clips_done']} clips done, {row['left_out']} left out{reasons}"
        )
        for what, advice in (("unfinished", "at work, or stopped"), ("damaged", "made again by the stage")):
            if row[what]:
                said.append(f"    {what}: {row[what]} ({advice})")
        if row["missing"] and row["shards"] > 1:
            said.append(f"    missing: {row['missing']}")
    if not any(table["missing"]) and "mine" in set(table["stage"]):
        done = (Path(study) / EXAMPLES).is_dir()
        said.append(f"select: {'done' if done else f'not done: speechmix select {study}'}")
    return "\n".join(said)


def missing_shards(table: pd.DataFrame, stage: str) -> str:
    """Return the shards of a stage to submit again, of all models together: "7,12,20-31", or "" if there are none.

    Parameters
    ----------
    table : DataFrame
        From `study_status` or `trial_status`.
    stage : {"mine", "align", "transcribe", "faithfulness"}

    Raises
    ------
    InputError
        If there is no such stage, or it is not done in shards, or in another number of them for another model.
    """
    rows = table[table["stage"] == stage]
    if rows.empty:
        known = ", ".join(dict.fromkeys(table["stage"]))
        raise InputError(
            f"no shards of {stage!r} here: expected one of {known}; a stage is known when one shard has begun"
        )
    counts = set(rows["shards"])
    if counts == {1}:
        raise InputError(f"{stage} is done by one process, not in shards: the same command without --shard goes on")
    if len(counts) > 1:
        raise InputError(
            f"{stage} is done in {' and '.join(map(str, sorted(counts)))} shards, a model each: see the table"
        )
    return index_list({index for text in rows["missing"] for index in _indices(text)})


def _outputs(study: Path) -> Iterator[Path]:
    yield from (study / PAIRS, study / WORDS)
    yield from outputs_in(study / TRANSCRIPTS)


def _row(output: Path, files: StageFiles, expected: int) -> dict[str, object]:
    """Status of one output."""
    n_kept, dropped = 0, Counter[str]()
    damaged: set[int] = set()
    for index in sorted(files.done | files.unfinished):
        file = shard_file(output, Shard(index, files.count))
        try:
            if index in files.done and not header_of(file):
                raise InputError(f"{file} has no first line")
            readable = lines(file) if index in files.done else _lines_so_far(file)
            shard_kept, shard_dropped = kept_and_dropped(readable)
        except InputError:
            damaged.add(index)
            continue
        n_kept, dropped = n_kept + shard_kept, dropped + shard_dropped
    missing = {index for index in range(1, expected + 1) if index not in files.done} | damaged
    command = command_of(output)
    return {
        "stage": command,
        "model": options_of(output).get("model", output.stem) if command not in _OF_CLIPS else "",
        "shards_done": expected - len(missing), "shards": expected, "clips_done": n_kept, "left_out": dropped.total(),
        "reasons": said_reasons(dropped), "missing": index_list(missing), "unfinished": index_list(files.unfinished),
        "damaged": index_list(damaged),
    }  # fmt: skip


def _lines_so_far(file: Path) -> Iterator[dict]:
    """Whole lines of a file that is not finished."""
    try:
        with file.with_name(f"{file.name}{UNFINISHED}").open("rb") as unfinished:
            yield from (line for line in map(line_of, unfinished) if line is not None and "key" in line)
    except FileNotFoundError:  # finished since
        return
    except OSError as error:
        raise InputError(f"cannot read {file}{UNFINISHED} ({error})") from error


def _indices(text: str) -> Iterator[int]:
    """Numbers of a list as `index_list` writes it."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
