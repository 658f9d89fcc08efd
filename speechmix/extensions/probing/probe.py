"""Probe a model's states for a label or a number, at each position and layer.

In: models (a trained one beside its random twins), labelled items, positions or units. Out: `Probes`, a tidy
table with a row for each model, stack, position and layer (-1 is the input of the first layer),
beside majority and control task, and what was said of each item.

References: Mohebbi et al. 2023 (EMNLP, Figure 4: logistic; EACL: online code); Hewitt & Liang 2019
(control tasks); Voita & Titov 2020 (online code). What is better here than there is said in
`logistic`, `online_code` and docs/howto/probing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from .fits import ProbeSettings, Row, fit_probes
from .logistic import PUBLISHED_OPTIONS, Estimator
from .probe_results import (
    ANSWER_COLUMNS,
    LEFT_OUT_COLUMNS,
    MODEL_KEYS,
    PLACE_KEYS,
    SCORE_COLUMNS,
    Probes,
)
from .task import ItemStates, LabelOption, Position, ProbeTask, read_item_states, resolve_positions
from .unit_task import read_unit_tasks

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

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
