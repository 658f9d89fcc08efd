"""What is compared: states of the layers of a model, or external features, of the same units.

In: clips; a model, a table of vectors for labels, or names of features. Out: features [N, D] of units
that all sources have, in an order that does not depend on names or on the order of clips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...adapters.capture.hidden_states import INPUT
from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...inputs.audio.spectrograms import mel_spectrogram
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.phone_classes import articulatory_features
from ...inputs.words.unit_tiers import PHONE
from ..statistics.even_subset import choose_evenly
from ..statistics.groups import assign_item_groups, build_item_table
from ..unit_features import unit_features
from ..unit_states import UnitStates, unit_states

ModelSource = Model | Callable[[], Model]
FeatureSource = ModelSource | str | Sequence[str] | pd.DataFrame
_MEL = {"n_fft": 512, "window": 400, "hop": 80, "n_mels": 40, "fmin": 60, "fmax": 7600}
_MEL_RATE = 16_000


class LayerFeatures(NamedTuple):
    """Features of one layer, or external ones.

    Parameters
    ----------
    name : str
        Of the model or feature.
    stack : str
        "" of external features.
    layer : int or None
        None of external features.
    values : ndarray [N, D], or [N] of labels
        Missing: NaN, or "".
    """

    name: str
    stack: str
    layer: int | None
    values: np.ndarray


class UnitReader:
    """Reads features of the same units from models and other sources.

    Parameters
    ----------
    items : sequence of Clip or Sentence
    level : {"word", "phone", "syllable", "frame"}
    group : str, optional
        A column of the items' `meta`.
    units_per_clip : int
        At most, evenly chosen.

    Attributes
    ----------
    units : DataFrame
        Columns clip, group, index, word, label, start, end, item (its number): those of the first
        model read.
    skipped : dict of str to str
        Items that the first model does not take, and why.
    """

    def __init__(
        self,
        items: Sequence[Clip | Sentence],
        level: str,
        *,
        group: str | None = None,
        units_per_clip: int = 50,
    ):
        if not items or units_per_clip < 1:
            raise InputError(
                f"expected clips, and units_per_clip of 1 or more, found {len(items)} clips and "
                f"{units_per_clip}"
            )
        table = build_item_table(items)
        table["group_name"], self.ties = assign_item_groups(table, items, group)
        table["key"] = [
            (item.audio_hash, item.text or "") if isinstance(item, Clip) else (item.text, "")
            for item in items
        ]
        table["group_key"] = table.groupby("group_name")["key"].transform("min")
        order = table.sort_values(["group_key", "key"], kind="stable").index
        self._items = [items[index] for index in order]
        self._names = build_item_table(self._items)["clip"].tolist()
        self._groups = table["group_key"][order].tolist()
        self._level, self._limit = level, units_per_clip
        self._chosen: dict[int, pd.DataFrame] = {}  # units of each item
        self.units = pd.DataFrame()
        self.skipped: dict[str, str] = {}

    def read_model(
        self, source: ModelSource, stacks: Sequence[str] | None, name: str = ""
    ) -> list[LayerFeatures]:
        """Read the states of each stack (by default the model's input stack) and layer.

        Raises
        ------
        InputError
            If the model takes none of the clips, or a stack has no such units.
        """
        model = source if isinstance(source, Model) else source()
        wanted = [model.capabilities.input_stack] if stacks is None else list(stacks)
        is_first = not self._chosen
        parts: dict[str, dict[int, np.ndarray]] = {stack: {} for stack in wanted}
        for number, item in enumerate(self._items):
            if not is_first and number not in self._chosen:
                continue
            try:
                found = unit_states(model, [item], level=self._level, stacks=wanted)
            except SpeechmixError as error:
                self.skipped.setdefault(self._names[number], str(error))
                continue
            if missing := [stack for stack in wanted if stack not in found]:
                raise InputError(f"the {missing[0]} of {model.name} has no {self._level}s")
            if is_first:
                self._chosen[number] = self._choose_units(number, found[wanted[0]].units)
            for stack in wanted:
                parts[stack][number] = self._select_states(self._chosen[number], found[stack])
        if not parts[wanted[0]]:
            reason = next(iter(self.skipped.values()))
            raise InputError(f"{model.name} takes none of the clips: {reason}")
        self.units = pd.concat(self._chosen.values(), ignore_index=True)
        return [
            LayerFeatures(name or model.label, stack, INPUT + index, values)
            for stack in wanted
            for index, values in enumerate(self._join_states(parts[stack]))
        ]

    def _join_states(self, parts: Mapping[int, np.ndarray]) -> np.ndarray:
        """Join the states of clips [n, L + 1, D] to [L + 1, N, D]; of skipped clips they are NaN."""
        shape = next(iter(parts.values())).shape[1:]
        return np.concatenate(
            [
                parts[number] if number in parts else np.full((len(units), *shape), np.nan)
                for number, units in self._chosen.items()
            ]
        ).swapaxes(0, 1)

    def _choose_units(self, number: int, units: pd.DataFrame) -> pd.DataFrame:
        chosen = units.iloc[choose_evenly(range(len(units)), self._limit)]
        if self._level == "frame":
            chosen = chosen.assign(label=self._label_frames(self._items[number], chosen))
        group = str(self._groups[number])
        return chosen.assign(clip=self._names[number], group=group, item=number)

    def _label_frames(self, item: Clip | Sentence, frames: pd.DataFrame) -> list[str]:
        """Label frames by the phone, or else the word, that they lie in; "" between them."""
        tier = (item.tiers.get(PHONE) or item.words or ()) if isinstance(item, Clip) else ()
        middles = (frames["start"] + frames["end"]) / 2
        return [
            next((each.text for each in tier if each.start <= middle < each.end), "")
            for middle in middles
        ]

    def _select_states(self, wanted: pd.DataFrame, found: UnitStates) -> np.ndarray:
        """Return the states of the wanted units [n, L + 1, D], NaN for those that are not there."""
        if self._level == "word":
            rows = {int(word): row for row, word in enumerate(found.units["word"])}
            indices = np.array([rows.get(int(word), -1) for word in wanted["word"]], dtype=int)
        else:
            middles = [(each["start"] + each["end"]).to_numpy() for each in (wanted, found.units)]
            indices = np.abs(middles[0][:, None] - middles[1]).argmin(axis=1)
        values: np.ndarray = found.values[indices].astype(float)
        values[indices < 0] = np.nan
        return values

    def read_sources(
        self,
        sources: FeatureSource | Mapping[str, FeatureSource],
        stacks: Sequence[str] | None = None,
    ) -> list[LayerFeatures]:
        """Read one source, or several by name; see `speechmix.similarity`.

        Raises
        ------
        InputError
            For an unknown source, or units that have no such features.
        """
        if not isinstance(sources, Mapping):
            name = "table" if isinstance(sources, pd.DataFrame) else ""
            name = sources if isinstance(sources, str) else name
            sources = {name: sources}
        features = []
        for name, source in sources.items():
            if isinstance(source, Model) or callable(source):
                features += self.read_model(source, stacks, name)
            else:
                features.append(LayerFeatures(name, "", None, self._read_external(source, name)))
        return features

    def _read_external(self, source: str | Sequence[str] | pd.DataFrame, name: str) -> np.ndarray:
        labels = self.units["label"].str.casefold()
        if isinstance(source, pd.DataFrame):
            return _look_up(source, labels, name)
        if source == "label":
            return labels.to_numpy(dtype=str)
        if source == "mel":
            return self._read_mel()
        names = [source] if isinstance(source, str) else list(source)
        if source == "articulation":
            names = [*articulatory_features("a")]
        table = unit_features(self.units, self._items, names, level=self._level)
        values: np.ndarray = table[names].to_numpy(dtype=float)
        spread = np.nanstd(values, axis=0)
        return values / np.where(spread > 0, spread, 1.0)

    def _read_mel(self) -> np.ndarray:
        """Average log power in mel bands over each unit [N, bands], windows of 25 ms every 5 ms."""
        values = []
        for number, units in self.units.groupby("item", sort=False):
            clip = self._items[int(str(number))]
            if not isinstance(clip, Clip):
                raise InputError(f"{clip.name} is a text, which has no mel bands: give clips")
            power = mel_spectrogram(clip.audio(_MEL_RATE), _MEL_RATE, **_MEL)
            bands = np.log(np.maximum(power, 1e-8))
            edges = (units[["start", "end"]].to_numpy() * _MEL_RATE / _MEL["hop"]).round()
            for start, end in np.clip(edges.astype(int), 0, len(bands) - 1):
                values.append(bands[start : max(end, start + 1)].mean(axis=0))
        return np.array(values)

    def select_complete(self, features: Sequence[LayerFeatures]) -> np.ndarray:
        """Return which units all features have [N].

        Raises
        ------
        InputError
            If none.
        """
        is_complete = np.ones(len(self.units), dtype=bool)
        for each in features:
            values = each.values
            has = values != "" if values.ndim == 1 else np.isfinite(values).all(axis=1)
            if not has.any():
                raise InputError(f"no unit has features {each.name!r}: compare labels and spelling")
            is_complete &= has
        if not is_complete.any():
            names = ", ".join(dict.fromkeys(each.name for each in features))
            raise InputError(f"no unit has all of the features {names}")
        return is_complete


def _look_up(table: pd.DataFrame, labels: pd.Series, name: str) -> np.ndarray:
    """Return the vector of each label [N, D], NaN if the table has none."""
    vectors = table.set_axis(table.index.astype(str).str.casefold())
    if vectors.index.has_duplicates:
        twice = vectors.index[vectors.index.duplicated()][0]
        raise InputError(f"the table {name!r} has two rows for {twice!r}: leave one")
    try:
        values = vectors.astype(float)
    except ValueError as error:
        raise InputError(
            f"the table {name!r} should have labels as its index and numbers as columns: {error}"
        ) from error
    return values.reindex(labels).to_numpy()
