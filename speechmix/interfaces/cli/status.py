"""`speechmix status FOLDER`: what of a study or run is done, missing and failed; `--shard` and
`--workers` of others.

In: the parser's subcommands. Out: lines for people; with `--missing STAGE` only the numbers of
shards, for `sbatch --array`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from .arguments import Subparsers

if TYPE_CHECKING:
    from ...runs.run_status import JobStatus

_EXAMPLES = """examples:
  speechmix status study
  sbatch --array=$(speechmix status study --missing mine) mine.sh
"""
_SCORE = "score"  # the stage of a run
_CORPUS = "corpus"  # the study in a run's folder


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    status = commands.add_parser(
        "status",
        help="what of a study or run is done, missing and failed",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    status.set_defaults(command=_status)
    status.add_argument("folder", metavar="FOLDER", help="study folder, or folder of a run")
    status.add_argument(
        "--missing",
        metavar="STAGE",
        help="print only the missing shards of mine, align, transcribe, score or faithfulness: "
        "7,12,20-31",
    )


def print_times(out: Path) -> None:
    """Print where the time of a run went: what there is of it, if other shards are still at
    work."""
    from ...runs.results.run_folder import RunFolder
    from ...runs.results.run_times import by_phase, run_times

    print("where the time went, all starts and processes together:")
    print(
        by_phase(run_times(RunFolder(out))).to_string(
            index=False, float_format="{:.1f}".format, na_rep=""
        )
    )


def _status(options: argparse.Namespace) -> int:
    from ...runs.journal.stage_files import index_list
    from ...runs.run_status import job_status, run_status
    from ...studies.french.study_status import (
        format_study_status,
        is_study,
        shards_to_resubmit,
        study_status,
    )

    folder = Path(options.folder)
    studies = [study for study in (folder, folder / _CORPUS) if is_study(study)]
    run = (folder / "run.json").is_file()
    jobs = {job.name: job for job in job_status(folder)}
    if not studies and not run and not jobs:
        raise InputError(
            f"{folder} holds neither a study (pairs.jsonl, pairs/) nor a run (run.json)"
        )
    if options.missing == _SCORE and run:
        print(index_list(run_status(folder).missing))
        return 0
    if options.missing in jobs:
        print(_missing_of_job(jobs[options.missing]))
        return 0
    if options.missing:
        if not studies:
            stages = ", ".join([*([_SCORE] if run else []), *jobs])
            raise InputError(f"{folder} has no stage {options.missing!r}: there is {stages}")
        print(shards_to_resubmit(study_status(studies[0]), options.missing))
        return 0
    parts = [format_study_status(study_status(study), study) for study in studies]
    if run:
        parts.append(run_status(folder).text())
    if jobs:
        parts.append("\n".join(job.text() for job in jobs.values()))
    print("\n\n".join(parts))
    return 0


def _missing_of_job(job: JobStatus) -> str:
    """Numbers of the shards to submit again."""
    from ...runs.journal.stage_files import index_list

    if job.count == 1:
        raise InputError(
            f"{job.name} is done by one process, not in shards: the same command goes on"
        )
    return index_list(job.missing)
