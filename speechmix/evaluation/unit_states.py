"""States of the words, phones or frames of many clips, as arrays.

In: a model and clips or sentences. Out: for each stack a table of units and an array [N, L + 1, D].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..adapters.capture.hidden_states import INPUT
from ..adapters.model import Model
from ..errors import InputError, SpeechmixError
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.spans import Span
from ..mixing.passes.layer_states import states
from .statistics.groups import assign_item_groups, build_item_table

UNIT_COLUMNS = ["clip", "group", "index", "word", "label", "start", "end"]


@dataclass(frozen=True, eq=False)
class UnitStates:
    """States of units in one stack.

    Parameters
    ----------
    units : DataFrame
        A row for each of N units: clip, group (clips that belong together), index (of the unit in its
        clip, from 0), word (index of the word that it is or lies in), label, start and end (seconds;
        missing for texts).
    values : ndarray [N, L + 1, D]
        float32. Entry 0 is the input of the first layer, entry l + 1 the output of layer l.
    stack : str
        "encoder" or "decoder".
    level : str
        "word", "phone", "syllable" or "frame".
    skipped : tuple of (str, str)
        Names of clips that have no states, with the reason.
    """

    units: pd.DataFrame
    values: np.ndarray
    stack: str
    level: str
    skipped: tuple[tuple[str, str], ...] = ()

    def to_dataframe(self, layer: int) -> pd.DataFrame:
        """Return a table of the units with the states of one layer in the columns d0, d1, ...

        Parameters
        ----------
        layer : int
            From 0; -1 is the input of the first layer.
        """
        if not INPUT <= layer < self.values.shape[1] - 1:
            raise InputError(
                f"layer should be from -1 to {self.values.shape[1] - 2}, found {layer}"
            )
        states_of_layer = self.values[:, layer + 1]
        names = [f"d{index}" for index in range(states_of_layer.shape[1])]
        return self.units.join(pd.DataFrame(states_of_layer, self.units.index, names))

    def __repr__(self) -> str:
        count, layers, width = self.values.shape
        return (
            f"UnitStates({self.stack}: {count} {self.level}s of {self.units['clip'].nunique()} clips, "
            f"{layers - 1} layers, {width} wide)"
        )


def unit_states(
    model: Model,
    items: Sequence[Clip | Sentence],
    *,
    level: str = "word",
    stacks: Sequence[str] | None = None,
    group: str | None = None,
    progress: bool = False,
) -> dict[str, UnitStates]:
    """Return the states of the words, phones or frames of many clips, in every layer.

    Parameters
    ----------
    model : Model
    items : sequence of Clip or Sentence
    level : {"word", "phone", "syllable", "frame"}
        A word's state is the mean over its frames or tokens. Frames only of audio.
    stacks : sequence of str, optional
        "encoder", "decoder"; by default those that have such units.
    group : str, optional
        A column of the clips' `meta` that says which belong together, e.g. "speaker"; by default
        pair, sentence and target word.
    progress : bool
        Show a bar over clips.

    Returns
    -------
    dict of str to UnitStates
        By stack.

    Raises
    ------
    InputError
        If no clip has states, for the reason of the first.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> found = unit_states(model, bundled.clips()[:2])["encoder"]  # synthetic clips
    >>> found
    UnitStates(encoder: 4 words of 2 clips, 4 layers, 144 wide)
    >>> found.units[["clip", "index", "label"]].values.tolist()[:2]
    [['left_00_sg', 0, 'notre'], ['left_00_sg', 1, 'maison']]
    """
    units: dict[str, list[pd.DataFrame]] = {}
    values: dict[str, list[np.ndarray]] = {}
    skipped: list[tuple[str, str]] = []
    for name, group_name, item in iterate_items(items, group, progress, level):
        try:
            found = states(model, item, stacks=stacks, level=level)
        except SpeechmixError as error:
            skipped.append((name, str(error)))
            continue
        for stack, of_item in found.items():
            table = build_unit_table(name, group_name, of_item.positions, level)
            units.setdefault(stack, []).append(table)
            values.setdefault(stack, []).append(of_item.values.swapaxes(0, 1))
    if not units:
        raise InputError(f"no clip has states of {level}s: {': '.join(skipped[0])}")
    return {
        stack: UnitStates(
            pd.concat(tables, ignore_index=True),
            np.concatenate(values[stack]),
            stack,
            level,
            tuple(skipped),
        )
        for stack, tables in units.items()
    }


def iterate_items(
    items: Sequence[Clip | Sentence], group: str | None, progress: bool, level: str
) -> Iterator[tuple[str, str, Clip | Sentence]]:
    """Yield items with a name of their own, and their group."""
    if not items:
        raise InputError("states need at least one clip or sentence, found none")
    table = build_item_table(items)
    groups, _ = assign_item_groups(table, items, group)
    rows = zip(table["clip"], groups, items, strict=True)
    if not progress:
        yield from rows
        return
    from tqdm.auto import tqdm

    yield from tqdm(rows, unit="clip", total=len(items), desc=f"states of {level}s")


def build_unit_table(name: str, group: str, spans: Sequence[Span], level: str) -> pd.DataFrame:
    """Describe the units of a clip, a row for each."""
    columns: dict[str, Any] = {
        "clip": name,
        "group": group,
        "index": [span.word if level == "word" else index for index, span in enumerate(spans)],
        "word": pd.array([span.word for span in spans], dtype="Int64"),
        "label": [span.label for span in spans],
        "start": np.array([span.onset for span in spans], dtype=float),
        "end": np.array([span.offset for span in spans], dtype=float),
    }
    return pd.DataFrame(columns, columns=UNIT_COLUMNS)
