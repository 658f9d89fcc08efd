"""How many milliseconds of future a word uses: look-ahead curves over clips, with intervals.

In: a speech model and clips with word times. Out: `LookAhead`: for each delay after the word's end the
mean loss of its score without what comes later (extensions/look_ahead/look_ahead.py), and how far it uses the
future.

How far a word uses the future: mean losses over clips, with intervals, and two limits of each curve.

In: losses by clip, word and delay (`LookAhead.table`). Out: `LookAhead.curves` and `LookAhead.limits`:

    used_ms     the largest delay with an effect: the interval excludes zero
    enough_ms   the smallest delay from which on every effect is negligible: in size below a share of
                what the same clips lose at the smallest delay

A clip counts at a delay only if something is removed: a clip that has ended shows nothing. Intervals
hold together, at 95 %: those of all curves in which all layers change; those of all curves of single
layers, or windows of layers; those of chunks.

Draw look-ahead: what a word's score loses without what comes later, over the delay and by layer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from tqdm.auto import tqdm

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL, mean_intervals
from ...files.json_files import JsonObject
from ...files.text_files import write_csv
from ...files.whole_files import write_json
from ...interventions.value_knock_out import ALL_LAYERS
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    TICK_SIZE,
    LineStyle,
    add_legend,
    legend_line,
    model_title,
    new_figure,
    style_curve_axis,
)
from .look_ahead import (
    BOTH_STACKS,
    CHUNK,
    CUT,
    ERRORS,
    PAST,
    PREFIX,
    WORD,
    ZEROS,
    look_ahead_effects,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

CURVE_KEYS = ["removal", "stack", "window", "layer"]


def average_curves(table: pd.DataFrame, share: float) -> pd.DataFrame:
    """Average effects over the clips of a group, then over groups: `LookAhead.curves`.

    Parameters
    ----------
    table : DataFrame
        `LookAhead.table`.
    share : float
        Of the loss at the smallest delay, below which an effect is negligible.
    """
    finite = table[np.isfinite(table["effect"])].reset_index(drop=True)
    curve = finite.groupby(CURVE_KEYS, sort=False, dropna=False).ngroup()
    delay = finite["ms"].rank(method="dense").astype(int)
    finite["row"] = curve * (delay.max() + 1) + delay
    by_clip = finite.sort_values("ms", kind="stable").groupby([curve, "clip", "word"])
    finite["tolerance"] = share * by_clip["effect"].transform("first")
    has_removal = finite["has_later"].astype(bool) & ~finite["frames"].eq(0).fillna(False)
    counted = finite[has_removal]
    by_row = finite.groupby("row")
    curves: pd.DataFrame = by_row[[*CURVE_KEYS, "ms"]].agg(lambda values: values.iloc[0])
    effects, tolerances = (
        counted.pivot_table(name, "row", "group").reindex(curves.index).to_numpy(float)
        for name in ("effect", "tolerance")
    )  # [R, G]
    curves["effect"] = counted.groupby(["row", "group"])["effect"].mean().groupby("row").mean()
    curves["groups"] = np.isfinite(effects).sum(axis=1)
    level = 1 - (1 - LEVEL) / _count_together(curves)
    find_intervals = partial(mean_intervals, level=level)
    curves["low"], curves["high"] = find_intervals(effects)
    no_effect = (curves["groups"] >= FEWEST_GROUPS) & ~np.nan_to_num(effects).any(axis=1)
    curves.loc[no_effect, ["low", "high"]] = 0.0
    sign = np.where(np.nansum(tolerances, axis=1) < 0, -1, 1)[:, None]
    below, above = sign * (effects - tolerances), sign * (effects + tolerances)
    curves["negligible"] = (find_intervals(below)[1] < 0) & (find_intervals(above)[0] > 0)
    curves["clips"] = counted.groupby("row")["clip"].nunique().reindex(curves.index, fill_value=0)
    for name in ("frames", "has_later", *(name for name in ERRORS if name in finite)):
        curves[name] = finite[name].astype(float).groupby(finite["row"]).mean()
    curves["layer"] = curves["layer"].astype("Int64")
    return curves.reset_index(drop=True)


def _count_together(curves: pd.DataFrame) -> np.ndarray:
    """Return with how many others each row's interval holds [R]: of all layers, of some, of chunks."""
    family = curves["window"].eq(ALL_LAYERS) + 2 * curves["removal"].eq(CHUNK)
    has_interval = curves["groups"] >= FEWEST_GROUPS
    counts: np.ndarray = has_interval.groupby(family).transform("sum").clip(lower=1).to_numpy()
    return counts


def find_limits(curves: pd.DataFrame) -> pd.DataFrame:
    """Find the delays at which each curve ends: `LookAhead.limits`.

    Of single layers only where all layers of the stack together have an effect (hierarchical testing).
    """
    rows = []
    delay_curves = curves[curves["removal"] != CHUNK]
    for key, curve in delay_curves.groupby(CURVE_KEYS, sort=False, dropna=False):
        first, tested = curve.iloc[0], curve[curve["low"].notna()]
        delays = tested["ms"].to_numpy()
        is_shown = ((tested["low"] > 0) | (tested["high"] < 0)).to_numpy()
        is_enough = np.logical_and.accumulate(tested["negligible"].to_numpy()[::-1])[::-1]
        is_enough &= first["low"] > 0 or first["high"] < 0
        values = {
            "used_ms": delays[is_shown].max() if is_shown.any() else np.nan,
            "enough_ms": delays[is_enough].min() if is_enough.any() else np.nan,
            "last_ms": delays.max() if len(delays) else np.nan,
            **first[["effect", "low", "high"]],
        }
        rows.append({**dict(zip(CURVE_KEYS, key, strict=True)), **values})
    limits = pd.DataFrame(rows).astype({"layer": "Int64"})
    is_whole = limits["window"] == ALL_LAYERS
    has_no_effect = limits.loc[is_whole & limits["used_ms"].isna(), ["removal", "stack"]]
    is_part = pd.MultiIndex.from_frame(limits[["removal", "stack"]]).isin(
        pd.MultiIndex.from_frame(has_no_effect)
    )
    limits.loc[is_part, ["used_ms", "enough_ms"]] = np.nan
    return limits


DESCRIPTIONS = {
    WORD: "attention from the word to later frames",
    PREFIX: "attention from all earlier frames to later ones",
    PAST: "attention from the word to as many earlier frames (control)",
    CUT: "the sound, which ends there",
    ZEROS: "the sound, silent from there on",
}


@dataclass(frozen=True, eq=False)
class LookAhead:
    """Look-ahead curves of a model.

    Parameters
    ----------
    table : DataFrame
        A row for each clip, word and run: clip (a second one of the same name has "(2)" added),
        word (index), group, and what `look_ahead_effects` returns.
    curves : DataFrame
        Columns removal, stack, window, layer, ms; effect (mean over groups of clips that have sound to
        remove, nats) with low, high (interval, 95 % together; missing below eight groups); negligible
        (see enough_ms); groups, clips; frames (mean); has_later (share of all clips that have sound
        after the delay); with chunks errors and offline_errors (words of a
        clip's transcript that differ from its text, mean; within chunks and with full attention).
    limits : DataFrame
        For each curve used_ms and enough_ms, missing where nothing can be concluded, and for single
        layers where all of them together have no effect; last_ms (the largest delay with an
        interval); effect, low, high of the smallest delay.
    skipped : tuple of (str, str)
        Clips with a word that cannot be used, and why.
    provenance : dict
    """

    table: pd.DataFrame
    curves: pd.DataFrame
    limits: pd.DataFrame
    skipped: tuple[tuple[str, str], ...]
    provenance: JsonObject

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the curves, one row for each delay."""
        return self.curves.copy()

    @property
    def main_stack(self) -> str:
        """The stack of the main curves: encoder and cross-attention together, if there are both."""
        return BOTH_STACKS if (self.curves["stack"] == BOTH_STACKS).any() else "encoder"

    @property
    def summary(self) -> str:
        """Sentences: how much future the word uses, by what is removed."""
        lines = []
        for row in self.curves[self.curves["removal"] == CHUNK].to_dict("records"):
            lines.append(
                f"chunks of {row['ms']:g} ms: score lost {row['effect']:.2f} nats "
                f"[{row['low']:.2f}, {row['high']:.2f}]; {row[ERRORS[0]]:.2f} words wrong a clip, "
                f"{row[ERRORS[1]]:.2f} with full attention"
            )
        groups = int(self.curves["groups"].max())
        first_delay = self.curves.loc[self.curves["removal"] != CHUNK, "ms"].min()
        main = self.limits[self.limits["stack"].isin([self.main_stack, "input"])]
        for row in main[main["window"] == "all"].to_dict("records"):
            used, enough = row["used_ms"], row["enough_ms"]
            side = "before" if row["removal"] == PAST else "after"
            text = "no removal is shown to change the score"
            if np.isnan(row["effect"]):
                text = f"no clip has sound from {first_delay:g} ms {side} the word on"
            elif np.isnan(row["last_ms"]):
                text = f"{row['effect']:.2f} nats lost from {first_delay:g} ms {side} the word on, not tested"
            elif not np.isnan(used):
                text = f"removal from {used:g} ms {side} the word on still changes the score"
            if not np.isnan(enough):
                share = 100 * float(self.provenance["share"])
                last = row["last_ms"]
                span = f"from {enough:g} to {last:g} ms" if last > enough else f"at {enough:g} ms"
                text += f"; {span}, less than {share:g} % of the loss is left"
            lines.append(f"{DESCRIPTIONS[row['removal']]}: {text}")
        if groups < FEWEST_GROUPS:
            lines.append(
                f"There are no intervals: they need {FEWEST_GROUPS} groups of clips, found {groups}"
            )
        return "\n".join([*lines, *filter(None, [self.provenance.get("grouping")])])

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the main curves; see `plots.look_ahead_figure`."""

        return look_ahead_panel(self, ax=ax)

    def show(self) -> Figure:
        """Draw all panels; see `plots.look_ahead_figure`."""

        return look_ahead_figure(self)

    def write(self, folder: str | Path) -> Path:
        """Write tables (CSV), provenance with the limits (JSON) and the figure into a folder."""
        from ...reporting.plots.figure_style import write_figure

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(self.table, folder / "look_ahead_by_clip.csv")
        write_csv(self.curves, folder / "look_ahead.csv")
        limits = json.loads(self.limits.to_json(orient="records"))
        skipped = [list(item) for item in self.skipped]
        write_json(
            folder / "look_ahead.json", {**self.provenance, "limits": limits, "skipped": skipped}
        )
        write_figure(self.show(), folder / "look_ahead.png", dpi=160)
        return folder


def look_ahead(
    model: Model,
    clips: Sequence[Clip],
    *,
    words: str = "target",
    share: float = 0.1,
    group: str | None = None,
    progress: bool = False,
    **options: Any,
) -> LookAhead:
    """Measure how many milliseconds after its end a word uses, by removing what comes later.

    Parameters
    ----------
    model : Model
        A speech model with its head.
    clips : sequence of Clip
        With word times. Words that cannot be used are skipped.
    words : {"target", "all"}
        The target of each clip, or all its words.
    share : float
        For ``enough_ms``: the share of the effect at the smallest delay that is negligible.
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    progress : bool
        Show a bar over clips.
    **options
        delays_ms, windows, chunks_ms, left_ms and score, as for `look_ahead_effects`.

    Returns
    -------
    LookAhead
        Intervals are over groups of clips: at 95 % for all curves of all layers together, and for all of
        single layers (Bonferroni), see `mean_intervals`.

    Raises
    ------
    InputError
        If an option is not possible, or no clip can be used.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> result = speechmix.look_ahead(model, bundled.clips()[:2], delays_ms=[0], windows=["all"])
    >>> len(result.curves), result.curves["removal"].unique().tolist()
    (5, ['word', 'prefix', 'past', 'cut', 'zeros'])
    """
    if words not in ("target", "all") or not 0 < share < 1:
        raise InputError(
            f"words should be 'target' or 'all', and share between 0 and 1; found words={words!r}, "
            f"share={share}"
        )
    rows, skipped = list[dict[str, Any]](), list[tuple[str, str]]()
    items = build_item_table(clips)
    groups, ties = assign_item_groups(items, clips, group) if clips else ((), "")
    bar = tqdm(clips, unit="clip", disable=not progress)
    for clip, name, group_name in zip(bar, items["clip"] if clips else (), groups, strict=True):
        for index in [clip.target] if words == "target" else range(len(clip.words or ())):
            foil = clip.foil if index == clip.target else None
            try:
                effects = look_ahead_effects(
                    model, clip.replace(target=index, foil=foil, cue=None), **options
                )
            except SpeechmixError as error:
                skipped.append((name, str(error)))
                continue
            keys = {"clip": name, "word": index, "group": group_name}
            rows += [keys | effect for effect in effects]
    if not rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(f"no clip can be used: {reasons or 'none was given'}")
    table = pd.DataFrame(rows).astype({"layer": "Int64"})
    curves = average_curves(table, share)
    provenance: JsonObject = {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        "clips": int(table["clip"].nunique()),
        "words": words,
        "share": share,
        "grouping": describe_groups(items.assign(group=groups), ties, names=table["clip"].unique()),
        **options,
    }
    return LookAhead(table, curves, find_limits(curves), tuple(skipped), provenance)


_LABELS = {
    "word": "attention from the word",
    "prefix": "attention from all earlier frames",
    "cut": "sound: cut off",
    "zeros": "sound: muted",
    "past": "control: as many earlier frames",
}
_STYLES = dict(
    zip(_LABELS, zip(LINE_COLORS[1:6], ("-", "-", "-", "-", "--"), strict=True), strict=True)
)
_DELAY_LABEL = "removed: what comes more than this many ms after the word"
_EFFECT_LABEL = "score lost (nats)"


def look_ahead_figure(result: LookAhead) -> Figure:
    """Draw the curves of a model, and maps of single layers where these were measured.

    Parameters
    ----------
    result : LookAhead

    Returns
    -------
    Figure
        Lines are intervals, 95 % together for all curves. In maps of layers a dot marks cells whose
        interval excludes zero; these are 95 % together for all layers.
    """
    curves = result.curves
    by_layer = curves[(curves["window"] == "1") & (curves["removal"] == "word")]
    stacks = list(by_layer["stack"].unique())
    figure = new_figure(5.0 + 2.7 * len(stacks), 3.7)
    axes = figure.subplots(
        1, 1 + len(stacks), squeeze=False, width_ratios=[1.5, *[1] * len(stacks)]
    )[0]
    look_ahead_panel(result, ax=axes[0])
    limit = max(1e-3, by_layer["effect"].abs().max()) if stacks else 0.0
    for axis, stack in zip(axes[1:], stacks, strict=True):
        _draw_layers(axis, by_layer[by_layer["stack"] == stack], stack, limit)
    figure.suptitle(f"{model_title(result.provenance)}: look-ahead", size=LABEL_SIZE + 1)
    return figure


def look_ahead_panel(result: LookAhead, *, ax: Axes | None = None) -> Axes:
    """Draw the curves of `look_ahead_figure` alone: attention of all layers, and sound."""
    curves = result.curves[
        (result.curves["window"] == "all") & (result.curves["removal"] != "chunk")
    ]
    ax = new_figure(5.4, 3.6).subplots() if ax is None else ax
    curves = curves[curves["stack"].isin([result.main_stack, "input"])]
    delays, handles = sorted(curves["ms"].unique()), []
    for index, (removal, curve) in enumerate(curves.groupby("removal", sort=False)):
        color, dash = _STYLES[str(removal)]
        positions = [delays.index(delay) + 0.11 * (index - 2) for delay in curve["ms"]]
        style: LineStyle = {"color": color, "linestyle": dash, "linewidth": 1.4}
        ax.plot(positions, curve["effect"], marker="o", markersize=2.5, **style)
        ax.vlines(positions, curve["low"], curve["high"], color=color, alpha=0.55, linewidth=1)
        handles.append(legend_line(label=_LABELS[str(removal)], **style))
    ax.axhline(0, color="0.4", linewidth=0.7)
    _label_delays(ax, delays)
    ax.set_xlabel(_DELAY_LABEL, size=LABEL_SIZE)
    ax.set_ylabel(_EFFECT_LABEL, size=LABEL_SIZE)
    style_curve_axis(ax)
    add_legend(ax, handles, columns=2, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return ax


def _label_delays(ax: Axes, delays: Sequence[float]) -> None:
    ax.set_xticks(range(len(delays)), [f"{delay:g}" for delay in delays], rotation=60)


def _draw_layers(ax: Axes, rows: pd.DataFrame, stack: str, limit: float) -> None:
    """Draw effects as a map [layers, delays]."""
    effects, low, high = (
        rows.pivot(index="layer", columns="ms", values=name).to_numpy(float)
        for name in ("effect", "low", "high")
    )
    image = ax.imshow(effects, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    layers, columns = np.nonzero((low > 0) | (high < 0))
    ax.scatter(columns, layers, s=5, color="black")
    _label_delays(ax, sorted(rows["ms"].unique()))
    ax.set_yticks(range(len(effects)))
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_xlabel("ms after the word", size=LABEL_SIZE)
    ax.set_ylabel("layer (counted from 0)", size=LABEL_SIZE)
    ax.set_title(f"{stack}, one layer (dot: interval excludes 0)", size=TICK_SIZE)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02)
    bar.set_label(_EFFECT_LABEL, size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
