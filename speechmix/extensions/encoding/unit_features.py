"""Features of words, phones and frames: pitch, formants, intensity, duration, position, articulation.

In: a table of units (`UnitStates.units`) and their clips. Out: the table with a column for each feature.
Tracks (pitch, formants) are sampled every few milliseconds; a unit has the median of the samples in
it. Values that exist nowhere here (surprisal, measurements) come from a table of the user's. Another
feature is one entry of `UNIT_FEATURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import build_item_table
from ...inputs.audio.spectrograms import track_formants
from ...inputs.clips.clip import Clip
from ...inputs.words.phone_labels import articulatory_features
from ...inputs.words.unit_tiers import PHONE
from .covariates import COVARIATES, Item, add_covariates

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
