"""`speechmix status FOLDER`: what of a study or run is done, missing and failed; `--shard` and
`--workers` of others.

In: the parser's subcommands. Out: lines for people; with `--missing STAGE` only the numbers of
shards, for `sbatch --array`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import InputError
from .arguments import Subparsers

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
    from ...runs.journal.stage_files import TRIALS, index_list
    from ...runs.run_status import job_status, run_status
    from ...studies.french.study_status import (
        is_study,
        shards_to_resubmit,
        status_text,
        study_status,
        trial_status,
    )

    folder = Path(options.folder)
    studies = [study for study in (folder, folder / _CORPUS) if is_study(study)]
    run, trials = (folder / "run.json").is_file(), trial_status(folder)
    jobs = job_status(folder)
    if not studies and not run and not jobs and trials.empty:
        raise InputError(
            f"{folder} holds neither a study (pairs.jsonl, pairs/) nor a run (run.json) nor a "
            f"trial ({TRIALS}/)"
        )
    if options.missing == _SCORE and run:
        print(index_list(run_status(folder).missing))
        return 0
    if options.missing == TRIALS:
        print(shards_to_resubmit(trials, TRIALS))
        return 0
    if options.missing:
        if not studies:
            raise InputError(
                f"{folder} holds no study: --missing lists shards of mine, align and transcribe; "
                "of a run score; of a trial "
                f"{TRIALS}"
            )
        print(shards_to_resubmit(study_status(studies[0]), options.missing))
        return 0
    parts = [status_text(study_status(study), study) for study in studies]
    if run:
        parts.append(run_status(folder).text())
    if len(trials):
        parts.append(status_text(trials, folder))
    if jobs:
        parts.append("\n".join(f"{name}: {state}" for name, state in jobs.items()))
    print("\n\n".join(parts))
    return 0
