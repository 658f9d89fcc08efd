"""`speechmix status FOLDER`: print what of a study or run is done, missing or failed.

With `--missing STAGE` it prints only the numbers of shards, for `sbatch --array`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from .command_parser import Subparsers

if TYPE_CHECKING:
    from ...runs.run_status import JobStatus

_EXAMPLES = """examples:
  speechmix status study
  sbatch --array=$(speechmix status study --missing mine) mine.sh
"""
_SCORE = "score"  # the stage of a run
_STUDY_DIR = "corpus"  # the study in a run's folder


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    status = commands.add_parser(
        "status",
        help="print what of a study or run is done, missing or failed",
        epilog=_EXAMPLES,
    )
    status.set_defaults(command=_status)
    status.add_argument("folder", metavar="FOLDER", help="folder of a study or of a run")
    status.add_argument(
        "--missing",
        metavar="STAGE",
        help="print only the missing shards (7,12,20-31) of mine, align, transcribe, score or "
        "faithfulness",
    )


def print_times(out: Path) -> None:
    """Print the time of each phase of a run, of all processes so far."""
    from ...runs.results.run_folder import RunFolder
    from ...runs.results.run_times import run_times, sum_by_phase

    print("time of each phase, summed over all processes:")
    print(
        sum_by_phase(run_times(RunFolder(out))).to_string(
            index=False, float_format="{:.1f}".format, na_rep=""
        )
    )


def _status(options: argparse.Namespace) -> int:
    from ...runs.journal.stage_files import format_indices
    from ...runs.run_status import job_status, run_status
    from ...studies.french.study_status import (
        format_study_status,
        is_study,
        shards_to_resubmit,
        study_status,
    )

    folder = Path(options.folder)
    studies = [study for study in (folder, folder / _STUDY_DIR) if is_study(study)]
    has_run = (folder / "run.json").is_file()
    jobs = {job.name: job for job in job_status(folder)}
    if not studies and not has_run and not jobs:
        raise InputError(f"{folder} is neither a study (pairs.jsonl, pairs/) nor a run (run.json)")
    if options.missing == _SCORE and has_run:
        print(format_indices(run_status(folder).missing))
        return 0
    if options.missing in jobs:
        print(_format_missing_shards(jobs[options.missing]))
        return 0
    if options.missing:
        if not studies:
            stages = ", ".join([*([_SCORE] if has_run else []), *jobs])
            raise InputError(f"{folder} has no stage {options.missing!r}; it has {stages}")
        print(shards_to_resubmit(study_status(studies[0]), options.missing))
        return 0
    texts = [format_study_status(study_status(study), study) for study in studies]
    if has_run:
        texts.append(run_status(folder).text())
    if jobs:
        texts.append("\n".join(job.text() for job in jobs.values()))
    print("\n\n".join(texts))
    return 0


def _format_missing_shards(job: JobStatus) -> str:
    """Format the numbers of the shards to submit again."""
    from ...runs.journal.stage_files import format_indices

    if job.count == 1:
        raise InputError(f"{job.name} has no shards: give the same command again, and it continues")
    return format_indices(job.missing)
