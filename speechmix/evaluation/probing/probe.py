"""probe(): what can be read off a model's states, at which position, from which layer on.

In: models (a trained one beside its random twins), labelled items, positions. Out: `Probes`, a tidy
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
from .fits import Row, Settings, fitted
from .logistic import PUBLISHED
from .positions import Position, States, positions_asked, states_at
from .probe_results import _LEFT_OUT, _SCORES, MODEL, PLACE, Probes
from .task import LabelOption, Task

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

PROTOCOLS: dict[str, dict[str, object]] = {"published": {**PUBLISHED, "method": "logistic"}}


def probe(
    models: Model | Iterable[Model | Callable[[], Model]],
    items: Iterable[Clip | Sentence],
    *,
    label: LabelOption = "number",
    position: Position | Sequence[Position] = "target",
    stacks: str | Sequence[str] | None = None,
    method: str = "logistic",
    mode: str = "correct",
    folds: int = 5,
    controls: int = 3,
    seed: int = 0,
    group: str | None = None,
    by: str | None = None,
    solver: str = "lbfgs",
    scale: bool = True,
    rounding: str = "disjoint",
    mask: bool = True,
    protocol: str | None = None,
    progress: bool = False,
) -> Probes:
    """Probe the states of models: can a label be read off them, layer by layer?

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        A trained model and its random twins, which say what the untrained architecture gives away.
        One pass an item each.
    items : iterable of Clip or Sentence
        Clips with word times, sentences. Those without a label, or without the position, are
        recorded and left out.
    label : str or callable
        A column of the manifest (`meta`), or a function of an item.
    position : {"target", "cue", "between", "deciding"}, int, or several
        Whose states: their mean over frames or tokens. See `positions`; an index is that of a word.
    stacks : str or sequence of str, optional
        "encoder", "decoder"; all that the items feed by default ("cross" has no states of its own).
    method : {"logistic", "online_code"}
    mode : {"correct", "reference"}
        Of the online code: in bits, or as the published code computes it (`online_code`).
    folds : int
        Of the cross-validation.
    controls : int
        Draws of the control task.
    seed : int
        Of folds, control task and online code.
    group : str, optional
        A column that says which items belong together, and stay in one fold; by default pair,
        sentence and target word.
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
    >>> probes.table[["init", "stack", "layer", "accuracy", "control"]]                   # doctest: +SKIP
    """
    positions = positions_asked(position)
    options: dict[str, Any] = {
        "method": method,
        "mode": mode,
        "folds": folds,
        "controls": controls,
        "seed": seed,
        "solver": solver,
    }
    options["scale"] = scale
    if protocol is not None:
        if protocol not in PROTOCOLS:
            raise InputError(f"protocol should be one of {list(PROTOCOLS)}, found {protocol!r}")
        options, rounding = {**options, **PROTOCOLS[protocol]}, "paper"
    settings, task = Settings(**options), Task.of(list(items), label, group=group, by=by)
    stacks = (stacks,) if isinstance(stacks, str) else stacks

    def states_of(model: Model, index: int) -> States:
        item = task.items[index]
        return states_at(model, item, positions, stacks=stacks, rounding=rounding, mask=mask)

    loaded = (
        source if isinstance(source, Model) else source()
        for source in ([models] if isinstance(models, Model) else models)
    )
    return probes_of(
        ((model, _states(model, task, states_of, progress)) for model in loaded), task, settings
    )


def _states(
    model: Model, task: Task, states_of: Callable[[Model, int], States], progress: bool
) -> Iterator[States | str]:
    """States of each item; the reason of one that the model does not take."""
    places: Iterable[int] = range(len(task.items))
    if progress:
        from tqdm.auto import tqdm

        places = tqdm(places, unit="item", desc=f"states {model.label}")
    for index in places:
        try:
            yield states_of(model, index)
        except SpeechmixError as error:
            yield str(error)


def probes_of(
    models: Iterable[tuple[Any, Iterable[States | str]]],
    task: Task,
    settings: Settings,
    *,
    twin_controls: int | None = None,
) -> Probes:
    """Probes of models whose states are at hand, or made one model after the other.

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
        facts = {"model": model.name, "init": model.init, "seed": model.seed}
        states_of_items: list[Mapping[tuple[str, Position], np.ndarray]] = []
        for name, of_item in zip(task.names, states, strict=True):
            if isinstance(of_item, str):
                left_out.append({**facts, "item": name, "reason": of_item})
                states_of_items.append({})
                continue
            states_of_items.append(of_item.at)
            left_out += [
                {**facts, "item": name, "stack": stack, "position": str(place), "reason": reason}
                for (stack, place), reason in of_item.missing.items()
            ]
        draws = (
            settings.controls if twin_controls is None or model.init == "trained" else twin_controls
        )
        for part in dict.fromkeys(task.parts.tolist()):
            places, of_part = task.part(part)
            here = {**facts, "part": part}
            of_probes = fitted(
                [states_of_items[place] for place in places],
                of_part,
                replace(settings, controls=draws),
            )
            for lines, new in zip((rows, answers, left_out), of_probes, strict=True):
                lines += [{**here, **line} for line in new]
    scores = _SCORES[settings.method]
    verdicts = ["predicted", "right", "control"] if settings.method == "logistic" else ["bits"]
    return Probes(
        pd.DataFrame(rows, columns=[*MODEL, *PLACE, "method", *scores, "n", "groups"]).astype(
            {"seed": "Int64"}
        ),
        pd.DataFrame(answers, columns=[*MODEL, *PLACE, "item", "group", "true", *verdicts]).astype(
            {"seed": "Int64"}
        ),
        pd.DataFrame(left_out, columns=_LEFT_OUT).fillna(""),
        task.ties,
        {"label": task.label, "items": len(task.items), **vars(settings)},
    )
