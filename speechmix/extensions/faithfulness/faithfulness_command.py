"""`speechmix faithfulness`: evaluate measures against the effects of removals; a table, a CSV file.

The command is one call: of `speechmix.faithfulness`, or with a folder of `faithfulness_of_clips`,
which continues where it was stopped and takes shards. `blank-out` and `deletion` are in
`text_faithfulness`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_alignment_options,
    add_clips_option,
    add_segments_option,
    collect_aligned_clips,
    collect_clips,
    create_aligner_loader,
    divide_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_evaluated_measures_option,
    add_loading_options,
    add_model_option,
    add_prefix_options,
    create_loaders,
    load_model,
    select_only_model,
)
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_group_option,
    choose_executor,
    refuse_executor_options,
)
from .text_faithfulness_command import (
    add_blank_out,
    add_deletion,
    print_skipped_units,
    requested_measures,
)

if TYPE_CHECKING:
    from .results import FaithfulnessResults

_EXAMPLES = """examples:
  speechmix faithfulness clips.tsv --model openai/whisper-small --out runs/small
  speechmix faithfulness clips.tsv --model FOLDER --measure lrp --measure chefer --perturbation patch
  speechmix faithfulness study/examples --model FOLDER --out run --shard 3/48
"""
_COLUMNS = """
    stack measure aggregation value low high over_random over_length over_position p groups note
""".split()


def add_commands(commands: Subparsers) -> None:
    """Add the commands to a parser's subcommands."""
    _add_faithfulness(commands)
    add_blank_out(commands)
    add_deletion(commands)


def _add_faithfulness(commands: Subparsers) -> None:
    command = commands.add_parser(
        "faithfulness",
        help="evaluate which measure ranks first the words that a decision needs",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_faithfulness)
    add_clips_option(command)
    add_model_option(command)
    add_evaluated_measures_option(command)
    command.add_argument(
        "--perturbation",
        dest="perturbations",
        action="append",
        help="reference: mute, blank, patch, knock-out, states, or one fill as 'mute (zeros)'; may "
        "be repeated (default: all but states; states for a model without a head)",
    )
    command.add_argument(
        "--metric", default="spearman", help="metric of the printed table (default: spearman)"
    )
    command.add_argument(
        "--min-words",
        type=int,
        default=3,
        metavar="N",
        help="skip items with fewer words besides the target (default: 3)",
    )
    add_group_option(command)
    command.add_argument(
        "--rows", type=int, default=12, metavar="N", help="rows of the printed table (default: 12)"
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for faithfulness.csv, where a stopped command continues; a run's page shows it",
    )
    add_executor_options(command.add_argument_group("shards and processes, with --out"))
    add_segments_option(command)
    add_alignment_options(command)
    add_prefix_options(command)
    add_loading_options(command)


def _faithfulness(options: argparse.Namespace) -> int:
    # imports torch, which no other command should wait for
    from .leaderboard import FILE
    from .options import DEFAULT_METRICS

    if options.metric not in DEFAULT_METRICS:
        raise InputError(
            f"--metric should be one of {', '.join(DEFAULT_METRICS)}; found {options.metric!r}"
        )
    skipped: SkippedItems = []
    results = _evaluate(options, skipped)
    print_skipped(skipped)
    if results is None:
        print(
            f"shard {options.shard} is finished; `speechmix status {options.out}` lists the others"
        )
        return 0
    by_metric = results.to_dataframe()[results.to_dataframe()["metric"] == options.metric]
    for perturbation in [
        perturbation
        for perturbation in results.perturbations
        if perturbation in set(by_metric["perturbation"])
    ]:
        board = _format_leaderboard(results, perturbation, options)
        print(f"\n{board}\n\n{results.sentence(options.metric, perturbation=perturbation)}")
    if not results.perturbations:
        print(results)
    print_skipped_units(results, "clips")
    if options.out:
        print(f"table: {Path(options.out) / FILE}")
    return 0 if results.perturbations else 1


def _evaluate(options: argparse.Namespace, skipped: SkippedItems) -> FaithfulnessResults | None:
    """Return the results, or None while other shards are not finished."""
    from .evaluate import faithfulness
    from .faithfulness_runs import faithfulness_of_clips

    request = {
        "measures": requested_measures(options),
        "perturbations": options.perturbations,
        "min_words": options.min_words,
        "group": options.group,
        "progress": sys.stderr.isatty(),
    }
    if not options.out:
        refuse_executor_options(options, "give a folder as --out")
        return faithfulness(
            load_model(options, select_only_model(options)),
            collect_aligned_clips(options, skipped)
            if options.segments is None
            else divide_clips(options, collect_clips(options, skipped), skipped),
            **request,
        )
    [load] = create_loaders(options, [select_only_model(options)])
    return faithfulness_of_clips(
        load,
        divide_clips(options, collect_clips(options, skipped), skipped),
        options.out,
        aligner=create_aligner_loader(options),
        align_method=options.align,
        executor=choose_executor(options, options.model),
        skipped=skipped,
        **request,
    )


def _format_leaderboard(
    results: FaithfulnessResults, perturbation: str, options: argparse.Namespace
) -> str:
    """Render the first rows of a perturbation's leaderboard, and the baselines."""
    from .leaderboard import is_measure_row

    board = results.leaderboard(options.metric, perturbation=perturbation)
    measures = is_measure_row(board, perturbation)
    is_shown = measures & (measures.cumsum() <= options.rows) | ~measures
    text: str = board.loc[is_shown, _COLUMNS].to_string(
        index=False, na_rep="", float_format="{:.2f}".format
    )
    return text
