"""Probe a model's states for a label or a number, at each position and layer.

In: models (a trained one beside its random twins), labelled items, positions or units. Out: `Probes`, a tidy
table with a row for each model, stack, position and layer (-1 is the input of the first layer),
beside majority and control task, and what was said of each item.

References: Mohebbi et al. 2023 (EMNLP, Figure 4: logistic; EACL: online code); Hewitt & Liang 2019
(control tasks); Voita & Titov 2020 (online code). What is better here than there is said in
`logistic`, `online_code` and docs/howto/probing.md.

Scores and answers of probes, and the files that a run keeps of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...files.text_files import read_csv, write_csv
from .fits import ProbeSettings, Row, fit_probes
from .logistic import PUBLISHED_OPTIONS, Estimator
from .scores import ANSWERS_FILE, FILE
from .task import (
    ItemStates,
    LabelOption,
    Position,
    ProbeTask,
    read_item_states,
    read_unit_tasks,
    resolve_positions,
)

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

MODEL_KEYS = ["model", "init", "seed"]
PLACE_KEYS = ["part", "stack", "position", "layer", "depth", "label"]
SCORE_COLUMNS = {
    "logistic": [
        "accuracy",
        "low",
        "high",
        "majority",
        "control",
        "gain_over_baseline",
        "memorised",
        "macro_f1",
    ],
    "online_code": [
        "bits",
        "compression",
        "low",
        "high",
        "frequencies",
        "control",
        "gain_over_baseline",
    ],
    "ridge": ["r2", "low", "high", "r", "by_position", "control", "gain_over_baseline", "p"],
}
ANSWER_COLUMNS = {
    "logistic": ["predicted", "right", "control"],
    "online_code": ["bits"],
    "ridge": ["predicted", "explained", "by_position"],
}
LEFT_OUT_COLUMNS = [*MODEL_KEYS, "part", "item", "stack", "position", "reason"]


@dataclass(frozen=True, eq=False)
class Probes:
    """What probes found.

    Parameters
    ----------
    scores : DataFrame
        One row for each model, part, stack, position and layer: model, init, seed, part ("all"
        unless parted), stack, position, layer (-1: the input of the first layer), depth (0 first
        layer, 1 last), label, method; n (items), groups. Logistic: accuracy with low and high (95 %
        over groups), majority (share of the most frequent label), control (accuracy on random
        labels for each word, in the same kind of folds), gain_over_baseline (accuracy less the
        larger of majority and control), memorised (the same random labels in folds that share
        words), macro_f1. Online code: bits, compression with low and high, frequencies (compression
        by label frequencies alone), control (compression of random labels), gain_over_baseline
        (compression less the larger of both). Ridge: r2 (share of variance) with low and high, r
        (correlation), by_position (R^2 of the position in the clip alone), control (R^2 of random
        values for each word), gain_over_baseline (r2 less the largest of both and 0), p (of shuffles,
        corrected over layers); see `value_fits`.
    answers : DataFrame
        One row for each of them and item: item, group, true; predicted, right (0 or 1), control; or
        bits; or predicted, explained (its part of R^2, whose mean is r2), by_position (likewise).
    left_out : DataFrame
        Columns model, init, seed, item, stack, position, reason; empty where it is of all of them.
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Label, positions, settings; grouping (how many groups and speakers there are, in a sentence).
    """

    scores: pd.DataFrame
    answers: pd.DataFrame
    left_out: pd.DataFrame
    ties: str = ""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the scores, a row for each model, part, stack, position and layer."""
        return self.scores.copy()

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``probes.csv`` and, item by item, ``probe_answers.csv`` into a folder; of numbers
        ``value_probes.csv`` and ``value_probe_answers.csv``.

        A run's page shows them (`speechmix report`). Rows of other models, or labels, that are
        there already stay.

        Raises
        ------
        InputError
            If such a file is there and holds another table.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = "value_" if "r2" in self.scores else ""
        for name, table in ((ANSWERS_FILE, self.answers), (FILE, self.scores)):
            path = folder / f"{prefix}{name}"
            write_csv(_append_stored_rows(table, path), path)
        return path

    def __repr__(self) -> str:
        provenance = self.provenance
        positions = ", ".join(
            dict.fromkeys(f"{row.stack} {row.position}" for row in self.scores.itertuples())
        )
        models = self.scores[MODEL_KEYS].drop_duplicates().shape[0] if len(self.scores) else 0
        text = (
            f"{provenance.get('label')}: {models} models, {positions or 'nothing could be probed'}"
        )
        grouping = str(provenance.get("grouping", "")).rstrip(".")
        return f"Probes({'; '.join(filter(None, (text, grouping)))})"


def _append_stored_rows(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Put a table behind the rows of other models and labels in a file."""
    if not path.is_file():
        return table
    stored_table, keys = read_csv(path), [*MODEL_KEYS, "label"]
    if set(stored_table) != set(table):
        raise InputError(
            f"{path} holds another table: write to another folder, or take the file away"
        )
    table_keys = set(
        table[keys].astype(object).fillna("").astype(str).itertuples(index=False, name=None)
    )
    is_other = [
        row not in table_keys for row in stored_table[keys].itertuples(index=False, name=None)
    ]
    return pd.concat([stored_table[is_other], table.astype(object)], ignore_index=True)


PROBE_PROTOCOLS: dict[str, dict[str, object]] = {
    "published": {**PUBLISHED_OPTIONS, "method": "logistic"}
}


def probe(
    models: Model | Iterable[Model | Callable[[], Model]],
    items: Iterable[Clip | Sentence],
    *,
    label: LabelOption = "number",
    position: Position | Sequence[Position] = "target",
    stacks: str | Sequence[str] | None = None,
    level: str | None = None,
    table: pd.DataFrame | None = None,
    method: str = "logistic",
    mode: str = "correct",
    folds: int = 5,
    controls: int = 3,
    shuffles: int | None = None,
    seed: int = 0,
    group: str | None = None,
    by: str | None = None,
    solver: str = "lbfgs",
    scale: bool = True,
    rounding: str = "disjoint",
    mask: bool = True,
    protocol: str | None = None,
    estimator: Estimator | None = None,
    progress: bool = False,
) -> Probes:
    """Probe the states of models: can a label or a number be read off them, layer by layer?

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        A trained model and its random twins, which say what the untrained architecture gives away.
        One pass an item each.
    items : iterable of Clip or Sentence
        Clips with word times, sentences. Those without a label, or without the position, are
        recorded and left out.
    label : str or callable
        A column of the manifest (`meta`), or a function of an item. With `level`: "label" (what a
        word or phone is called), a feature such as "pitch", "f1" or "duration" (`unit_features`), a
        column of `table` or of `meta`, or a function of a row of `UnitStates.units`.
    position : {"target", "cue", "between", "deciding"}, int, or several
        Whose states: their mean over frames or tokens. See `task`; an index is that of a word.
    stacks : str or sequence of str, optional
        "encoder", "decoder"; all that the items feed by default ("cross" has no states of its own).
    level : {"word", "phone", "syllable", "frame"}, optional
        Probe each word, phone or frame of a clip, in place of one position.
    table : DataFrame, optional
        Values of one's own for units, such as surprisal: columns clip, index or word, and `label`.
    method : {"logistic", "online_code", "ridge"}
        "ridge" predicts numbers: a regression whose penalty is chosen inside the training folds.
    mode : {"correct", "reference"}
        Of the online code: in bits, or as the published code computes it (`online_code`).
    folds : int
        Of the cross-validation.
    controls : int
        Draws of the control task.
    shuffles : int, optional
        Draws of the p value of "ridge": 99 by default, with an estimator 19.
    seed : int
        Of folds, control task, shuffles and online code.
    group : str, optional
        A column that says which items belong together, and stay in one fold; by default speakers,
        or pair, sentence and target word.
    by : str, optional
        A column that parts the items; each part ("left", "right" of a column "side") is probed by
        itself.
    solver : {"lbfgs", "liblinear"}
        Of the logistic regression, with L2 penalty and C = 1.
    scale : bool
        Scale states within each fold.
    rounding : {"disjoint", "paper"}
        Of words to frames, as in `mix`.
    mask : bool
        False to let a masked model see the target.
    protocol : {"published"}, optional
        The logistic probe of the speech paper: liblinear, unscaled, three stratified folds after a
        shuffle (seed 12), scores averaged over folds, words rounded as there. A pair's members can
        be in training and test folds: compare with the grouped probe.
    estimator : classifier of scikit-learn, or with "ridge" a regressor, optional
        Instead of the logistic or ridge regression, for example ``SVC()`` or a pipeline. A clone is fitted
        for each layer, fold, control task and shuffle. The column method has the name of its class.
    progress : bool
        Show a bar over items.

    Returns
    -------
    Probes

    Raises
    ------
    InputError
        For unknown options, or if no item has the label. What cannot be probed is recorded in
        `Probes.left_out`.

    Examples
    --------
    >>> probes = speechmix.probe([model, twin], clips, label="number")                    # doctest: +SKIP
    >>> probes.to_dataframe()[["init", "stack", "layer", "accuracy", "control"]]                   # doctest: +SKIP
    """
    positions = resolve_positions(position)
    options: dict[str, Any] = {
        "method": method,
        "mode": mode,
        "folds": folds,
        "controls": controls,
        "shuffles": shuffles,
        "seed": seed,
        "solver": solver,
        "scale": scale,
        "estimator": estimator,
    }
    if protocol is not None:
        if protocol not in PROBE_PROTOCOLS or estimator is not None:
            raise InputError(
                f"protocol should be one of {list(PROBE_PROTOCOLS)}, without estimator=; found "
                f"{protocol!r}"
            )
        options, rounding = {**options, **PROBE_PROTOCOLS[protocol]}, "paper"
    settings, items = ProbeSettings(**options), list(items)
    stacks = (stacks,) if isinstance(stacks, str) else stacks
    loaded = (
        source if isinstance(source, Model) else source()
        for source in ([models] if isinstance(models, Model) else models)
    )
    if level is not None:
        if position != "target" or protocol is not None:
            raise InputError(
                "level= probes every unit of a clip: leave out position= and protocol="
            )
        reading: dict[str, Any] = {"group": group, "by": by, "stacks": stacks}
        reading |= {"level": level, "table": table, "progress": progress}
        unit_task, of_models = read_unit_tasks(loaded, items, label, **reading)
        return fit_models(of_models, unit_task, settings)
    task = ProbeTask.from_items(items, label, group=group, by=by)

    def read_states(model: Model, index: int) -> ItemStates:
        item = task.items[index]
        return read_item_states(model, item, positions, stacks=stacks, rounding=rounding, mask=mask)

    return fit_models(
        ((model, _read_all_states(model, task, read_states, progress)) for model in loaded),
        task,
        settings,
    )


def _read_all_states(
    model: Model, task: ProbeTask, read_states: Callable[[Model, int], ItemStates], progress: bool
) -> Iterator[ItemStates | str]:
    """Yield the states of each item, or the reason why the model does not take it."""
    item_indices: Iterable[int] = range(len(task.items))
    if progress:
        from tqdm.auto import tqdm

        item_indices = tqdm(item_indices, unit="item", desc=f"states {model.label}")
    for index in item_indices:
        try:
            yield read_states(model, index)
        except SpeechmixError as error:
            yield str(error)


def fit_models(
    models: Iterable[tuple[Any, Iterable[ItemStates | str]]],
    task: ProbeTask,
    settings: ProbeSettings,
    *,
    twin_controls: int | None = None,
) -> Probes:
    """Fit the probes of models from the states of their items.

    Parameters
    ----------
    models : iterable of (model, states)
        A model (name, init, seed) with the states of each item of the task, or the reason why there
        are none.
    task : Task
    settings : Settings
    twin_controls : int, optional
        Draws of the control task for random twins, if others than for trained models.
    """
    rows: list[Row] = []
    answers: list[Row] = []
    left_out: list[Row] = [
        {"item": name, "reason": f"has no label {task.label!r}"} for name in task.unlabelled
    ]
    for model, states in models:
        model_cells = {"model": model.name, "init": model.init, "seed": model.seed}
        states_of_items: list[Mapping[tuple[str, Position], np.ndarray]] = []
        for name, item_states in zip(task.names, states, strict=True):
            if isinstance(item_states, str):
                left_out.append({**model_cells, "item": name, "reason": item_states})
                states_of_items.append({})
                continue
            states_of_items.append(item_states.states)
            left_out += [
                {
                    **model_cells,
                    "item": name,
                    "stack": stack,
                    "position": str(position),
                    "reason": reason,
                }
                for (stack, position), reason in item_states.missing_reasons.items()
            ]
        controls = (
            settings.controls if twin_controls is None or model.init == "trained" else twin_controls
        )
        for part in dict.fromkeys(task.parts.tolist()):
            item_indices, part_task = task.select_part(part)
            keys = {**model_cells, "part": part}
            part_results = fit_probes(
                [states_of_items[position] for position in item_indices],
                part_task,
                replace(settings, controls=controls),
            )
            for table_rows, new_rows in zip((rows, answers, left_out), part_results, strict=True):
                table_rows += [{**keys, **row} for row in new_rows]
    scores = SCORE_COLUMNS[settings.method]
    answer_columns = ANSWER_COLUMNS[settings.method]
    return Probes(
        pd.DataFrame(
            rows, columns=[*MODEL_KEYS, *PLACE_KEYS, "method", *scores, "n", "groups"]
        ).astype({"seed": "Int64"}),
        pd.DataFrame(
            answers, columns=[*MODEL_KEYS, *PLACE_KEYS, "item", "group", "true", *answer_columns]
        ).astype({"seed": "Int64"}),
        pd.DataFrame(left_out, columns=LEFT_OUT_COLUMNS).fillna(""),
        task.ties,
        {"label": task.label, "items": len(task.items), **settings.to_dict()}
        | {"grouping": task.grouping},
    )
