"""Response curves: what a model decides along a continuum of sounds, and where its decision changes.

In: a model and continua, or the table of a perception experiment. Out: a `ResponseCurve`. The response is the probability of
the target, given target and foil: 1 / (1 + exp(-margin)), with the margin of `Decision`. Where it crosses 50 % is found as in
`statistics.crossings`.

Where responses along a continuum cross 50 %.

In: mean responses of groups of items at each step. Out: the crossing, with its interval where one holds:

    five groups or more   of p = 1 / (1 + exp(-b0 - b1 x)), fitted to the mean responses by maximum likelihood; the interval is
                          a bootstrap over groups (`bootstrap_interval`)
    fewer                 between two steps, by linear interpolation; without an interval

A crossing is reported only if there is one: the mean responses cross 50 % once, the interval of b1 excludes zero, and the fit
is nowhere more than `MISFIT` from a mean response. Where they cross several times, the sentence names all of these values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from scipy.special import expit

from ...errors import InputError
from ...evaluation.cue_contribution import cue_contribution
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ...evaluation.statistics.intervals import MIN_GROUPS, percentile_levels, resample_groups
from ...files.json_files import JsonObject
from ...files.user_tables import RowError, read_table
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import segment_clip
from ...interventions.decision import Decision
from ...mixing.measures.token_objectives import label_names
from ...mixing.passes.mix import mix
from .continua import Continuum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...adapters.model import Model
    from ...mixing.maps.map_set import Maps

_SMALLEST_CHANGE = 1e-4  # of a response; below it is the rounding of another input
MISFIT = 0.1  # of a response, above which the fit does not describe the means
_RIDGE, _NEWTON_STEPS = 1e-4, 30


def find_crossing(values: Sequence[float] | np.ndarray, responses: np.ndarray) -> dict[str, Any]:
    """Find where mean responses [groups, S], from 0 to 1, at values [S] cross 50 %.

    Returns
    -------
    dict
        The columns of `ResponseCurve.crossings`; NaN where there is no crossing, or no interval.

    Examples
    --------
    >>> find_crossing([0, 1, 2], np.array([[0.9, 0.7, 0.1]]))["conclusion"]
    'crossing at 1.33; no interval: it needs 5 groups of continua, found 1'
    """
    x, means, count = np.asarray(values, float), responses.mean(axis=0), len(responses)
    crossings = _interpolate_crossings(x, means)
    intercept, slope = _fit_logistic(x, means[None])[0]
    crossing = low = high = misfit = np.nan
    reason, interval = "", f"; no interval: it needs {MIN_GROUPS} groups of continua, found {count}"
    if not len(crossings):
        reason = "no crossing: all mean responses are on one side of 50 %"
    elif np.ptp(means) < _SMALLEST_CHANGE:
        reason = "no crossing: the mean responses do not change"
    elif len(crossings) > 1:
        places = ", ".join(f"{value:.3g}" for value in crossings)
        reason = (
            f"no single crossing: the mean responses cross 50 % {len(crossings)} times, at {places}"
        )
    elif count < MIN_GROUPS:
        crossing = crossings[0]
    else:
        fits = _fit_logistic(x, resample_groups(count) @ responses / count)
        levels = percentile_levels(count)
        slope_low, slope_high = np.quantile(fits[:, 1], levels)
        misfit = float(abs(means - expit(intercept + slope * x)).max())
        if slope_low <= 0 <= slope_high or not x.min() <= -intercept / slope <= x.max():
            reason = "no crossing: no change of the responses along the steps is shown"
        elif misfit > MISFIT:
            reason = (
                f"no crossing: the fitted curve is up to {misfit:.0%} off the mean responses, which "
                f"cross 50 % at {crossings[0]:.3g}"
            )
        else:
            crossing = -intercept / slope
            low, high = np.quantile(-fits[:, 0] / fits[:, 1], levels)
            low, high = (-np.inf if low < x.min() else low), (np.inf if high > x.max() else high)
            interval = f" [{low:.3g}, {high:.3g}]"
    conclusion = reason or f"crossing at {crossing:.3g}{interval}"
    numbers = {"crossing": crossing, "low": low, "high": high, "slope": slope}
    return {**numbers, "misfit": misfit, "groups": count, "conclusion": conclusion}


def _interpolate_crossings(values: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return where lines between mean responses [S] cross 50 %, in the order of the steps."""
    before = np.flatnonzero(np.diff(means > 0.5))
    shares = (0.5 - means[before]) / (means[before + 1] - means[before])
    crossings: np.ndarray = values[before] + shares * (values[before + 1] - values[before])
    return crossings


def _fit_logistic(values: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Fit intercept and slope [R, 2] to responses [R, S] by Newton's method, with a slight ridge."""
    centre, scale = values.mean(), np.ptp(values) / 2
    design = np.stack([np.ones(len(values)), (values - centre) / scale], axis=1)
    fits = np.zeros((len(responses), 2))
    for _ in range(_NEWTON_STEPS):
        p = expit(fits @ design.T)
        gradient = (responses - p) @ design - _RIDGE * fits
        curvature = np.einsum("rs,si,sj->rij", p * (1 - p), design, design) + _RIDGE * np.eye(2)
        steps = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        fits += steps * np.minimum(1, 4 / np.maximum(np.linalg.norm(steps, axis=1), 1e-9))[:, None]
    slopes = fits[:, 1] / scale
    return np.stack([fits[:, 0] - slopes * centre, slopes], axis=1)


Attribution = str | Callable[["Model", "Clip"], float]


@dataclass(frozen=True, eq=False)
class ResponseCurve:
    """Responses along continua, of a model or of listeners.

    Parameters
    ----------
    table : DataFrame
        A row for each step: continuum, context, step (from 1), value, response (0 to 1), group; of a model also margin (nats),
        and attribution if requested.
    label : str
        Of the value.
    provenance : dict
    crossings : DataFrame
        A row for each context: crossing (value), low, high (95 %), slope (change of the log odds per unit of the value), misfit
        (largest distance of the fit from a mean response), groups, conclusion (a sentence).
    """

    table: pd.DataFrame
    label: str
    provenance: JsonObject
    crossings: pd.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        rows = []
        for context, part in self.table.groupby("context", sort=False):
            means = part.pivot_table("response", "group", "value")
            if means.isna().any(axis=None):
                raise InputError(
                    f"expected the same values in all continua, but some lack one of {[*means]}"
                )
            crossing = find_crossing(means.columns.to_numpy(float), means.to_numpy())
            rows.append({"context": context, **crossing})
        object.__setattr__(self, "crossings", pd.DataFrame(rows))

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table."""
        return self.table.copy()

    @property
    def summary(self) -> str:
        """A sentence for each context, and how many groups and speakers there are."""
        rows = zip(self.crossings["context"], self.crossings["conclusion"], strict=True)
        lines = [f"{context or self.label}: {conclusion}" for context, conclusion in rows]
        return "\n".join([*lines, *filter(None, [self.provenance.get("grouping")])])

    def plot(self, *, listeners: ResponseCurve | None = None, ax: Axes | None = None) -> Axes:
        """Draw the curves; see `plots.response_panel`."""
        from .response_figure import response_panel

        return response_panel(self, listeners=listeners, ax=ax)


def response_curve(
    model: Model,
    continua: Continuum | Sequence[Continuum | Clip],
    *,
    labels: tuple[str, str] | None = None,
    attribution: Attribution | None = None,
    group: str | None = None,
) -> ResponseCurve:
    """Measure what a model decides at each step of continua, and where the decision changes.

    Parameters
    ----------
    model : Model
        A speech model with its head.
    continua : Continuum, sequence of Continuum, or clips in order
        With target and foil. Several continua are items of a design; those of one sound are one item.
    labels : (str, str), optional
        Of a classifier: the label in the place of the target, and that in the place of the foil.
    attribution : str or callable, optional
        Also measure at each step: a measure of `mix`, whose share of the cue in the target is averaged over the layers of its
        first stack; or a function of model and clip.
    group : str, optional
        A column of the clips' `meta` that says which continua belong together; by default speakers, or pair, sentence and
        target word.

    Raises
    ------
    InputError
        If there is no foil, the labels of a classifier are missing, or continua have other values.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> singular, plural = bundled.clips()[:2]  # synthetic
    >>> steps = speechmix.continuum(singular, plural, 5, method="mix")
    >>> curve = response_curve(speechmix.load("bundled:tiny-french-whisper"), steps)
    >>> len(curve.to_dataframe())
    5
    """
    sequence = [continua] if isinstance(continua, Continuum) else continua
    items = [item for item in sequence if isinstance(item, Continuum)]
    if clips := [item for item in sequence if isinstance(item, Clip)]:
        items.append(Continuum(clips, range(1, len(clips) + 1), label="step"))
    if not items:
        raise InputError("expected a continuum, found none")
    if model.has_label_head and labels is None:
        names = ", ".join(label_names(model))
        raise InputError(f"{model.name} gives labels: give labels=, two of {names}")
    rows, counts = list[dict[str, Any]](), Counter[tuple[str, str]]()
    groups, grouping = _group_continua(items, group)
    for item, group_name in zip(items, groups, strict=True):
        counts[item.name, item.context] += 1
        count = counts[item.name, item.context]
        name = f"{item.name} ({count})" if count > 1 else item.name
        row: dict[str, Any] = {"continuum": name, "context": item.context, "group": group_name}
        for step, (clip, value) in enumerate(zip(item.clips, item.values, strict=True), start=1):
            if model.has_label_head and not clip.words:  # a label is of the whole sound
                clip = segment_clip(clip, clip.duration)
            decision = Decision.prepare(model, clip, objective=labels or "contrast")
            response = float(expit(decision.margin))
            row |= {"step": step, "value": value, "response": response, "margin": decision.margin}
            if attribution is not None:
                row["attribution"] = _attribute(model, clip, attribution)
            rows.append(dict(row))
    provenance: JsonObject = {"model": model.name, "init": model.init, "seed": model.seed}
    provenance["grouping"] = grouping
    return ResponseCurve(pd.DataFrame(rows), items[0].label, provenance)


def read_responses(
    path: str | Path, curve: ResponseCurve, *, target: str | None = None
) -> ResponseCurve:
    """Read the responses of listeners to the steps of a model's curve.

    Parameters
    ----------
    path : path of a .csv, .tsv or .jsonl file
        Columns continuum, step (1 is the first clip) and response, and context and listener if there are such; a row is a
        trial, or the share of several. Groups are listeners, or else continua.
    curve : ResponseCurve
        Of the model.
    target : str, optional
        The response that counts as 1, if responses are words and not numbers from 0 to 1.

    Raises
    ------
    InputError
        If a row cannot be read, or its step or response is out of range.
    """
    values, rows = curve.table.groupby("step")["value"].first(), []
    for line, cells in read_table(path, required=("continuum", "step", "response")):
        try:
            if isinstance(cells, RowError):
                raise cells
            answer: Any = cells["response"]
            name, step = str(cells["continuum"]), float(str(cells["step"]))
            response = float(answer if target is None else str(answer) == target)
            if not (1 <= step <= len(values) and 0 <= response <= 1):
                raise ValueError(f"step {step:g}, response {response:g}")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}, row {line}: expected a step from 1 to {len(values)} and a response from 0 "
                f"to 1 (or words, and target=), found {error}"
            ) from error
        row = {"continuum": name, "context": str(cells.get("context", "")), "step": step}
        row |= {"value": np.interp(step, values.index, values), "response": response}
        rows.append({**row, "group": str(cells.get("listener", name))})
    if not rows:
        raise InputError(f"{path}: expected a row for each response, found none")
    return ResponseCurve(pd.DataFrame(rows), curve.label, {"table": Path(path).name})


def _group_continua(items: Sequence[Continuum], group: str | None) -> tuple[list[str], str]:
    """Return the group of each continuum, and how many there are in a sentence; one sound is one item, whatever its names."""
    sounds = [frozenset(clip.audio_hash for clip in item.clips) for item in items]
    first_clips = {sounds[i]: items[i].clips[0] for i in reversed(range(len(items)))}
    clips = list(first_clips.values())
    table = build_item_table(clips)
    groups, ties = assign_item_groups(table, clips, group)
    group_of_sound = dict(zip(first_clips, groups, strict=True))
    grouping = describe_groups(table.assign(group=groups), ties, noun="continuum")
    return [str(group_of_sound[sound]) for sound in sounds], grouping if len(items) > 1 else ""


def _attribute(model: Model, clip: Clip, attribution: Attribution) -> float:
    if callable(attribution):
        return float(attribution(model, clip))
    first_map = next(iter(cast("Maps", mix(model, clip, measures=attribution)).values()))
    shares = cue_contribution(first_map, cue=clip.cue_request, target=clip.target_request)
    return float(shares.mean())
