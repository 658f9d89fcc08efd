"""Agreement items through a model: does it choose the right word, and where does the target's row
lie?

In: BLiMP items, a model, and a file that keeps what is done, a line an item (`item_lines`). Out: a
table of decisions, and one of cue alignment for each layer and measure (or distance of Value
Zeroing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...evaluation.cue_alignment import (
    ALIGNMENT_METRICS,
    RANK_CORRELATION,
    SHARE_METRICS,
    cue_alignment,
)
from ...evaluation.distance_effect import distance_effect
from ...files.json_files import JsonObject
from ...mixing.passes.mix import mix_one
from ...runs.journal.item_lines import answers
from .blimp import BlimpItem
from .task_accuracy import choice_margin

_VALUES = [
    name
    for metrics in (ALIGNMENT_METRICS, SHARE_METRICS)
    for name in (*metrics, *(f"chance_{metric}" for metric in metrics))
]
_VALUES += [RANK_CORRELATION]
_ITEM = ["item", "paradigm", "number"]
_STORED = ["stack", "measure", "layer", *_VALUES]
_FEW = 3  # items on which it is tried whether a measure can be taken

# Told of (item's name, or nothing; kind of reason; reason) for what is left out.
Refused = Callable[[str, str, str], object]


@dataclass(frozen=True)
class CueAlignmentOptions:
    """What is asked of the maps.

    Parameters
    ----------
    measures : sequence of str
    distances : sequence of str
        If there are any, Value Zeroing under each instead of the measures.
    units : {"token", "word"}
    without_special : bool
        Leave special tokens out before rows are normalised.
    subtokens : {"all", "first"}
        Which sub-tokens of a cue count.
    objective : {"logit", "contrast"}
        What gradient measures explain.
    """

    measures: Sequence[str]
    distances: Sequence[str] = ()
    units: str = "token"
    without_special: bool = False
    subtokens: str = "all"
    objective: str = "logit"


def studied_stack(model: Model) -> str:
    """The stack that is studied: the encoder of a masked model, the decoder of a causal one."""
    return model.capabilities.input_stack


def decided_items(
    model: Model, items: Iterable[BlimpItem], path: Path, *, refused: Refused
) -> pd.DataFrame:
    """Margin between target and foil of each item.

    Parameters
    ----------
    model : Model
    items : sequence of BlimpItem
        May be wrapped in a progress bar.
    path : Path
        JSON lines; what is there already is read back.
    refused : callable
        Told of each item that cannot be decided.

    Returns
    -------
    DataFrame
        Columns item, paradigm, number, margin (nats), right.
    """
    done = answers(
        path,
        items,
        asked=lambda item: {
            **_described(model),
            "sentence": item.sentence(masked=False).fingerprint,
        },
        answer=lambda item: [choice_margin(model, item.sentence(masked=False))["margin"]],
        is_whole=lambda row: len(row) == 1,
        refused=lambda item, error: refused(item.name, "cannot be decided", str(error)),
    )
    rows = [(item.name, item.paradigm, item.number, *row) for item, row in done]
    table = pd.DataFrame(rows, columns=[*_ITEM, "margin"])
    return table.assign(right=table["margin"] > 0)


def aligned_items(
    model: Model,
    items: Iterable[BlimpItem],
    path: Path,
    asked: CueAlignmentOptions,
    *,
    first: Sequence[BlimpItem],
    refused: Refused,
) -> pd.DataFrame:
    """Cue alignment of each item.

    Parameters
    ----------
    model, items, path, refused
        As for `decided_items`.
    asked : Alignment
    first : sequence of BlimpItem
        Some of the items: a measure that can be taken of none of the first three is left out for
        all.

    Returns
    -------
    DataFrame
        Columns item, paradigm, number, stack, measure, layer and those of `cue_alignment` and
        `distance_effect`.

    Raises
    ------
    InputError
        If no measure can be taken.
    """
    names = _possible(model, first[:_FEW], asked, refused)
    done = answers(
        path,
        items,
        asked=lambda item: _ingredients(model, item, names, asked),
        answer=lambda item: _rows(model, item, names, asked),
        is_whole=lambda rows: all(len(row) == len(_STORED) for row in rows),
        refused=lambda item, error: refused(item.name, "cannot be scored", str(error)),
    )
    rows = [(item.name, item.paradigm, item.number, *row) for item, rows in done for row in rows]
    return pd.DataFrame(rows, columns=[*_ITEM, *_STORED])


def _described(model: Model) -> JsonObject:
    return {
        "model": model.fingerprint,
        "init": model.init,
        "seed": model.seed,
        "dtype": str(model.dtype),
    }


def _ingredients(
    model: Model, item: BlimpItem, names: list[str], asked: CueAlignmentOptions
) -> JsonObject:
    """Everything that decides an item's result: a stored one is used only if all of it is the
    same."""
    masked = studied_stack(model) == "encoder"
    made_of = _described(model) | {
        "sentence": item.sentence(masked=masked).fingerprint,
        "cue": list(item.cue),
    }
    made_of |= {
        **asdict(asked),
        "measures": names,
        "distances": bool(asked.distances),
        "target": item.target,
    }
    return made_of | {"objective": _objective(item, asked.objective, masked=masked)}


def _possible(
    model: Model, few: Sequence[BlimpItem], asked: CueAlignmentOptions, refused: Refused
) -> list[str]:
    """The measures (or distances) that can be taken of this model, on any of a few items; the
    others are told of once."""
    possible, reason = [], "no items"
    for name in asked.distances or asked.measures:
        for item in few:
            try:
                _rows(model, item, [name], asked)
                possible.append(name)
                break
            except SpeechmixError as error:
                reason = str(error)
        else:
            refused("", f"{name} cannot be taken here", reason)
    if not possible:
        raise InputError(f"{model.label}: no measure can be taken: {reason}")
    return possible


def _rows(
    model: Model, item: BlimpItem, names: list[str], asked: CueAlignmentOptions
) -> list[list[Any]]:
    """Cue alignment of one sentence: the columns that are stored."""
    stack = studied_stack(model)
    sentence = item.sentence(masked=stack == "encoder")
    where: JsonObject = {"cue": item.cue, "target": item.target, "attractors": item.attractors}
    where |= {"subtokens": asked.subtokens, "drop": ("special",) if asked.without_special else ()}
    if asked.distances:
        effect = distance_effect(
            model, sentence, distances=names, stack=stack, units=asked.units, **where
        )
        tables = {
            f"value_zeroing, {name}": part for name, part in effect.groupby("distance", sort=False)
        }
    else:
        objective = _objective(item, asked.objective, masked=stack == "encoder")
        maps = mix_one(
            model,
            sentence,
            measures=names,
            stacks=[stack],
            units=asked.units,
            targets="target",
            objective=objective,
        )
        tables = {
            measure: cue_alignment(mixing_map, **where) for (measure, _), mixing_map in maps.items()
        }
    rows = []
    for measure, table in tables.items():
        for layer, *values in table.reindex(columns=["layer", *_VALUES]).itertuples(index=False):
            rows.append([stack, measure, int(layer), *(round(float(value), 7) for value in values)])
    return rows


def _objective(item: BlimpItem, kind: str, *, masked: bool) -> str | tuple[str, ...]:
    """What gradient measures explain; a masked target has to be spelled."""
    if not masked:
        return kind
    return (item.form, item.foil) if kind == "contrast" else (item.form,)
