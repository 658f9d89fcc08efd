"""Score agreement items: the model's choice, and cue alignment of the target's row.

In: BLiMP items, a model, and a file that keeps what is done, a line an item (runs/journal). Out: a
table of decisions, and one of cue alignment for each layer and measure (or distance of Value
Zeroing).

Accuracy of a model at choosing the right word.

The right word against the wrong one, before any map is looked at.

In: a model and items with a target and a foil. Out: the margin of each item (nats), the share of
items in which the target wins with its interval, and a sentence that says what can then be read off
maps.

    margin = log p(target) - log p(foil)     at [MASK] in a masked model, of the next token in a causal one

Mohebbi et al. 2023 (Quantifying Context Mixing in Transformers, EACL) give 0.96 for
bert-base-uncased, 0.99 after fine-tuning. A tie is no right answer. Chance is one half; a model
that always writes the singular has it, too, where numbers are balanced, so accuracy is given by
number as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.intervals import LEVEL
from ...files.json_files import JsonObject
from ...interventions.decision import Decision
from ...mixing.passes.mix import mix_one
from ...runs.journal.stage_lines import compute_item_lines
from .blimp import BlimpItem
from .cue_alignment import ALIGNMENT_METRICS, RANK_CORRELATION, SHARE_METRICS, cue_alignment
from .distance_metric_effect import distance_effect

if TYPE_CHECKING:
    from ...mixing.passes.item_view import Item

CHANCE = 0.5


def choice_margin(model: Model, item: Item) -> dict[str, float | bool]:
    """Return the margin between target and foil, and whether the target wins.

    Parameters
    ----------
    model : Model
    item : Sentence or Clip
        With a target and a foil. A masked model is fed its mask in the target's place.

    Returns
    -------
    dict
        margin : float, nats; right : bool

    Raises
    ------
    InputError
        If there is no foil, or target and foil are not decided at one position.

    Examples
    --------
    >>> model = speechmix.load("bert-base-uncased")                                                       # doctest: +SKIP
    >>> choice_margin(model, speechmix.Sentence("the keys are here", target="are", foil="is"))            # doctest: +SKIP
    {'margin': 4.1, 'right': True}
    """
    decision = Decision.prepare(model, item)
    if not decision.has_foil:
        raise InputError(
            f"{decision.name!r} has no foil: expected target= and foil=, the two words to choose "
            "from"
        )
    return {"margin": decision.margin, "right": decision.margin > 0}


def item_accuracy(table: pd.DataFrame, *, by: Sequence[str] = ("model", "init")) -> pd.DataFrame:
    """Share of items done right, with its 95 % interval over items (Wilson's, scipy's: it holds
    near 0 and 1, too).

    Parameters
    ----------
    table : DataFrame
        Columns item, right and those of `by`. Seeds of a random twin are averaged for each item
        first, and an item is then counted by the share of seeds that do it.
    by : sequence of str
        ("paradigm", "number", ...) to split it further.

    Returns
    -------
    DataFrame
        Columns of `by`, accuracy, low, high, items.

    Raises
    ------
    InputError
        If a column is missing, or the table is empty.

    Examples
    --------
    >>> table = pd.DataFrame({"item": list("abcd"), "right": [True, True, True, False], "model": "m", "init": "trained"})
    >>> item_accuracy(table).round(2).values.tolist()
    [['m', 'trained', 0.75, 0.3, 0.95, 4]]
    """
    missing_columns = [name for name in ("item", "right", *by) if name not in table.columns]
    if missing_columns or table.empty:
        raise InputError(
            f"expected a table of items with the columns item, right, {', '.join(by)}; found "
            f"{len(table)} rows"
            + (f", and {', '.join(missing_columns)} missing" if missing_columns else "")
        )
    by = list(by)
    items = (
        table.astype({"right": float})
        .groupby([*by, "item"], sort=False)["right"]
        .mean()
        .reset_index()
    )
    rows = []
    for key, group in items.groupby(by, sort=False):
        low, high = _wilson_interval(float(group["right"].mean()), len(group))
        keys = dict(zip(by, key, strict=True))
        rows.append(
            {
                **keys,
                "accuracy": group["right"].mean(),
                "low": low,
                "high": high,
                "items": len(group),
            }
        )
    return pd.DataFrame(rows)


def accuracy_sentence(name: str, share: float, low: float, high: float, items: int) -> str:
    """Say what an accuracy allows to be read off maps.

    Examples
    --------
    >>> accuracy_sentence("model", 0.52, 0.47, 0.57, 400)
    'model does the task in 52 % [47, 57] of 400 sentences, no better than chance (50 %): its maps
    cannot show how it does it.'
    >>> accuracy_sentence("model", 0.96, 0.94, 0.98, 400)
    'model does the task in 96 % [94, 98] of 400 sentences (chance 50 %).'
    >>> accuracy_sentence("tiny-bert", 0.7, 0.65, 0.75, 400).partition("; ")[2]
    'its maps are of right and wrong sentences together.'
    """
    interval = f"[{100 * low:.0f}, {100 * high:.0f}]"
    sentence = f"{name} does the task in {100 * share:.0f} % {interval} of {items:,} sentences"
    if low <= CHANCE:
        return f"{sentence}, no better than chance (50 %): its maps cannot show how it does it."
    return f"{sentence} (chance 50 %)" + (
        "; its maps are of right and wrong sentences together." if share < 0.9 else "."
    )


def _wilson_interval(share: float, items: int) -> tuple[float, float]:
    """Wilson's interval of a share; a share that is no whole number of items (a mean over seeds) is
    allowed."""
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + LEVEL / 2))
    centre = (share + z**2 / (2 * items)) / (1 + z**2 / items)
    half_width = (
        z / (1 + z**2 / items) * (share * (1 - share) / items + z**2 / (4 * items**2)) ** 0.5
    )
    return max(0.0, centre - half_width), min(1.0, centre + half_width)


_VALUE_COLUMNS = [
    name
    for metrics in (ALIGNMENT_METRICS, SHARE_METRICS)
    for name in (*metrics, *(f"chance_{metric}" for metric in metrics))
]
_VALUE_COLUMNS += [RANK_CORRELATION]
_ITEM_COLUMNS = ["item", "paradigm", "number"]
_STORED_COLUMNS = ["stack", "measure", "layer", *_VALUE_COLUMNS]
_TRIAL_ITEM_COUNT = 3  # items on which it is tried whether a measure can be taken

# Told of (item's name, or nothing; kind of reason; reason) for what is left out.
SkipCallback = Callable[[str, str, str], object]


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


def decide_items(
    model: Model, items: Iterable[BlimpItem], path: Path, *, on_skip: SkipCallback
) -> pd.DataFrame:
    """Margin between target and foil of each item.

    Parameters
    ----------
    model : Model
    items : sequence of BlimpItem
        May be wrapped in a progress bar.
    path : Path
        JSON lines; what is there already is read back.
    on_skip : callable
        Told of each item that cannot be decided.

    Returns
    -------
    DataFrame
        Columns item, paradigm, number, margin (nats), right.
    """
    answered_items = compute_item_lines(
        path,
        items,
        make_request=lambda item: {
            **_model_key(model),
            "sentence": item.sentence(masked=False).fingerprint,
        },
        answer=lambda item: [choice_margin(model, item.sentence(masked=False))["margin"]],
        is_whole=lambda row: len(row) == 1,
        refused=lambda item, error: on_skip(item.name, "cannot be decided", str(error)),
    )
    rows = [(item.name, item.paradigm, item.number, *row) for item, row in answered_items]
    table = pd.DataFrame(rows, columns=[*_ITEM_COLUMNS, "margin"])
    return table.assign(right=table["margin"] > 0)


def align_items(
    model: Model,
    items: Iterable[BlimpItem],
    path: Path,
    options: CueAlignmentOptions,
    *,
    trial_items: Sequence[BlimpItem],
    on_skip: SkipCallback,
) -> pd.DataFrame:
    """Cue alignment of each item.

    Parameters
    ----------
    model, items, path, on_skip
        As for `decide_items`.
    options : CueAlignmentOptions
    trial_items : sequence of BlimpItem
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
    measure_names = _select_computable_measures(
        model, trial_items[:_TRIAL_ITEM_COUNT], options, on_skip
    )
    answered_items = compute_item_lines(
        path,
        items,
        make_request=lambda item: _cache_key(model, item, measure_names, options),
        answer=lambda item: _alignment_rows(model, item, measure_names, options),
        is_whole=lambda rows: all(len(row) == len(_STORED_COLUMNS) for row in rows),
        refused=lambda item, error: on_skip(item.name, "cannot be scored", str(error)),
    )
    rows = [
        (item.name, item.paradigm, item.number, *row)
        for item, rows in answered_items
        for row in rows
    ]
    return pd.DataFrame(rows, columns=[*_ITEM_COLUMNS, *_STORED_COLUMNS])


def _model_key(model: Model) -> JsonObject:
    return {
        "model": model.fingerprint,
        "init": model.init,
        "seed": model.seed,
        "dtype": str(model.dtype),
    }


def _cache_key(
    model: Model, item: BlimpItem, measure_names: list[str], options: CueAlignmentOptions
) -> JsonObject:
    """Everything that decides an item's result: a stored one is used only if all of it is the
    same."""
    is_masked = studied_stack(model) == "encoder"
    key = _model_key(model) | {
        "sentence": item.sentence(masked=is_masked).fingerprint,
        "cue": list(item.cue),
    }
    key |= {
        **asdict(options),
        "measures": measure_names,
        "distances": bool(options.distances),
        "target": item.target,
    }
    return key | {"objective": _make_objective(item, options.objective, is_masked=is_masked)}


def _select_computable_measures(
    model: Model,
    trial_items: Sequence[BlimpItem],
    options: CueAlignmentOptions,
    on_skip: SkipCallback,
) -> list[str]:
    """The measures (or distances) that can be taken of this model, on any of a few items; the
    others are told of once."""
    computable, reason = [], "no items"
    for name in options.distances or options.measures:
        for item in trial_items:
            try:
                _alignment_rows(model, item, [name], options)
                computable.append(name)
                break
            except SpeechmixError as error:
                reason = str(error)
        else:
            on_skip("", f"{name} cannot be taken here", reason)
    if not computable:
        raise InputError(f"{model.label}: no measure can be taken: {reason}")
    return computable


def _alignment_rows(
    model: Model, item: BlimpItem, measure_names: list[str], options: CueAlignmentOptions
) -> list[list[Any]]:
    """Cue alignment of one sentence: the columns that are stored."""
    stack = studied_stack(model)
    sentence = item.sentence(masked=stack == "encoder")
    alignment_options: JsonObject = {
        "cue": item.cue,
        "target": item.target,
        "attractors": item.attractors,
    }
    alignment_options |= {
        "subtokens": options.subtokens,
        "drop": ("special",) if options.without_special else (),
    }
    if options.distances:
        effect = distance_effect(
            model,
            sentence,
            distances=measure_names,
            stack=stack,
            units=options.units,
            **alignment_options,
        )
        tables = {
            f"value_zeroing, {name}": rows for name, rows in effect.groupby("distance", sort=False)
        }
    else:
        objective = _make_objective(item, options.objective, is_masked=stack == "encoder")
        maps = mix_one(
            model,
            sentence,
            measures=measure_names,
            stacks=[stack],
            units=options.units,
            targets="target",
            objective=objective,
        )
        tables = {
            measure: cue_alignment(mixing_map, **alignment_options)
            for (measure, _), mixing_map in maps.items()
        }
    rows = []
    for measure, table in tables.items():
        for layer, *values in table.reindex(columns=["layer", *_VALUE_COLUMNS]).itertuples(
            index=False
        ):
            rows.append([stack, measure, int(layer), *(round(float(value), 7) for value in values)])
    return rows


def _make_objective(item: BlimpItem, kind: str, *, is_masked: bool) -> str | tuple[str, ...]:
    """What gradient measures explain; a masked target has to be spelled."""
    if not is_masked:
        return kind
    return (item.form, item.foil) if kind == "contrast" else (item.form,)
