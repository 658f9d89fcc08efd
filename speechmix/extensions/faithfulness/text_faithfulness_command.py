"""`speechmix blank-out` and `speechmix deletion`: evaluate measures on texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...files.json_files import JsonObject
from ...interfaces.cli.command_parser import CommandParser, Subparsers
from ...interfaces.cli.model_options import (
    add_evaluated_measures_option,
    add_loading_options,
    add_model_option,
    add_seed_option,
    add_twin_options,
    create_loaders,
    list_twin_seeds,
    load_model,
    select_only_model,
)
from ...interfaces.cli.score_options import add_group_option

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...inputs.sentences.sentence import Sentence
    from .results import FaithfulnessResults

_AGGREGATIONS = "rollout, mean, last, 'residual rollout', 'strength rollout'"
_BLANK_OUT_EXAMPLES = """examples:
  speechmix blank-out --model bert-base-uncased --texts sentences.tsv --fill mask --out runs/blank
  speechmix blank-out --model gpt2 --texts sentences.tsv --value log_probability --units word
"""
_DELETION_EXAMPLES = """examples:
  speechmix deletion --model distilbert-base-uncased-finetuned-sst-2-english --texts reviews.tsv
  speechmix deletion --model bert-base-uncased --texts sentences.tsv --one-by-one --measure alti
"""


def print_skipped_units(results: FaithfulnessResults, noun: str) -> None:
    """Print what was skipped, how often, and why."""
    counts = results.left_out.value_counts(["what", "reason"], sort=noun == "clips")
    for row in counts.reset_index().itertuples(index=False):
        print(f"skipped ({row.what}, {row.count} {noun}): {row.reason}")


def add_blank_out(commands: Subparsers) -> None:
    """Add `speechmix blank-out`."""
    blank_out = _add_text_command(
        commands,
        "blank-out",
        "texts: does a measure rank tokens by the effect of blanking them?",
        _BLANK_OUT_EXAMPLES,
    )
    blank_out.set_defaults(command=_blank_out)
    blank_out.add_argument(
        "--fill", action="append", help="mask, unk, pad, remove; may be repeated (default: all)"
    )
    blank_out.add_argument(
        "--layer",
        action="append",
        help=f"{_AGGREGATIONS} or each; may be repeated (default: each, rollout and mean)",
    )
    add_twin_options(blank_out)
    add_seed_option(blank_out)


def add_deletion(commands: Subparsers) -> None:
    """Add `speechmix deletion`."""
    deletion = _add_text_command(
        commands,
        "deletion",
        "texts: how fast does a prediction drop as top tokens are removed?",
        _DELETION_EXAMPLES,
    )
    deletion.set_defaults(command=_deletion)
    deletion.add_argument(
        "--fill", help="mask, unk, pad or remove (default: the first that the tokenizer has)"
    )
    steps = deletion.add_mutually_exclusive_group()
    steps.add_argument(
        "--bin",
        action="append",
        type=float,
        metavar="PERCENT",
        help="remove this share of the tokens; may be repeated (default: 1 5 10 20 50)",
    )
    steps.add_argument("--one-by-one", action="store_true", help="remove one token after the other")
    deletion.add_argument("--layer", default="rollout", help=f"{_AGGREGATIONS} (default: rollout)")


def _add_text_command(
    commands: Subparsers, name: str, help_text: str, examples: str
) -> CommandParser:
    """Add a command for texts with the options that both have."""
    command = commands.add_parser(name, help=help_text, epilog=examples)
    add_model_option(command)
    command.add_argument(
        "--texts",
        required=True,
        metavar="FILE",
        help="TSV, CSV or JSONL with a column text, and target, foil, label, name",
    )
    add_evaluated_measures_option(command)
    command.add_argument(
        "--units", choices=("token", "word"), default="token", help="token (default) or word"
    )
    add_group_option(command)
    command.add_argument("--out", metavar="FOLDER", help="folder for the tables (CSV) and a figure")
    add_loading_options(command)
    return command


def _blank_out(options: argparse.Namespace) -> int:
    from .presets import blank_out
    from .text_faithfulness import blank_out_figure

    sentences = _read_texts(options)
    loaders = create_loaders(options, options.model, list_twin_seeds(options))
    models = [load() for load in loaders]
    results = blank_out(
        models,
        sentences,
        fills=options.fill,
        layers=options.layer or ("each", "rollout", "mean"),
        **_collect_text_arguments(options),
    )
    print_skipped_units(results, "times")
    print(f"{results.text()}\n\n{results.provenance['grouping']}")
    if options.out:
        _write_results(results, options.out, "blank_out", blank_out_figure(results))
    return 0


def _deletion(options: argparse.Namespace) -> int:
    from .options import BINS
    from .presets import deletion_curves
    from .text_faithfulness import deletion_figure

    results = deletion_curves(
        texts=_read_texts(options),
        model=load_model(options, select_only_model(options)),
        bins=None if options.one_by_one else options.bin or BINS,
        fill=options.fill,
        aggregation=options.layer,
        **_collect_text_arguments(options),
    )
    print_skipped_units(results, "times")
    print(f"{results.text()}\n\n{results.sentence()}")
    if options.out:
        _write_results(results, options.out, "deletion", deletion_figure(results))
    return 0


def _collect_text_arguments(options: argparse.Namespace) -> JsonObject:
    return {
        "measures": requested_measures(options),
        "units": options.units,
        "group": options.group,
        "progress": sys.stderr.isatty(),
    }


def _read_texts(options: argparse.Namespace) -> list[Sentence]:
    """Read the sentences of the table; print the rows that cannot be used."""
    from ...inputs.sentences.sentence import read_sentences

    return read_sentences(options.texts, on_error=lambda row, error: print(f"skipped: {error}"))


def _write_results(results: FaithfulnessResults, folder: str, name: str, figure: Figure) -> None:
    """Write all tables as CSV and the figure as PNG into a folder."""
    from ...files.text_files import write_csv
    from ...reporting.plots.figure_style import write_figure

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(results.to_dataframe(), out / f"{name}.csv")
    for kind in ("values", "drops", "points", "texts", "left_out"):
        table = getattr(results, kind)
        if len(table) or kind == "left_out":
            write_csv(table, out / f"{name}_{kind}.csv")
    write_figure(figure, out / f"{name}.png", dpi=150)
    print(f"tables and figure: {out}")


def requested_measures(options: argparse.Namespace) -> str | Sequence[str]:
    """Return the names of the measures to evaluate, "all", or the default ones."""
    from .options import DEFAULT_MEASURES

    return "all" if options.measure == ["all"] else options.measure or DEFAULT_MEASURES
