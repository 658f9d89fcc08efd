"""Features of words, phones and frames: pitch, formants, intensity, duration, position, articulation.

In: a table of units (`UnitStates.units`) and their clips. Out: the table with a column for each feature.
Tracks (pitch, formants) are sampled every few milliseconds; a unit has the median of the samples in
it. Values that exist nowhere here (surprisal, measurements) come from a table of the user's. Another
feature is one entry of `UNIT_FEATURES`.

Covariates of words, syllables and phones, as columns of a long table of results.

In: a table whose rows are of units (maps, cue contributions, explanations, interventions), and its clips or sentences. Out: the
table with a column for each covariate and side (``target_frequency``). Another covariate is one function and one entry of
`COVARIATES` or `ITEM_COVARIATES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from ...errors import InputError, MissingExtraError
from ...evaluation.statistics.groups import SPEAKER_COLUMNS, build_item_table
from ...inputs.audio.spectrograms import track_formants
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import cue_text, cue_words, normalize_word
from ...inputs.words.phone_labels import articulatory_features, phone_class
from ...inputs.words.spans import written_label
from ...inputs.words.unit_tiers import PHONE, unit_owners

Item: TypeAlias = Clip | Sentence
WORD, ROLES = "word", ("cue", "target")
_TIME_TOLERANCE = 0.002  # seconds: tables may have rounded times
# Columns that say which unit a row is of, by the prefix of its covariates.
_KEYS = ("label", "onset", "kind", "order", "word")
_COLUMNS = {
    f"{side}_": (f"{side}_label", f"{side}_onset", f"{side}_kind", side)
    for side in ("target", "source")
} | {"": _KEYS}


class UnitOccurrence(NamedTuple):
    """One unit where it occurs in a clip: `indices` into `tier`, several if words are one cue."""

    item: Item
    kind: str  # "word", "syllable" or "phone"
    tier: Sequence[Any]
    indices: tuple[int, ...]
    label: str


def _frequency(unit: UnitOccurrence) -> float | None:
    if unit.kind != WORD or not any(map(str.isalpha, unit.label)):
        return None
    try:
        from wordfreq import zipf_frequency
    except ImportError as error:
        raise MissingExtraError("wordfreq", "statistics", "the covariate 'frequency'") from error
    language = getattr(unit.item, "language", None) or unit.item.meta.get("language")
    if not language:
        raise InputError(
            f"{unit.item.name!r} has no language: use clip.replace(language=...), or meta={{'language': ...}}"
        )
    try:
        return float(zipf_frequency(normalize_word(unit.label), language)) or None
    except (LookupError, ModuleNotFoundError) as error:
        raise InputError(f"no word frequencies in language {language!r}: {error}") from error


def _phones(unit: UnitOccurrence) -> int | None:
    if unit.kind == PHONE or PHONE not in _tiers(unit.item):
        return None
    owners = unit_owners(_tiers(unit.item)[PHONE], unit.tier)
    return sum(owner in unit.indices for owner in owners)


def _phone_class(unit: UnitOccurrence) -> str | None:
    return phone_class(unit.label, where=f"clip {unit.item.name!r}") if unit.kind == PHONE else None


# Functions of a `UnitOccurrence`, and of a clip or sentence; None where there is no value.
COVARIATES = {
    "frequency": _frequency,
    "letters": lambda unit: sum(map(str.isalpha, unit.label)) if unit.kind == WORD else None,
    "phones": _phones,
    "duration": lambda unit: sum(getattr(unit.tier[i], "seconds", 0) for i in unit.indices) or None,
    "position": lambda unit: min(unit.indices),
    "position_from_end": lambda unit: len(unit.tier) - 1 - max(unit.indices),
    "phone_class": _phone_class,
}
ITEM_COVARIATES = {
    "speaker": lambda item: next(filter(None, map(item.meta.get, SPEAKER_COLUMNS)), None)
}


def add_covariates(
    table: pd.DataFrame, clips: Item | Iterable[Item], covariates: Sequence[str] | None = None
) -> pd.DataFrame:
    """Add covariates of words, syllables and phones to a long table of results.

    Parameters
    ----------
    table : DataFrame
        The clip's name is in ``clip`` or ``item`` (not needed for one clip), the units in ``target_label`` and ``source_label``
        (maps), ``cue`` and ``target`` (cue contributions), ``label`` or ``word`` (explanations, interventions).
    clips : Clip, Sentence, or iterable of these
        Those that the table was computed from.
    covariates : sequence of str, optional
        By default all that have a value in some row: frequency (of the spelling, Zipf scale of `wordfreq`: log10 of occurrences
        in 10^9 words), letters, phones (their number), duration (seconds), position and position_from_end (from 0, among the
        clip's words or phones), phone_class, speaker (of the clip's ``meta``).

    Returns
    -------
    DataFrame
        A copy with further columns: ``target_frequency``, and so on. Columns that the table has stay as they are. Values are
        missing for what is no word, syllable or phone of the clip.

    Raises
    ------
    InputError
        For an unknown covariate, clips of one name, and rows of other clips or words.
    MissingExtraError
        If `wordfreq` (extra `statistics`) is not installed.

    Examples
    --------
    >>> import speechmix
    >>> sentence = speechmix.Sentence("the cats sleep", meta={"language": "en"})
    >>> table = pd.DataFrame({"word": [0, 1], "drop": [0.1, 2.5]})
    >>> add_covariates(table, sentence, ["frequency", "letters", "position_from_end"]).values.tolist()
    [[0.0, 0.1, 7.73, 3.0, 2.0], [1.0, 2.5, 4.46, 4.0, 1.0]]
    """
    unknown = sorted(set(covariates or ()) - COVARIATES.keys() - ITEM_COVARIATES.keys())
    if unknown:
        names = ", ".join([*COVARIATES, *ITEM_COVARIATES])
        raise InputError(f"there is no covariate {unknown[0]!r}: choose from {names}")
    item_of_row, items = _match_items(table, clips)
    sides: list[tuple[str, Mapping[str, Any], Any, list[Any]]]
    sides = [("", ITEM_COVARIATES, item_of_row, items)]
    for prefix, keys in _unit_keys(table, item_of_row).items():
        units = [_find_unit(key, items) for key in keys.drop_duplicates().itertuples()]
        unit_of_row = keys.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy()
        sides.append((prefix, COVARIATES, unit_of_row, units))
    if not any(any(units) for _, _, _, units in sides[1:]):
        raise InputError(
            "no label of the table is a word, syllable or phone of the clips: give the clips that it was computed from, and a "
            "table with target_label, cue, label or word"
        )
    result = table.copy()
    for prefix, functions, argument_of_row, arguments in sides:
        for name in [name for name in functions if name in (covariates or functions)]:
            values = [argument and functions[name](argument) for argument in arguments]
            if prefix + name not in table and (covariates or any(v is not None for v in values)):
                column = pd.Series(values, dtype=object).infer_objects()
                result[prefix + name] = column.to_numpy()[argument_of_row]
    return result


def _match_items(table: pd.DataFrame, clips: Any) -> tuple[np.ndarray, list[Item]]:
    """Return the clips, and for each row which of them it is of."""
    items = [clips] if isinstance(clips, Clip | Sentence) else list(clips)
    names = pd.Index([str(item.name) for item in items])
    if names.has_duplicates:
        name = names[names.duplicated()][0]
        raise InputError(f"two clips are called {name!r}: rename one with clip.with_name(...)")
    column = next((name for name in ("clip", "item") if name in table), None)
    if column is None and len(items) != 1:
        raise InputError(f"the table has no column 'clip', and there are {len(items)} clips")
    row_names = pd.Series([*names] * len(table)) if column is None else table[column].astype(str)
    rows = names.get_indexer(pd.Index(row_names))
    if (rows < 0).any():
        raise InputError(f"clip {row_names[rows < 0].iloc[0]!r} of the table is not among clips")
    return rows, items


def _unit_keys(table: pd.DataFrame, item_of_row: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return what tells the units of each side apart; among them the rank of units of one label."""
    named = [role for role in ROLES if role in table and not is_numeric_dtype(table[role])]
    result, roles = {}, {f"{role}_": (role,) for role in named}
    for prefix, columns in (_COLUMNS | roles).items():
        keys = pd.DataFrame({"item": item_of_row, "label": None, "onset": np.nan, "kind": None})
        keys = keys.assign(order=0, word=-1, stack=np.asarray(table.get("stack", "")))
        if prefix in roles:
            keys["kind"] = prefix.removesuffix("_")
        for key, column in zip(_KEYS, columns, strict=False):
            if column in table:
                keys[key] = table[column].to_numpy()
        keys["rank"] = keys.groupby(["item", "stack", "label"])["order"].rank("dense")
        if keys["label"].notna().any() or (keys["word"] >= 0).any():
            result[prefix] = keys
    return result


def _find_unit(key: Any, items: Sequence[Item]) -> UnitOccurrence | None:
    """Find a unit by role or index, else by label with onset or rank; None for other kinds."""
    item = items[key.item]
    words = item.words or ()
    label = written_label(key.label) if isinstance(key.label, str) else key.label
    if (key.kind in ROLES and label) or key.word >= 0:
        index = getattr(item, key.kind) if key.kind in ROLES else int(key.word)
        indices = cue_words(index) if key.word < len(words) else ()
        text = cue_text(words, indices)
        if not indices or text != (label or text):
            raise InputError(
                f"{item.name!r} lacks the {key.kind or 'word'} {label or index!r} of the table: "
                "give the clips that the table was computed from"
            )
        return UnitOccurrence(item, WORD, words, indices, text)
    for kind, tier in _tiers(item).items():
        same = [index for index, unit in enumerate(tier) if unit.text == label]
        if key.onset == key.onset:  # it has one
            starts = {index: getattr(tier[index], "start", np.nan) for index in same}
            same = [i for i in same if abs(starts[i] - key.onset) < _TIME_TOLERANCE]
        elif key.rank == key.rank:
            same = same[int(key.rank) - 1 : int(key.rank)]
        if key.kind in (kind, None) and len(same) == 1:
            return UnitOccurrence(item, kind, tier, (same[0],), tier[same[0]].text)
    return None


def _tiers(item: Item) -> Mapping[str, Sequence[Any]]:
    """Units of a clip or sentence by kind, words first."""
    return {WORD: item.words or (), **getattr(item, "tiers", {})}


_RATE, _HOP, _WINDOW = 16_000, 160, 1024  # samples of the pitch track: 10 ms, and 64 ms
_PITCH_HZ = (60.0, 500.0)
_FORMANTS = ("f1", "f2", "f3")
_FEATURE_NAMES = (  # of PanPhon
    "syl son cons cont delrel lat nas strid voi sg cg ant cor distr lab hi lo back round velaric "
    "tense long hitone hireg"
).split()
Columns = dict[str, np.ndarray]


def _pitch(clip: Clip, units: pd.DataFrame) -> Columns:
    from librosa import pyin

    low, high = _PITCH_HZ
    pitch, _, _ = pyin(
        clip.audio(_RATE), fmin=low, fmax=high, sr=_RATE, frame_length=_WINDOW, hop_length=_HOP
    )
    return {"pitch": _medians(np.arange(len(pitch)) * _HOP / _RATE, pitch, units)}


def _formants(clip: Clip, units: pd.DataFrame) -> Columns:
    times, formants = track_formants(clip.audio(_RATE), _RATE)
    return {name: _medians(times, formants[:, i], units) for i, name in enumerate(_FORMANTS)}


def _intensity(clip: Clip, units: pd.DataFrame) -> Columns:
    samples = clip.audio(_RATE).astype(float)
    edges = zip(units["start"] * _RATE, units["end"] * _RATE, strict=True)
    power = [np.mean(samples[round(a) : max(round(b), round(a) + 1)] ** 2) for a, b in edges]
    return {"intensity": 10 * np.log10(np.maximum(power, 1e-10))}


def _articulation(clip: Clip, units: pd.DataFrame) -> Columns:
    if PHONE not in clip.tiers:
        raise InputError(
            f"{clip.name} has no phones: give tiers={{'phone': ...}}, or speechmix.align(clip, tiers=['word', 'phone'])"
        )
    middle = ((units["start"] + units["end"]) / 2).to_numpy()
    feature_values = np.full((len(units), len(_FEATURE_NAMES)), np.nan)
    for phone in clip.tiers[PHONE]:
        is_inside = (phone.start <= middle) & (middle < phone.end)
        if is_inside.any():
            where = f"clip {clip.name!r}, {phone.start:.2f} s"
            features = articulatory_features(phone.text, where=where)
            feature_values[is_inside] = [features[name] for name in _FEATURE_NAMES]
    return dict(zip(_FEATURE_NAMES, feature_values.T, strict=True))


def _place(clip: Item, units: pd.DataFrame) -> Columns:
    index = units["index"].to_numpy(float)
    last = index.max()
    return {
        "duration": (units["end"] - units["start"]).to_numpy(),
        "position": index,
        "position_from_end": last - index,
        "relative_position": index / max(last, 1),
    }


# Name of each feature -> the function that computes it, from a clip and the rows of its units.
UNIT_FEATURES: dict[str, Callable[..., Columns]] = {
    "pitch": _pitch,
    **dict.fromkeys(_FORMANTS, _formants),
    "intensity": _intensity,
    **dict.fromkeys(("duration", "position", "position_from_end", "relative_position"), _place),
    **dict.fromkeys(_FEATURE_NAMES, _articulation),
}
_OF_SOUND = (_pitch, _formants, _intensity, _articulation)


def unit_features(
    units: pd.DataFrame,
    items: Sequence[Item],
    names: Sequence[str],
    *,
    level: str = "word",
    table: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Add features of words, phones or frames to a table of units.

    Parameters
    ----------
    units : DataFrame
        `UnitStates.units`: clip, index, word, label, start, end.
    items : sequence of Clip or Sentence
        Those that the units are of.
    names : sequence of str
        pitch (Hz; missing where unvoiced), f1, f2, f3 (Hz), intensity (dB of full scale), duration
        (seconds), position, position_from_end, relative_position (0 to 1), a feature of PanPhon
        (``"voi"``, ``"nas"``, ...: that of the phone in the middle of the unit), a covariate of words
        or phones (`speechmix.add_covariates`: frequency, letters, ...), a column of the items' `meta`.
        A column of `table`, and then one of `units`, goes before these.
    level : {"word", "phone", "syllable", "frame"}
        Of the units.
    table : DataFrame, optional
        Values of one's own: columns clip, and index (of the unit) or word (index of the word; all
        units of the word have the value).

    Returns
    -------
    DataFrame
        A copy with a column for each name.

    Raises
    ------
    InputError
        For an unknown name, a clip that is not among the items, two rows of `table` for one unit, or
        features of sound of texts.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> clips = bundled.clips()[:2]  # synthetic
    >>> units = speechmix.unit_states(speechmix.load("bundled:tiny-french-ctc"), clips)["encoder"].units
    >>> unit_features(units, clips, ["duration", "f1"])[["label", "duration", "f1"]].round(2).values.tolist()[:2]
    [['notre', 0.3, 675.25], ['maison', 0.42, 782.44]]
    """
    by_name = dict(zip(build_item_table(items)["clip"], items, strict=True))
    if unknown := sorted(set(units["clip"]) - set(by_name)):
        raise InputError(f"the units have a clip that is not among the items: {unknown[0]!r}")
    result = units.copy()
    for name in dict.fromkeys(names):
        if table is not None and name in table:
            result[name] = _match_rows(units, table, name)
        elif name in result:  # of the units themselves, or computed with another feature
            continue
        elif name in UNIT_FEATURES:
            new_columns = _compute_columns(units, by_name, UNIT_FEATURES[name])
            result = result.assign(**{key: new_columns[key] for key in new_columns if key in names})
        elif name in COVARIATES:
            keys = units.rename(columns={"start": "onset"}).assign(kind=level)
            keys = keys.drop(columns=[] if level == "word" else ["word"])
            result[name] = add_covariates(keys, list(items), [name])[name].to_numpy()
        elif any(name in item.meta for item in items):
            result[name] = [by_name[clip].meta.get(name) for clip in units["clip"]]
        else:
            feature_names = dict.fromkeys(
                [*UNIT_FEATURES, *COVARIATES, *([] if table is None else table)]
            )
            raise InputError(
                f"there is no feature {name!r}: choose from {', '.join(map(str, feature_names))}"
            )
    return result


def _compute_columns(
    units: pd.DataFrame, by_name: dict[str, Item], function: Callable[..., Columns]
) -> Columns:
    """Return the columns of one function, computed clip by clip."""
    columns: Columns = {}
    for clip, rows in units.groupby("clip", sort=False).indices.items():
        item = by_name[str(clip)]
        if function in _OF_SOUND and not isinstance(item, Clip):
            raise InputError(f"{item.name!r} is a text: it has no sound to measure")
        for name, values in function(item, units.iloc[rows]).items():
            columns.setdefault(name, np.full(len(units), np.nan))[rows] = values
    return columns


def _match_rows(units: pd.DataFrame, table: pd.DataFrame, name: str) -> np.ndarray:
    """Return the value of each unit in a table of the user's."""
    key = next((key for key in ("index", "word") if key in table), None)
    if key is None or "clip" not in table:
        raise InputError(f"the table of {name!r} needs the columns clip and index (or word)")
    numbers = pd.to_numeric(table[key], errors="coerce")
    if (wrong := table.loc[numbers.isna() & table[key].notna(), key]).size:
        raise InputError(
            f"{key} in the table of {name!r} should be a number, found {wrong.iloc[0]!r}"
        )
    values = table[["clip", name]].assign(**{key: numbers}).dropna(subset=[key])
    values = values.astype({"clip": str, key: "int64"})
    if (doubled := values.duplicated(["clip", key])).any():
        clip, index = values.loc[doubled, ["clip", key]].iloc[0]
        raise InputError(f"the table of {name!r} has two rows for {key} {index} of {clip!r}")
    keys = units[["clip", key]].astype({"clip": str, key: "Int64"})
    return keys.merge(values, on=["clip", key], how="left")[name].to_numpy()


def _medians(times: np.ndarray, values: np.ndarray, units: pd.DataFrame) -> np.ndarray:
    """Median of a track in each unit; in a unit between two samples the nearest one. NaN is left
    out."""
    medians = np.full(len(units), np.nan)
    for row, (start, end) in enumerate(zip(units["start"], units["end"], strict=True)):
        inside = values[(times >= start) & (times < end)]
        if not len(inside):
            inside = values[[np.abs(times - (start + end) / 2).argmin()]]
        if np.isfinite(inside).any():
            medians[row] = np.nanmedian(inside)
    return medians
