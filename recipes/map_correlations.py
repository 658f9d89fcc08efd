"""Do measures draw the map that gradients draw? GlobEnc's Figures 4 and 5 on sentences of your own.

    python recipes/map_correlations.py --model google-bert/bert-base-uncased --sentences sst2.txt --out runs/correlations

In: a text model and a file with one sentence a line (the published figure: sentences of SST-2).
Out: correlations.csv (of every sentence), means.csv, outlier_weights.csv, and the figures, with the
published numbers beside one's own. The reference is the length of each layer's Jacobian (`hta`);
the whole is drawn again without the diagonal, where most of the agreement may lie.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.agreement.correlation_curves import correlation_figure
from speechmix.extensions.agreement.distance_metric_effect import (
    STATISTICS,
    map_correlations,
    mean_correlations,
)
from speechmix.extensions.agreement.norm_outlier_weights import outlier_weights
from speechmix.files.names import safe_name
from speechmix.files.text_files import read_text, write_csv
from speechmix.reporting.plots.figure_style import write_figure
from speechmix.runs.journal.stage_lines import compute_item_lines, open_request_folder

MEASURES = (
    "attention attention_norm attention_norm_residual attention_norm_residual_layernorm "
    "globenc alti value_zeroing"
)
_COLUMNS = ["diagonal", "stack", "measure", "reference", "layer", *STATISTICS, "cells"]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    try:
        texts = [line.strip() for line in read_text(options.sentences).split("\n") if line.strip()][
            : options.items
        ]
        if not texts:
            raise InputError(f"{options.sentences}: expected one sentence a line, found none")
        model = speechmix.load(options.model, device=options.device)
        question = {name: getattr(options, name) for name in ("model", "measures", "reference")}
        open_request_folder(out, question)
        table = _scored(model, texts, options)
        if table.empty:
            raise InputError(
                "no sentence could be scored, e.g. because it has fewer than two tokens"
            )
        _report(model, table, options)
    except speechmix.SpeechmixError as error:
        print(f"map_correlations: {error}", file=sys.stderr)
        return 1
    return 0


def _scored(model, texts: list[str], options) -> pd.DataFrame:
    """Correlations of each sentence, with and without the diagonal; those of an earlier start are
    read back."""
    stack = "encoder" if "encoder" in model.stacks else "decoder"
    measures = _possible(model, texts[0], stack, options)
    sentences = [speechmix.Sentence(text) for text in dict.fromkeys(texts)]

    def correlated(sentence: speechmix.Sentence) -> list[list]:
        maps = speechmix.mix(
            model, sentence, measures=[options.reference, *measures], stacks=[stack], units="token"
        )
        parts = [
            map_correlations(maps, reference=options.reference, diagonal=yes).assign(diagonal=yes)
            for yes in (True, False)
        ]
        return [row for part in parts for row in part[_COLUMNS].values.tolist()]

    asked = {"model": model.fingerprint, "measures": measures, "reference": options.reference}
    done = compute_item_lines(
        Path(options.out) / "correlations" / f"{safe_name(model.label)}.jsonl",
        sentences,
        make_request=lambda sentence: asked,
        answer=correlated,
        is_whole=lambda rows: all(len(row) == len(_COLUMNS) for row in rows),
        refused=lambda sentence, error: print(
            f"left out: {sentence.name[:60]!r}: {error}", file=sys.stderr
        ),
    )
    rows = [
        (sentence.name, model.name, model.init, *row) for sentence, rows in done for row in rows
    ]
    return pd.DataFrame(rows, columns=["item", "model", "init", *_COLUMNS])


def _possible(model, text: str, stack: str, options) -> list[str]:
    """The measures that this model has, the others named once."""
    possible = []
    for name in options.measures:
        try:
            speechmix.mix(model, text, measures=[name], stacks=[stack], units="token", layers=[0])
            possible.append(name)
        except speechmix.SpeechmixError as error:
            print(f"{name} cannot be taken here: {error}", file=sys.stderr)
    return possible


def _report(model, table: pd.DataFrame, options) -> None:
    out, stack = Path(options.out), table["stack"].iloc[0]
    write_csv(table, out / "correlations.csv")
    means = mean_correlations(table, by=["model", "init", "stack", "diagonal", "measure", "layer"])
    write_csv(means, out / "means.csv")
    outliers = outlier_weights(model, stack=stack)
    write_csv(outliers, out / "outlier_weights.csv")
    note = f"Reference: {options.reference}. Sentences: {Path(options.sentences).name}."
    for diagonal, part in means.groupby("diagonal", sort=False):
        name = "with_diagonal" if diagonal else "without_diagonal"
        for statistic in STATISTICS:
            beside = options.reference == "hta"
            figure = correlation_figure(
                part,
                statistic=statistic,
                outliers=outliers if diagonal else None,
                note=note,
                draw_published=beside,
            )
            write_figure(figure, out / f"{statistic}_{name}.png", dpi=150)
        pearson = part[part["statistic"] == "pearson"].pivot(
            index="layer", columns="measure", values="mean"
        )
        print(
            f"Pearson's r with {options.reference}, "
            f"{name.replace('_', ' ')}\n{pearson.round(2).to_string()}\n"
        )
    print(
        f"outlier weights of the two norms\n{outliers.round(2).to_string(index=False)}\n\nresults "
        f"in {out}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="hub id or folder of a text model")
    add("--sentences", required=True, help="text file, one sentence a line")
    add("--items", type=int, help="how many of its sentences (default: all)")
    add(
        "--measures",
        nargs="+",
        default=[*MEASURES.split(), "random"],
        help=f"default: {MEASURES} random",
    )
    add(
        "--reference",
        default="hta",
        help="the measure that the others are held against (default: hta)",
    )
    add("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    add(
        "--out",
        default="runs/map_correlations",
        help="folder of the run; a stopped run goes on there",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
