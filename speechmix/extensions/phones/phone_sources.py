"""What the states of phones are made of, layer by layer: the phone itself, its neighbours, the rest
of its word, other words.

In: a speech model, clips with phones and words, untrained twins. Out: `PhoneSources`, averages of
`phone_shares` beside those of the twins, which have the same phones: what follows from lengths and
positions alone is in them, too.

Shares of a map between phones, by where they come from.

In: a map between the phones of a clip, and the clip. Out: a table with a row for each layer and
phone. With S the map, rows summing to one, the shares of phone i are

    self         S[i, i]
    previous     S[i, i - 1], also if that phone is in another word
    next         S[i, i + 1], likewise
    same_word    the other phones of its word
    other_words  all others

They add up to one. The first phone of a clip has no previous one: its share is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...adapters.model import Model
from ...errors import InputError, MissingExtraError, SpeechmixError
from ...evaluation.statistics.grouped_means import grouped_means
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    content_key,
    describe_groups,
)
from ...evaluation.statistics.intervals import mean_interval
from ...evaluation.statistics.random_twin_comparison import (
    STRENGTH,
    compare_with_twins,
    whole_stack,
)
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.phone_labels import phone_class
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, unit_owners
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSITIONS = ("initial", "medial", "final", "single", "")  # in a word; "" outside words
SOURCES = ("self", "previous", "next", "same_word", "other_words")


def phone_shares(mixing_map: MixingMap, clip: Clip) -> pd.DataFrame:
    """Sum the shares of a map between phones by where they come from.

    Parameters
    ----------
    mixing_map : MixingMap
        Of an encoder, ``units="phone"``.
    clip : Clip
        The same clip, with words.

    Returns
    -------
    DataFrame
        A row for each layer and phone: layer, index, phone, start, seconds, word (index), position
        ("initial", "medial", "final", "single" in its word, "" outside words), role ("target",
        "cue" or ""), mixing_strength, and a column for each of `SOURCES`, which add up to one.

    Raises
    ------
    InputError
        If the map's targets and sources are not the same phones, or the clip has no words.

    Examples
    --------
    >>> from speechmix import Span
    >>> units = [Span(i, i + 1, phone, onset=i / 10, offset=(i + 1) / 10) for i, phone in enumerate("lama")]
    >>> mixing_map = MixingMap(np.ones((1, 4, 4)), tuple(units), tuple(units), "attention", "encoder", (0,))
    >>> clip = Clip.from_array(np.zeros(6400), 16_000, words=[("la", 0, 0.2), ("ma", 0.2, 0.4)])
    >>> phone_shares(mixing_map, clip)[["phone", "position", "previous", "same_word", "other_words"]].to_dict("records")[1]
    {'phone': 'a', 'position': 'final', 'previous': 0.25, 'same_word': 0.0, 'other_words': 0.25}
    """
    phones_map = mixing_map.without("silence", "padding").mean_heads().normalized()
    spans = phones_map.targets
    if spans != phones_map.sources or any(span.onset is None for span in spans):
        raise InputError(f"expected a map between the phones of a clip, found {mixing_map!r}")
    if not clip.spoken_words:
        raise InputError(f"clip {clip.name!r} has phones, but no words: give words= or align it")
    phones = [Word(span.label, span.onset or 0.0, span.offset or 0.0) for span in spans]
    owners = unit_owners(phones, clip.spoken_words)
    shares = _sum_sources(phones_map.scores, owners)
    strength = phones_map.mixing_strength
    strength = np.full(shares.shape[:2], np.nan) if strength is None else strength
    columns = {
        "index": range(len(phones)),
        "phone": [phone.text for phone in phones],
        "start": [phone.start for phone in phones],
        "seconds": [phone.seconds for phone in phones],
        "word": owners,
        "position": _word_positions(owners),
        "role": _list_roles(clip, owners),
    }
    layers = phones_map.layers
    table = pd.DataFrame({name: [*values] * len(layers) for name, values in columns.items()})
    table.insert(0, "layer", np.repeat(layers, len(phones)))
    table["word"] = table["word"].astype("Int64")
    table[STRENGTH] = strength.ravel()
    table[list(SOURCES)] = shares.reshape(-1, len(SOURCES))
    return table


def _sum_sources(scores: np.ndarray, owners: Sequence[int | None]) -> np.ndarray:
    """Sum scores [L, P, P] to [L, P, sources]; each source phone counts in one of them."""
    offsets = np.arange(len(owners)) - np.arange(len(owners))[:, None]
    words = np.array([-1 - index if owner is None else owner for index, owner in enumerate(owners)])
    kind = np.where(
        words == words[:, None], SOURCES.index("same_word"), SOURCES.index("other_words")
    )
    for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
        kind[offsets == offset] = SOURCES.index(name)
    sums = [np.where(kind == index, scores, 0).sum(axis=-1) for index in range(len(SOURCES))]
    return np.stack(sums, axis=-1)


def _word_positions(owners: Sequence[int | None]) -> list[str]:
    """Return where in its word each phone is, one of `POSITIONS`."""
    positions = []
    for index, owner in enumerate(owners):
        is_first, is_last = owner not in owners[:index], owner not in owners[index + 1 :]
        name = "single" if is_first and is_last else "initial" if is_first else "medial"
        positions.append("" if owner is None else "final" if is_last and not is_first else name)
    return positions


def _list_roles(clip: Clip, owners: Sequence[int | None]) -> list[str]:
    """Return "target" or "cue" for each phone that is it, or part of that word; else ""."""
    roles = [""] * len(owners)
    for role, words in (("cue", clip.cue_words), ("target", (clip.target,))):
        unit_role = clip.unit_roles.get(role)
        phones = unit_role.indices if unit_role is not None and unit_role.unit == PHONE else ()
        for index, owner in enumerate(owners):
            if index in phones or (owner is not None and owner in words):
                roles[index] = role
    return roles


PHONE_COLUMNS = ("phone", "phone_class", "position", "role")


@dataclass(frozen=True, eq=False)
class PhoneSources:
    """Sources of the states of phones, in a model and its untrained twins.

    Parameters
    ----------
    table : DataFrame
        A row for each clip, phone, layer and model: what `phone_shares` returns, with group, the
        clip's metadata, init ("trained" for the model, "random" for its twins) and seed (number of
        the twin). A second clip of the same name has "(2)" added.
    shares : DataFrame
        For each level of `by`, layer and source: share (mean over groups of clips, %) with low, high
        (95 %); groups, clips, phones; mixing_strength; and beside the twins random, twins, twin_low,
        twin_high, difference, difference_low, difference_high, claim, as in `compare_with_twins`.
        Layer `WHOLE_STACK` (-1) is the whole encoder, and what may be claimed.
    by : tuple of str
    skipped : tuple of (str, str)
        Clips that cannot be used, and why.
    provenance : dict
        With grouping: how many groups and speakers there are, in a sentence.
    """

    table: pd.DataFrame
    shares: pd.DataFrame
    by: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    provenance: JsonObject

    def average(
        self, *, by: str | Sequence[str] = (), where: Mapping[str, str] | None = None
    ) -> PhoneSources:
        """Average the same phones otherwise; arguments and errors as for `phone_sources`. No model runs
        again."""
        by, where = (by,) if isinstance(by, str) else tuple(by), dict(where or {})
        skipped = [each for each in self.skipped if each[0] not in set(self.table["clip"])]
        tables = list[pd.DataFrame]()
        for name, rows in self.table.groupby("clip", sort=False):
            try:
                tables.append(_select_phones(rows, [*by, *where], where))
            except MissingExtraError:
                raise
            except SpeechmixError as error:
                skipped.append((str(name), str(error)))
        shares = _average(_join_tables(tables, skipped), by)
        provenance = {**self.provenance, "clips": len(tables), "where": where}
        return replace(self, shares=shares, by=by, skipped=tuple(skipped), provenance=provenance)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the shares."""
        return self.shares.copy()

    def __repr__(self) -> str:
        facts = self.provenance
        text = f"{facts.get('model')}: by {', '.join(self.by) or 'nothing'}, {facts.get('twins')} twins"
        return f"PhoneSources({text}; {facts.get('grouping')})"

    def plot(self, *, level: str | tuple[str, ...] | None = None, ax: Axes | None = None) -> Axes:
        """Draw the shares of one level of `by` over layers; see `plots.phone_sources_figure`."""
        from .phone_sources_figure import phone_sources_panel

        return phone_sources_panel(self, level=level, ax=ax)

    def show(self) -> Figure:
        """Draw a panel for each level; see `plots.phone_sources_figure`."""
        from .phone_sources_figure import phone_sources_figure

        return phone_sources_figure(self)


def phone_sources(
    model: Model,
    clips: Sequence[Clip],
    *,
    twins: Sequence[Model] = (),
    by: str | Sequence[str] = "phone_class",
    where: Mapping[str, str] | None = None,
    measure: str = "value_zeroing",
    group: str | None = None,
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
        ``speechmix.load(..., init="random", seed=...)``. Nothing is claimed of fewer than
        five.
    by : str or sequence of str
        What shares are averaged over: "phone_class" (extra `phones`), "position" (in the word),
        "role" (in the clip's target or cue), "phone", or a column of ``clip.meta``, such as the
        condition of a design; ``()`` for all phones together.
    where : mapping of str to str, optional
        Only these phones: ``{"role": "target", "position": "final"}`` is the last phone of each
        target. Names as for `by`. The others are measured too, for `PhoneSources.average`.
    measure : str
        A measure of layers; of others there is no map between phones.
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    progress : bool
        Show a bar over clips and models.
    **options
        Further options of `speechmix.mix`: layers, distance, pooling, ...

    Returns
    -------
    PhoneSources
        A clip counts by the mean over its phones, and clips of one group count as one: an item that
        is there twice adds nothing. With twins, one test is made over all levels, layers and
        sources, corrected for their number.

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
    >>> layer = result.shares[result.shares["layer"] == 0]
    >>> layer.groupby("position")["share"].sum().round(3).to_dict()
    {'final': 100.0, 'initial': 100.0, 'medial': 100.0}
    """
    names = [*([by] if isinstance(by, str) else by), *(where or ())]
    items = build_item_table(clips)
    if len(items):  # a recording that is there twice is one group, whatever else is known of it
        items["pair"] = [
            clip.meta.get("pair") or content_key(clip, name)
            for clip, name in zip(clips, items["clip"], strict=True)
        ]
    groups, ties = assign_item_groups(items, clips, group) if clips else ((), "")
    tables, skipped = list[pd.DataFrame](), list[tuple[str, str]]()
    bar = tqdm(clips, unit="clip", disable=not progress)
    for clip, name, group_name in zip(bar, items["clip"] if clips else (), groups, strict=True):
        try:
            _check_clip(clip, names)
            clip_tables = [
                _measure_clip(each, clip, measure, options).assign(
                    init="random" if number else "trained", seed=number - 1 if number else None
                )
                for number, each in enumerate((model, *twins))
            ]
        except MissingExtraError:
            raise
        except SpeechmixError as error:
            skipped.append((name, str(error)))
            continue
        tables += [table.assign(clip=name, group=group_name) for table in clip_tables]
    provenance: JsonObject = {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        "twins": len(twins),
        "measure": measure,
        **options,
    }
    table = _join_tables(tables, skipped)
    used = table["clip"].unique()
    provenance["grouping"] = describe_groups(items.assign(group=groups), ties, names=used)
    result = PhoneSources(table, pd.DataFrame(), (), tuple(skipped), provenance)
    return result.average(by=by, where=where)


def _check_clip(clip: Clip, names: Sequence[str]) -> None:
    """Refuse a clip that lacks phones, a column or a class, before models run."""
    if not clip.tiers.get(PHONE):
        raise InputError(
            f"clip {clip.name!r} has no phones: give tiers={{'phone': ...}}, or align it with "
            "speechmix.align(clip, tiers=['word', 'phone'])"
        )
    columns = [*clip.meta, *PHONE_COLUMNS]
    if missing := [name for name in names if name not in columns]:
        raise InputError(f"no column {missing[0]!r}: expected some of {', '.join(columns)}")
    if "phone_class" in names:
        phones = clip.tiers[PHONE]
        _classify([phone.text for phone in phones], [phone.start for phone in phones], clip.name)


def _measure_clip(model: Model, clip: Clip, measure: str, options: dict[str, Any]) -> pd.DataFrame:
    """Return the phones of a clip and their shares, with the clip's metadata."""
    maps = mix_one(model, clip, units=PHONE, measures=measure, stacks="encoder", **options)
    table = phone_shares(next(iter(maps.values())), clip)
    return table.assign(**{name: cell for name, cell in clip.meta.items() if name not in table})


def _join_tables(
    tables: Sequence[pd.DataFrame], skipped: Sequence[tuple[str, str]]
) -> pd.DataFrame:
    if not tables:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(f"no clip can be used: {reasons or 'none was given'}")
    return pd.concat(tables, ignore_index=True)


def _select_phones(
    rows: pd.DataFrame, names: Sequence[str], where: Mapping[str, str]
) -> pd.DataFrame:
    """Return the phones of a clip that are to be averaged, with the columns of these names."""
    clip = rows["clip"].iloc[0]
    if "phone_class" in names:
        rows = rows.assign(phone_class=_classify(rows["phone"], rows["start"], clip))
    if missing := [name for name in names if name not in rows or rows[name].isna().any()]:
        columns = ", ".join([*PHONE_COLUMNS, *rows.columns[rows.notna().all()]])
        raise InputError(f"no column {missing[0]!r}: expected some of {columns}")
    for name, value in where.items():
        rows = rows[rows[name] == value]
    if rows.empty:
        raise InputError(f"clip {clip!r} has no phone with {dict(where)}")
    return rows


def _classify(labels: Iterable[str], starts: Iterable[float], clip: str) -> list[str]:
    """Return the classes of a clip's phones; an error names the clip and the time."""
    return [
        phone_class(label, where=f"clip {clip!r}, {start:.2f} s")
        for label, start in zip(labels, starts, strict=True)
    ]


def _average(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Average over phones of a clip, clips of a group, and groups; compare with the twins."""
    cells = [*by, "layer", "source"]
    columns = [*by, "layer", "init", "seed", "clip", "group", STRENGTH]
    long = table.melt(columns, list(SOURCES), var_name="source", value_name="contribution")
    long["contribution"] *= 100
    long = pd.concat([long, whole_stack(long)], ignore_index=True)
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
        compared.drop(columns=["trained", "twin_sd", "group_sd", "rows"]), on=cells, how="left"
    )
    return shares.sort_values([*by, "layer", "source"], key=_sort_keys, ignore_index=True)


def _sort_keys(column: pd.Series) -> pd.Series:
    """Return what a column is sorted by: positions in time, sources from near to far."""
    order = {"position": POSITIONS, "source": SOURCES}.get(str(column.name), ())
    return column.map({label: index for index, label in enumerate(order)}) if order else column
