"""`speechmix faithfulness`, `blank-out` and `deletion`: tables in the terminal, CSV files in a folder.

In: the parser's subcommands. Each command is one call: of `speechmix.faithfulness` (with a folder of
`faithfulness_of_clips`, which goes on where it was stopped and takes shards), `speechmix.blank_out`,
`speechmix.deletion_curves`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from .clip_options import (
    Skipped,
    add_alignment_options,
    aligned_clips,
    aligner_loader,
    manifest_clips,
    print_skipped,
)
from .executor_options import add_executor_options, executor_of, refuse_executor
from .model_options import (
    add_loading_options,
    add_measures_option,
    add_prefix_options,
    chosen_measures,
    loaded,
    model_loaders,
)
from .text_faithfulness import Parser, add_blank_out, add_deletion, print_left_out

if TYPE_CHECKING:
    from ...evaluation.faithfulness import FaithfulnessResults

_EXAMPLES = """examples:
  speechmix faithfulness openai/whisper-small clips.tsv --out runs/small
  speechmix faithfulness facebook/wav2vec2-base-960h clips.tsv --measures all --perturbation mute patch
  speechmix faithfulness FOLDER clips.tsv --perturbation "mute (zeros)" --metric top_1
  speechmix faithfulness FOLDER clips.tsv --measures lrp alti_logit chefer shapley --perturbation patch "mute (noise)"
  speechmix faithfulness openai/whisper-small study/examples --out run --shard 3/48     # beside other processes
"""
_SHOWN = """
    stack measure aggregation value low high over_random over_length over_position p groups note
""".split()


def add_commands(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the commands to a parser's subcommands."""
    _add_faithfulness(commands)
    add_blank_out(commands)
    add_deletion(commands)


def _add_faithfulness(commands: argparse._SubParsersAction[Parser]) -> None:
    command = commands.add_parser(
        "faithfulness",
        help="which measure ranks the words that the decision needs?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=_faithfulness)
    command.add_argument(
        "model",
        metavar="MODEL",
        help="hub id or folder, with its head (without: --perturbation states)",
    )
    command.add_argument(
        "manifest",
        metavar="MANIFEST",
        help="TSV, CSV or JSONL with columns path, text, words, cue, target, foil, pair; or "
        "STUDY/examples",
    )
    add_measures_option(command)
    command.add_argument(
        "--perturbation",
        dest="perturbations",
        nargs="+",
        help="mute, blank, patch, knock-out, states, or one fill as 'mute (zeros)' (default: "
        "all possible but states; "
        "states for a model without a head)",
    )
    command.add_argument(
        "--metric", default="spearman", help="of the table in the terminal (default: spearman)"
    )
    command.add_argument(
        "--min-words",
        type=int,
        default=3,
        help="words besides the target that a clip needs (default: 3)",
    )
    command.add_argument(
        "--rows", type=int, default=12, help="rows of the table in the terminal (default: 12)"
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="for faithfulness.csv; a run's folder has it on its page; a stopped command goes on "
        "there",
    )
    add_executor_options(command.add_argument_group("who does the work, with --out"))
    add_alignment_options(command)
    add_prefix_options(command)
    add_loading_options(command)


def _faithfulness(options: argparse.Namespace) -> int:
    # The package opens torch, which no other command should wait for.
    from ...evaluation.faithfulness.options import DEFAULT_METRICS
    from ...evaluation.faithfulness.results import FILE

    if options.metric not in DEFAULT_METRICS:
        raise InputError(
            f"--metric should be one of {', '.join(DEFAULT_METRICS)}; found {options.metric!r}"
        )
    skipped: Skipped = []
    results = _evaluate(options, skipped)
    print_skipped(skipped)
    if results is None:
        print(
            f"shard {options.shard} is done, others are not: `speechmix status {options.out}` says "
            "which"
        )
        return 0
    by_metric = results.to_dataframe()[results.to_dataframe()["metric"] == options.metric]
    for perturbation in [
        perturbation
        for perturbation in results.perturbations
        if perturbation in set(by_metric["perturbation"])
    ]:
        board = _leaderboard_text(results, perturbation, options)
        print(f"\n{board}\n\n{results.sentence(options.metric, perturbation=perturbation)}")
    if not results.perturbations:
        print(results)
    print_left_out(results, "clips")
    if options.out:
        print(f"table: {Path(options.out) / FILE}")
    return 0 if results.perturbations else 1


def _evaluate(options: argparse.Namespace, skipped: Skipped) -> FaithfulnessResults | None:
    """The results; None while other shards are not done."""
    from ...evaluation.faithfulness import faithfulness
    from ...runs.faithfulness_runs import faithfulness_of_clips

    request = {
        "measures": chosen_measures(options),
        "perturbations": options.perturbations,
        "min_words": options.min_words,
        "progress": sys.stderr.isatty(),
    }
    if not options.out:
        refuse_executor(options, "results are shared in a folder: say which with --out")
        return faithfulness(
            loaded(options, options.model), aligned_clips(options, skipped), **request
        )
    [load] = model_loaders(options, [options.model], None)
    return faithfulness_of_clips(
        load,
        manifest_clips(options, skipped),
        options.out,
        aligner=aligner_loader(options),
        align_method=options.align,
        executor=executor_of(options, [options.model]),
        skipped=skipped,
        **request,
    )


def _leaderboard_text(
    results: FaithfulnessResults, perturbation: str, options: argparse.Namespace
) -> str:
    """Render the first rows of a perturbation's leaderboard, and the baselines."""
    from ...evaluation.faithfulness.leaderboard import is_measure_row

    board = results.leaderboard(options.metric, perturbation=perturbation)
    measures = is_measure_row(board, perturbation)
    shown = measures & (measures.cumsum() <= options.rows) | ~measures
    return board.loc[shown, _SHOWN].to_string(index=False, na_rep="", float_format="{:.2f}".format)
