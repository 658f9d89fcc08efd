"""Study of number agreement in text models: do measures single out the cue?

In: a folder with BLiMP's agreement paradigms, and a text model, masked or causal. Out: in a folder
the decisions of the model, the cue alignment of each sentence, tables and figures.

What an agreement run found, as files and as text: accuracy first, then the tables, drawn beside
the published ones.

In: cue alignment and decisions of every sentence (`extensions.agreement.cue_alignment`,
`item_scoring`). Out: CSV files, a figure for each metric, and the same as text.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import pandas as pd

from ...adapters.loading.load import load
from ...adapters.model import Model
from ...errors import InputError
from ...files.names import safe_name
from ...files.text_files import write_csv
from ...mixing.maps.measure_registry import measure_names
from ...mixing.measures import find_measure
from ...reporting.plots.figure_style import write_figure
from ...runs.journal.stage_lines import open_request_folder
from .blimp import PUBLISHED, BlimpItem
from .cue_alignment import (
    SHARE_METRICS,
    alignment_figure,
    alignment_text,
    mean_alignment,
    published_alignment,
)
from .fine_tuning import FineTuningOptions, fine_tune_choice
from .item_scoring import (
    CueAlignmentOptions,
    accuracy_sentence,
    align_items,
    decide_items,
    item_accuracy,
)
from .item_selection import SelectedItems, select_items

_GROUP_COLUMNS = ["paradigm", "number"]


def write_agreement(
    table: pd.DataFrame,
    decisions: pd.DataFrame,
    folder: Path,
    *,
    published: pd.DataFrame | None = None,
    note: str = "",
) -> str:
    """Write the tables and figures of a run into its folder, and return them as text.

    Parameters
    ----------
    table : DataFrame
        Rows of `cue_alignment`, with item, paradigm, number, model, init, seed, stack, measure.
    decisions : DataFrame
        Columns item, paradigm, number, model, init, seed, margin (nats), right.
    folder : Path
        Gets accuracy.csv, cue_alignment.csv, decisions.csv, means.csv, means_by_paradigm.csv, and
        <metric>.png and .svg.
    published : DataFrame, optional
        From `published_alignment`.
    note : str
        Where the sentences come from; stands under each figure.

    Returns
    -------
    str
        Accuracy by paradigm and number, then a table of layers and measures for each metric and
        model.
    """
    write_csv(table, folder / "cue_alignment.csv")
    write_csv(decisions, folder / "decisions.csv")
    accuracy, group_accuracy = (
        item_accuracy(decisions),
        item_accuracy(decisions, by=["model", "init", *_GROUP_COLUMNS]),
    )
    accuracy_rows = pd.concat([accuracy.assign(paradigm="all", number="all"), group_accuracy])
    write_csv(
        accuracy_rows[["model", "init", *_GROUP_COLUMNS, "accuracy", "low", "high", "items"]],
        folder / "accuracy.csv",
    )
    means = mean_alignment(table).merge(accuracy[["model", "init", "accuracy"]], how="left")
    write_csv(means, folder / "means.csv")
    write_csv(
        mean_alignment(table, by=["paradigm", "model", "init", "stack", "measure", "layer"]),
        folder / "means_by_paradigm.csv",
    )
    texts = [_accuracy_text(group_accuracy)]
    for metric in means["metric"].unique():
        if metric not in SHARE_METRICS:
            figure = alignment_figure(means, metric=metric, published=published, note=note)
            for suffix in ("png", "svg"):
                write_figure(figure, folder / f"{metric}.{suffix}", dpi=150)
        for (name, init), group_means in means[means["metric"] == metric].groupby(
            ["model", "init"], sort=False
        ):
            title = f"{metric.replace('_', ' ')}, {name} ({init}), {group_means['items'].max():,} sentences"
            title += (
                ""
                if group_means["chance"].isna().all()
                else f", chance {group_means['chance'].mean():.3f}"
            )
            texts.append(f"{title}\n{alignment_text(group_means, metric=metric)}")
    return "\n\n".join(texts)


def _accuracy_text(accuracy: pd.DataFrame) -> str:
    """Return accuracy by paradigm and number as text: a model that always writes one number is
    found out here.

    Examples
    --------
    >>> accuracy = pd.DataFrame({"paradigm": "anaphor", "number": ["plural", "singular"], "model": "m", "init": "trained",
    ...                        "accuracy": [0.05, 0.96]})
    >>> print(_accuracy_text(accuracy))
    init     trained
    number    plural singular
    paradigm
    anaphor      5 %     96 %
    """
    formatted = accuracy.assign(
        formatted=[f"{100 * share:.0f} %" for share in accuracy["accuracy"]]
    )
    columns = formatted.pivot(
        index="paradigm", columns=["init", "number"], values="formatted"
    ).fillna("")
    init_order = list(dict.fromkeys(accuracy["init"]))
    text = columns.reindex(
        columns=sorted(columns, key=lambda column: (init_order.index(column[0]), column[1]))
    ).to_string()
    return "\n".join(line.rstrip() for line in text.splitlines())


def published_measures() -> list[str]:
    """Measures of the published table that the package has."""
    available = measure_names("layer", "model")
    return [name for name in dict.fromkeys(published_alignment()["measure"]) if name in available]


def agreement_study(
    blimp: str | PathLike[str],
    model: str | PathLike[str],
    *,
    out: str | PathLike[str] = "runs/english_agreement",
    measures: Sequence[str] | None = None,
    distances: Sequence[str] | None = None,
    paradigms: Sequence[str] | None = None,
    unified: bool = False,
    half: str | None = None,
    split_seed: int = 42,
    items: int | None = None,
    draw: int = 0,
    seeds: Sequence[int] = (0,),
    units: str = "token",
    without_special: bool = False,
    subtokens: str = "all",
    objective: str = "logit",
    cues: str = "construction",
    spacy: str = "en_core_web_sm",
    fine_tune: FineTuningOptions | None = None,
    device: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Score how much of the target's row lies on the cue, for each layer and measure of a model.

    A study that was stopped goes on when it is called again with the same options. It prints
    whether the model does the task, and its tables, with those of untrained twins and the
    published ones.

    Parameters
    ----------
    blimp : path
        Folder with BLiMP's <paradigm>.jsonl files.
    model : path or hub id
        A masked or causal text model.
    out : path
        Folder of the run.
    measures : sequence of str, optional
        By default those of the published table.
    distances : sequence of str, optional
        Distances of Value Zeroing to compare, instead of measures.
    paradigms : sequence of str, optional
        By default all that the folder has.
    unified : bool
        True takes the published set: five paradigms, subjects balanced in number.
    half : {"all", "train", "test"}, optional
        Which sentences are scored; by default all, with `fine_tune` the test half.
    split_seed : int
        Of the halves and the balance.
    items : int, optional
        Sentences of each paradigm, half of them plural; by default all that are usable.
    draw : int
        Seed with which sentences are drawn.
    seeds : sequence of int
        Of untrained twins.
    units : {"token", "word"}
    without_special : bool
        True leaves special tokens out before rows are normalised.
    subtokens : {"all", "first"}
        Which sub-tokens of a cue count.
    objective : {"logit", "contrast"}
        What gradient measures explain.
    cues : {"construction", "dependency"}
        How cues are found; by dependency with the spaCy pipeline `spacy`.
    spacy : str
    fine_tune : FineTuningOptions, optional
        Trains a copy on the choice between the two words with one half, and scores both on the
        other.
    device : str, optional
    overwrite : bool
        True starts afresh in a folder that holds another run.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    InputError
        For an option that cannot be, a folder that holds a run with other options, or no sentence
        that can be scored.

    Examples
    --------
    >>> agreement_study("blimp/data", "bert-base-uncased", items=100, out="runs/bert")    # doctest: +SKIP
    """
    out, measures = Path(out), list(measures or published_measures())
    for name in measures:
        find_measure(name)
    half = half or ("test" if fine_tune else "all")
    if fine_tune and half != "test":
        raise InputError(
            f"fine-tuning trains on one half and scores the other: leave --half out, found {half}"
        )
    loaded_model = load(model, device=device)
    selected = select_items(
        blimp,
        loaded_model,
        half=half,
        paradigms=paradigms,
        unified=unified,
        split_seed=split_seed,
        max_items=items,
        draw_seed=draw,
        spacy=spacy if cues == "dependency" else None,
    )
    print(selected.counts)
    alignment = CueAlignmentOptions(
        measures,
        distances or (),
        units=units,
        without_special=without_special,
        subtokens=subtokens,
        objective=objective,
    )
    training = asdict(fine_tune or FineTuningOptions())
    run_options = {
        **asdict(alignment),
        "distances": distances,
        "model": str(model),
        "paradigms": paradigms,
        "items": items,
        "cues": cues,
        "spacy": spacy,
        "draw": draw,
        "half": half,
        "split_seed": split_seed,
        "unified": unified,
        "fine_tune": fine_tune is not None,
        "training_seed": training.pop("seed"),
        **training,
    }
    open_request_folder(out, run_options, overwrite=overwrite)
    if overwrite:
        for name in ("alignment", "decisions", "fine_tuned"):
            shutil.rmtree(out / name, ignore_errors=True)
    scorer = _ModelScorer(loaded_model.name, out, alignment, selected)
    for init, scored_model in _iterate_models(
        model, loaded_model, selected, out, fine_tune, seeds, device
    ):
        scorer.score(scored_model, init)
    scorer.write_results("" if half == "all" else f" {half.capitalize()} half (seed {split_seed}).")
    return out


def _iterate_models(
    source: str | PathLike[str],
    model: Model,
    selected: SelectedItems,
    out: Path,
    fine_tune: FineTuningOptions | None,
    seeds: Sequence[int],
    device: str | None,
) -> Iterator[tuple[str, Model]]:
    """The model, its fine-tuned copy and its untrained twins, each with its name in tables."""
    yield model.init, model
    if fine_tune:
        sentences = [item.sentence(masked=False) for item in selected.training]
        print(f"\nfine-tune on {len(sentences):,} sentences of the training half: {fine_tune}")
        progress = sys.stderr.isatty()
        folder = fine_tune_choice(
            model, sentences, out / "fine_tuned", training=fine_tune, progress=progress
        )
        yield "fine-tuned", load(str(folder), device=device)
    for seed in seeds:
        yield "random", load(source, init="random", seed=seed, device=device)


class _ModelScorer:
    """Scores models one after the other, and reports all."""

    def __init__(
        self, name: str, out: Path, alignment: CueAlignmentOptions, selected: SelectedItems
    ):
        self._name, self._out, self._alignment = name, out, alignment
        self._items = selected.scored
        self._skipped_items = [
            (item.name, "", item.reason_kind, item.reason) for item in selected.rejected
        ]
        self._tables: list[pd.DataFrame] = []
        self._decisions: list[pd.DataFrame] = []

    def score(self, model: Model, init: str) -> None:
        """Decide and align every item; what an earlier start did is read back."""
        label = f"{self._name} {init}" if init == "fine-tuned" else model.label
        file_name = f"{safe_name(label)}.jsonl"

        def on_skip(item: str, why: str, reason: str) -> None:
            self._skipped_items.append((item, model.label, why, reason))

        items = _add_progress_bar(self._items, f"decide {model.label}")
        path = self._out / "decisions" / file_name
        decisions = decide_items(model, items, path, on_skip=on_skip)
        if len(decisions):
            accuracy_row = item_accuracy(decisions.assign(model="", init="")).iloc[0]
            name = f"{self._name} ({init}{'' if model.seed is None else f', seed {model.seed}'})"
            accuracy_values = (
                accuracy_row[column] for column in ("accuracy", "low", "high", "items")
            )
            print(accuracy_sentence(name, *accuracy_values), flush=True)
        items = _add_progress_bar(self._items, f"score {model.label}")
        path, trial_items = self._out / "alignment" / file_name, self._items
        table = align_items(
            model, items, path, self._alignment, trial_items=trial_items, on_skip=on_skip
        )
        for rows, tables in ((decisions, self._decisions), (table, self._tables)):
            columns = {"model": self._name, "init": init, "seed": model.seed}
            for position, (column, value) in enumerate(columns.items(), start=3):
                rows.insert(position, column, value)
            tables.append(rows.astype({"seed": "Int64"}))

    def write_results(self, half: str) -> None:
        """Write and print tables."""
        table, path = pd.concat(self._tables, ignore_index=True), self._out / "left_out.csv"
        write_csv(
            pd.DataFrame(self._skipped_items, columns=["item", "model", "why", "reason"]), path
        )
        if table.empty:
            raise InputError(f"no sentence could be scored; {path} says why")
        paradigms = list(dict.fromkeys(table["paradigm"]))
        special = "left out" if self._alignment.without_special else "kept"
        note = f"BLiMP: {', '.join(paradigms)}.{half} Special tokens {special}."
        if set(paradigms) != set(PUBLISHED):
            note += (
                " NOT the five paradigms of the published table, so its numbers are no reference "
                "for these."
            )
        published = None if self._alignment.distances else published_alignment()
        decisions = pd.concat(self._decisions, ignore_index=True)
        text = write_agreement(table, decisions, self._out, published=published, note=note)
        print(f"\n{text}\n\n{note}")
        scored_count = len(table.groupby(["item", "init", "seed"], dropna=False))
        print(f"{scored_count} done, {len(self._skipped_items)} left out; results in {self._out}")
        reasons = Counter((why, label) for _, label, why, _ in self._skipped_items)
        for (why, label), count in reasons.most_common():
            print(f"  {count:>5} {why}{f' ({label})' if label else ''}")


def _add_progress_bar(items: Sequence[BlimpItem], description: str) -> Iterable[BlimpItem]:
    if not sys.stderr.isatty():
        return items
    from tqdm.auto import tqdm

    bar: Iterable[BlimpItem] = tqdm(items, desc=description, unit="sentence", leave=False)
    return bar
