"""`speechmix blank-out` and `speechmix deletion`: measures of text models on trial, tables in the
terminal and in a folder.

In: the parser's subcommands. Each command is one call: `speechmix.blank_out`,
`speechmix.deletion_curves`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .model_options import (
    add_loading_options,
    add_measures_option,
    loaded,
    measures_on_trial,
    model_loaders,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_BLANK_OUT = """examples:
  speechmix blank-out bert-base-uncased roberta-base --texts sentences.tsv --fill mask --out runs/blank
  speechmix blank-out gpt2 --texts sentences.tsv --fill unk --value log_probability --units word
"""
_DELETION = """examples:
  speechmix deletion distilbert-base-uncased-finetuned-sst-2-english --texts reviews.tsv --out runs/sst2
  speechmix deletion bert-base-uncased --texts sentences.tsv --one-by-one --measures value_zeroing alti
"""


def add_commands(commands) -> None:
    """Add the commands to a parser's subcommands."""
    blank_out = _added(
        commands,
        "blank-out",
        "texts: does a measure rank what blanking each token costs?",
        _BLANK_OUT,
    )
    blank_out.set_defaults(command=_blank_out)
    blank_out.add_argument(
        "models", nargs="+", metavar="MODEL", help="hub ids or folders, with their heads"
    )
    blank_out.add_argument(
        "--fill", action="append", help="mask, unk, pad, remove; may be repeated (default: all)"
    )
    blank_out.add_argument(
        "--value",
        default="probability",
        help="what drops: probability (default), log_probability, margin (with a foil)",
    )
    blank_out.add_argument(
        "--layers",
        nargs="+",
        default=["each", "rollout", "mean"],
        help="each rollout mean (default: these), last, 'residual rollout', 'strength rollout'",
    )
    blank_out.add_argument(
        "--random-twin",
        type=int,
        action="append",
        default=[],
        metavar="SEED",
        help="also each model's untrained twin",
    )
    deletion = _added(
        commands,
        "deletion",
        "texts: what is left of a label when top tokens are removed?",
        _DELETION,
    )
    deletion.set_defaults(command=_deletion)
    deletion.add_argument(
        "model",
        metavar="MODEL",
        help="hub id or folder, with a classification or language-model head",
    )
    deletion.add_argument(
        "--fill", help="mask, unk, pad or remove (default: the first that the tokenizer has)"
    )
    steps = deletion.add_mutually_exclusive_group()
    steps.add_argument(
        "--bins",
        nargs="+",
        type=float,
        metavar="PERCENT",
        help="of the tokens (default: 1 5 10 20 50)",
    )
    steps.add_argument("--one-by-one", action="store_true", help="remove one token after the other")
    deletion.add_argument(
        "--layers", default="rollout", help="rollout (default), 'residual rollout', mean, last"
    )


def _added(commands, name: str, what: str, examples: str) -> argparse.ArgumentParser:
    """A command with the options that both have."""
    command = commands.add_parser(
        name, help=what, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument(
        "--texts",
        required=True,
        metavar="FILE",
        help="TSV, CSV or JSONL with a column text, and target, foil, label, name",
    )
    add_measures_option(command)
    command.add_argument("--units", default="token", help="token (default) or word")
    command.add_argument(
        "--fewest",
        type=int,
        default=3,
        help="units besides the target that a text needs (default: 3)",
    )
    command.add_argument("--out", metavar="FOLDER", help="for the tables (CSV) and a figure")
    add_loading_options(command)
    return command


def _blank_out(options: argparse.Namespace) -> int:
    from ...evaluation.faithfulness import blank_out
    from ...reporting.plots import blank_out_figure

    sentences = _sentences(options)
    models = [load() for load in model_loaders(options, options.models, options.random_twin)]
    blanked = blank_out(
        models,
        sentences,
        measures=measures_on_trial(options),
        fills=options.fill,
        value=options.value,
        units=options.units,
        layers=options.layers,
        fewest=options.fewest,
        progress=sys.stderr.isatty(),
    )
    _say_left_out(blanked.left_out)
    print(blanked.text())
    if options.out:
        tables = {
            "blank_out": blanked.table,
            "blank_out_values": blanked.values,
            "blank_out_drops": blanked.drops,
        }
        _write(
            options.out,
            {**tables, "blank_out_left_out": blanked.left_out},
            {"blank_out": blank_out_figure(blanked)},
        )
    return 0


def _deletion(options: argparse.Namespace) -> int:
    from ...evaluation.faithfulness import deletion_curves
    from ...evaluation.faithfulness.deletion import BINS
    from ...reporting.plots import deletion_figure

    texts = _sentences(options)
    model, bins = (
        loaded(options, options.model),
        None if options.one_by_one else options.bins or BINS,
    )
    curves = deletion_curves(
        model,
        texts,
        measures=measures_on_trial(options),
        bins=bins,
        fill=options.fill,
        aggregation=options.layers,
        units=options.units,
        fewest=options.fewest,
        progress=sys.stderr.isatty(),
    )
    _say_left_out(curves.left_out)
    print(f"{curves.text()}\n\n{curves.sentence()}")
    if options.out:
        tables = {
            "deletion": curves.table,
            "deletion_values": curves.values,
            "deletion_points": curves.points,
        }
        tables |= {"deletion_texts": curves.texts, "deletion_left_out": curves.left_out}
        _write(options.out, tables, {"deletion": deletion_figure(curves)})
    return 0


def _sentences(options: argparse.Namespace) -> list:
    """Sentences of the table; rows that cannot be used are named."""
    from ...inputs.sentences.sentence_tables import read_sentences

    return read_sentences(options.texts, on_error=lambda row, error: print(f"skipped: {error}"))


def _say_left_out(left_out: pd.DataFrame) -> None:
    for row in (
        left_out.value_counts(["what", "reason"], sort=False).reset_index().itertuples(index=False)
    ):
        print(f"left out ({row.what}, {row.count} times): {row.reason}")


def _write(folder: str, tables: Mapping[str, pd.DataFrame], figures: Mapping[str, Figure]) -> None:
    """Tables as CSV and figures as PNG, into a folder."""
    from ...files.text_files import write_csv
    from ...reporting.plots.panels import write_figure

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_csv(table, out / f"{name}.csv")
    for name, figure in figures.items():
        write_figure(figure, out / f"{name}.png", dpi=150)
    print(f"tables and figure: {out}")
