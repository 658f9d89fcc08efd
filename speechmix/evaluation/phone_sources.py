"""What the states of phones are made of, layer by layer: the phone itself, its neighbours, the rest
of its word, other words.

In: a speech model, clips with phones and words, untrained twins. Out: `PhoneSources`, averages of
`phone_shares` beside those of the twins, which have the same phones: what follows from lengths and
positions alone is in them, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ..adapters.model import Model
from ..errors import InputError, MissingExtraError, SpeechmixError
from ..files.json_files import JsonObject
from ..inputs.clips.clip import Clip
from ..inputs.words.phone_classes import phone_class
from ..inputs.words.unit_tiers import PHONE
from ..mixing.passes.mix import mix_one
from .phone_shares import SOURCES, phone_shares
from .statistics.grouped_means import grouped_means
from .statistics.groups import assign_groups, build_item_table
from .statistics.intervals import mean_interval
from .statistics.random_twin_comparison import STRENGTH, compare_with_twins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHONE_COLUMNS = ("phone", "phone_class", "position", "role")


@dataclass(frozen=True, eq=False)
class PhoneSources:
    """Sources of the states of phones, in a model and its untrained twins.

    Parameters
    ----------
    table : DataFrame
        A row for each clip, phone, layer and model: what `phone_shares` returns, with group, the
        columns of `by`, init ("trained" for the model, "random" for its twins) and seed (number of
        the twin). A second clip of the same name has "(2)" added.
    shares : DataFrame
        For each level of `by`, layer and source: share (mean over groups of clips, %) with low, high
        (95 %); groups, clips, phones; mixing_strength; and beside the twins random, twins, twin_low,
        twin_high, difference, difference_low, difference_high, p, claim, as in `compare_with_twins`.
    by : tuple of str
    skipped : tuple of (str, str)
        Clips that cannot be used, and why.
    provenance : dict
    """

    table: pd.DataFrame
    shares: pd.DataFrame
    by: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    provenance: JsonObject

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the shares."""
        return self.shares.copy()

    def plot(self, *, level: str | tuple[str, ...] | None = None, ax: Axes | None = None) -> Axes:
        """Draw the shares of one level of `by` over layers; see `plots.phone_sources_figure`."""
        from ..reporting.plots.phone_sources_figure import phone_sources_panel

        return phone_sources_panel(self, level=level, ax=ax)

    def show(self) -> Figure:
        """Draw a panel for each level; see `plots.phone_sources_figure`."""
        from ..reporting.plots.phone_sources_figure import phone_sources_figure

        return phone_sources_figure(self)


def phone_sources(
    model: Model,
    clips: Sequence[Clip],
    *,
    twins: Sequence[Model] = (),
    by: str | Sequence[str] = "phone_class",
    where: Mapping[str, str] | None = None,
    measure: str = "value_zeroing",
    progress: bool = False,
    **options: Any,
) -> PhoneSources:
    """Measure what the states of phones are made of, and compare it with untrained twins.

    Parameters
    ----------
    model : Model
        A speech model; its encoder is measured.
    clips : sequence of Clip
        With words and phones (``clip.tiers["phone"]``).
    twins : sequence of Model
        ``speechmix.load(..., init="random", seed=...)``. Something can be claimed from 39 on.
    by : str or sequence of str
        What shares are averaged over: "phone_class" (extra `phones`), "position" (in the word),
        "role" (in the clip's target or cue), "phone", or a column of ``clip.meta``, such as the
        condition of a design; ``()`` for all phones together.
    where : mapping of str to str, optional
        Only these phones: ``{"role": "target", "position": "final"}`` is the last phone of each
        target. Names as for `by`.
    measure : str
        A measure of layers; of others there is no map between phones.
    progress : bool
        Show a bar over clips and models.
    **options
        Further options of `speechmix.mix`: layers, distance, pooling, ...

    Returns
    -------
    PhoneSources
        A clip counts by the mean over its phones, and clips that share a pair, a text or a target
        word count as one: an item that is there twice adds nothing. With twins, one test is made
        over all levels, layers and sources, corrected for their number.

    Raises
    ------
    InputError
        If no clip can be used, or `by` names something that no clip has.
    MissingExtraError
        If classes are needed and PanPhon is not installed.

    Examples
    --------
    >>> import speechmix
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> from speechmix.inputs import bundled
    >>> clip = bundled.clips()[0]
    >>> phones = [("n", .23, .3), ("o", .3, .4), ("m", .55, .6), ("ɛ", .6, .7), ("z", .7, .8), ("ɔ̃", .8, .9)]
    >>> result = phone_sources(model, [clip.replace(tiers={"phone": phones})], by="position", layers=[0])
    >>> result.shares.groupby("position")["share"].sum().round(3).to_dict()
    {'final': 100.0, 'initial': 100.0, 'medial': 100.0}
    """
    by = (by,) if isinstance(by, str) else tuple(by)
    items = build_item_table(clips)
    if len(items):  # a recording that is there twice is one group, whatever else is known of it
        items["pair"] = [clip.meta.get("pair") or clip.audio_hash for clip in clips]
    groups = assign_groups(items)[0] if clips else ()
    tables, skipped = list[pd.DataFrame](), list[tuple[str, str]]()
    bar = tqdm(clips, unit="clip", disable=not progress)
    for clip, name, group in zip(bar, items["clip"] if clips else (), groups, strict=True):
        try:
            levels = _clip_levels(clip, [*by, *(where or ())])
            clip_tables = [
                _measure_clip(each, clip, levels, where or {}, measure, options).assign(
                    init="random" if number else "trained", seed=number - 1 if number else None
                )
                for number, each in enumerate((model, *twins))
            ]
        except MissingExtraError:
            raise
        except SpeechmixError as error:
            skipped.append((name, str(error)))
            continue
        tables += [table.assign(clip=name, group=group) for table in clip_tables]
    if not tables:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(f"no clip can be used: {reasons or 'none was given'}")
    table = pd.concat(tables, ignore_index=True)
    provenance: JsonObject = {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        "twins": len(twins),
        "clips": int(table["clip"].nunique()),
        "measure": measure,
        "where": dict(where or {}),
        **options,
    }
    return PhoneSources(table, _average(table, by), by, tuple(skipped), provenance)


def _measure_clip(
    model: Model,
    clip: Clip,
    levels: Mapping[str, str | None],
    where: Mapping[str, str],
    measure: str,
    options: dict[str, Any],
) -> pd.DataFrame:
    """Return the phones of a clip and their shares, with the columns that levels are made of."""
    if not clip.tiers.get(PHONE):
        raise InputError(
            f"clip {clip.name!r} has no phones: give tiers={{'phone': ...}}, or align it with "
            "speechmix.align(clip, tiers=['word', 'phone'])"
        )
    maps = mix_one(model, clip, units=PHONE, measures=measure, stacks="encoder", **options)
    table = phone_shares(next(iter(maps.values())), clip)
    for name, level in levels.items():
        if level is not None:
            table[name] = level
    if "phone_class" in levels:
        labels = zip(table["phone"], table["start"], strict=True)
        table["phone_class"] = [
            phone_class(label, where=f"clip {clip.name!r}, {start:.2f} s")
            for label, start in labels
        ]
    for name, value in where.items():
        table = table[table[name] == value]
    if table.empty:
        raise InputError(f"clip {clip.name!r} has no phone with {dict(where)}")
    return table


def _clip_levels(clip: Clip, names: Sequence[str]) -> dict[str, str | None]:
    """Values of the columns that levels are made of, None for those of phones."""
    columns: dict[str, str | None] = {**clip.meta, **dict.fromkeys(PHONE_COLUMNS)}
    if missing := [name for name in names if name not in columns]:
        raise InputError(f"no column {missing[0]!r}: expected some of {', '.join(columns)}")
    return {name: columns[name] for name in names}


def _average(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Average over phones of a clip, clips of a group, and groups; compare with the twins."""
    cells = [*by, "layer", "source"]
    columns = [*by, "layer", "init", "seed", "clip", "group", STRENGTH]
    long = table.melt(columns, list(SOURCES), var_name="source", value_name="contribution")
    long["contribution"] *= 100
    compared = compare_with_twins(long, by=cells, group="group")
    compared = compared.rename(columns={"low": "difference_low", "high": "difference_high"})
    trained = long[long["init"] == "trained"]
    by_clip = grouped_means(trained, [*cells, "clip", "group"], "contribution")
    by_group = grouped_means(by_clip, [*cells, "group"], "contribution")
    phones = trained.groupby(cells, sort=False).size().to_dict()
    rows = []
    for key, values in by_group.groupby(cells, sort=False)["contribution"]:
        ordered = np.sort(values.to_numpy())  # the order of clips must not matter
        low, high = mean_interval(ordered, bounds=(0.0, 100.0))
        row = {"share": ordered.mean(), "low": low, "high": high, "phones": phones[key]}
        rows.append({**dict(zip(cells, key, strict=True)), **row})
    shares = pd.DataFrame(rows).merge(
        compared.drop(columns=["trained", "effect", "positive"]), on=cells, how="left"
    )
    order = pd.Categorical(shares["source"], SOURCES, ordered=True)
    return (
        shares.assign(source=order)
        .sort_values([*by, "layer", "source"], ignore_index=True)
        .astype({"source": str})
    )
