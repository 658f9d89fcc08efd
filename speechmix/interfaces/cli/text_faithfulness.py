"""Evaluations of texts: `blank-out` and `deletion`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...files.json_files import JsonObject
from .model_options import (
    add_loading_options,
    add_measures_option,
    chosen_measures,
    loaded,
    model_loaders,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...evaluation.faithfulness import FaithfulnessResults
    from ...inputs.sentences.sentence import Sentence

Parser = TypeVar("Parser", bound=argparse.ArgumentParser)


def print_left_out(results: FaithfulnessResults, noun: str) -> None:
    counts = results.left_out.value_counts(["what", "reason"], sort=noun == "clips")
    for row in counts.reset_index().itertuples(index=False):
        print(f"left out ({row.what}, {row.count} {noun}): {row.reason}")


_BLANK_OUT = """examples:
  speechmix blank-out bert-base-uncased roberta-base --texts sentences.tsv --fill mask --out runs/blank
  speechmix blank-out gpt2 --texts sentences.tsv --fill unk --value log_probability --units word
"""


_DELETION = """examples:
  speechmix deletion distilbert-base-uncased-finetuned-sst-2-english --texts reviews.tsv --out runs/sst2
  speechmix deletion bert-base-uncased --texts sentences.tsv --one-by-one --measures value_zeroing alti
"""


def add_blank_out(commands: argparse._SubParsersAction[Parser]) -> None:
    blank_out = _add_text_command(
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


def add_deletion(commands: argparse._SubParsersAction[Parser]) -> None:
    deletion = _add_text_command(
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


def _add_text_command(
    commands: argparse._SubParsersAction[Parser], name: str, what: str, examples: str
) -> argparse.ArgumentParser:
    """A command of texts with the options that both have."""
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
        "--min-words",
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

    sentences = _read_texts(options)
    models = [load() for load in model_loaders(options, options.models, options.random_twin)]
    results = blank_out(
        models,
        sentences,
        fills=options.fill,
        value=options.value,
        layers=options.layers,
        **_text_options(options),
    )
    print_left_out(results, "times")
    print(results.text())
    if options.out:
        _write_all(results, options.out, "blank_out", blank_out_figure(results))
    return 0


def _deletion(options: argparse.Namespace) -> int:
    from ...evaluation.faithfulness import deletion_curves
    from ...evaluation.faithfulness.options import BINS
    from ...reporting.plots import deletion_figure

    results = deletion_curves(
        texts=_read_texts(options),
        model=loaded(options, options.model),
        bins=None if options.one_by_one else options.bins or BINS,
        fill=options.fill,
        aggregation=options.layers,
        **_text_options(options),
    )
    print_left_out(results, "times")
    print(f"{results.text()}\n\n{results.sentence()}")
    if options.out:
        _write_all(results, options.out, "deletion", deletion_figure(results))
    return 0


def _text_options(options: argparse.Namespace) -> JsonObject:
    return {
        "measures": chosen_measures(options),
        "units": options.units,
        "min_words": options.min_words,
        "progress": sys.stderr.isatty(),
    }


def _read_texts(options: argparse.Namespace) -> list[Sentence]:
    """Sentences of the table; rows that cannot be used are named."""
    from ...inputs.sentences.sentence_tables import read_sentences

    return read_sentences(options.texts, on_error=lambda row, error: print(f"skipped: {error}"))


def _write_all(results: FaithfulnessResults, folder: str, name: str, figure: Figure) -> None:
    """All tables as CSV and the figure as PNG, into a folder."""
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
