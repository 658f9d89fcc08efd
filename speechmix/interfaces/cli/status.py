"""`speechmix status FOLDER`: what of a study or run is done, missing and failed; `--shard` and
`--workers` of others.

In: the parser's subcommands. Out: lines for people; with `--missing STAGE` only the numbers of
shards, for `sbatch --array`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from .executor_options import RAY

if TYPE_CHECKING:
    from ...files.shards import Shard

_EXAMPLES = """examples:
  speechmix status study
  sbatch --array=$(speechmix status study --missing mine) mine.sh
"""
_SCORE = "score"  # the stage of a run
_CORPUS = "corpus"  # the study in a run's folder


def add_commands(commands) -> None:
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


def add_shard_option(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, *, instead: str = ""
) -> None:
    """Add which part of the clips a process takes; where another command does it in shards, say
    which (`refuse_shard`)."""
    what = (
        "only the clips of this part, counted from 1 (3/48), beside other processes with other "
        "parts"
    )
    told = (
        f"not here: the clips of a run are done in shards by `speechmix {instead}`"
        if instead
        else what
    )
    command.add_argument("--shard", default="1/1", metavar="I/N", help=told)


def refuse_shard(options: argparse.Namespace, advice: str) -> None:
    """Refuse a shard of a command that does all clips at once.

    Raises
    ------
    InputError
        If one was asked for.
    """
    if shard_of(options).count > 1:
        raise InputError(
            f"--shard {options.shard} is not of this command, which does all clips in one process: "
            f"{advice}"
        )


def shard_of(options: argparse.Namespace) -> Shard:
    """The shard that was asked for.

    Raises
    ------
    InputError
        If it is none.
    """
    from ...files.shards import Shard

    return Shard.parse(options.shard)


def add_workers_option(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add by how many processes of this machine the clips are scored."""
    command.add_argument(
        "--workers",
        default="1",
        metavar="N",
        help="score by so many processes of this machine, each with a GPU or a share of the cores; "
        "auto: as many as it has "
        "GPUs, or memory and cores for (default: 1)",
    )


def worker_count(options: argparse.Namespace, sources: Sequence[str]) -> int:
    """How many workers were asked for, to score with models of these sources.

    Raises
    ------
    InputError
        If it is no number, or a shard or a cluster is asked for, too.
    """
    from ...files.shards import WHOLE
    from ...runs.executors.machine_resources import workers_for

    if options.workers == "1":
        return 1
    if "shard" in vars(options) and shard_of(options) != WHOLE:
        raise InputError(
            "--workers divides a run among the processes of one machine, --shard among machines: "
            "give one of them"
        )
    if vars(options).get("engine") == RAY:
        raise InputError(
            "--workers divides a run among the processes of one machine, --engine ray among those "
            "of a cluster: give one of "
            "them"
        )
    if options.workers == "auto":
        return workers_for(sources, device=options.device, revision=vars(options).get("revision"))
    if not (options.workers.isascii() and options.workers.isdigit() and int(options.workers)):
        raise InputError(
            f"expected --workers auto, or a number of at least 1, found {options.workers!r}"
        )
    return int(options.workers)


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
    from ...runs.run_status import run_status
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
    if not studies and not run and trials.empty:
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
    print("\n\n".join(parts))
    return 0
