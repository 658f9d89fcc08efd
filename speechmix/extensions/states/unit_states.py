"""States of the words, phones or frames of many clips, as arrays.

In: a model and clips or sentences. Out: for each stack a table of units and an array [N, L + 1, D].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ...adapters.capture.forward_pass import INPUT
from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.spans import Span
from .layer_states import states


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
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
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
    >>> encoder_states = unit_states(model, bundled.clips()[:2])["encoder"]  # synthetic clips
    >>> encoder_states
    UnitStates(encoder: 4 words of 2 clips, 4 layers, 144 wide)
    >>> encoder_states.units[["clip", "index", "label"]].values.tolist()[:2]
    [['left_00_sg', 0, 'notre'], ['left_00_sg', 1, 'maison']]
    """
    options: dict[str, Any] = {"level": level, "stacks": stacks, "group": group}
    (states_by_stack,) = read_unit_states(model, items, [], progress=progress, **options)
    return states_by_stack


def read_unit_states(
    model: Model,
    items: Sequence[Clip | Sentence],
    skipped: list[tuple[str, str]],
    *,
    level: str,
    stacks: Sequence[str] | None,
    group: str | None,
    progress: bool,
    batch_bytes: float = np.inf,
) -> Iterator[dict[str, UnitStates]]:
    """Yield the states of batches of clips that are a little larger than `batch_bytes`, the last one
    smaller; all clips by default. Names of clips without states, with the reason, are added to
    `skipped`; see `unit_states`."""
    if not items:
        raise InputError("states need at least one clip or sentence, found none")
    names = build_item_table(items)
    groups, _ = assign_item_groups(names, items, group)
    parts: dict[str, list[tuple[pd.DataFrame, np.ndarray]]] = {}
    size = 0
    bar = tqdm(items, unit="clip", desc=f"states of {level}s", disable=not progress)
    for name, group_name, item in zip(names["clip"], groups, bar, strict=True):
        try:
            states_of_item = states(model, item, stacks=stacks, level=level)
        except SpeechmixError as error:
            skipped.append((name, str(error)))
            continue
        for stack, stack_states in states_of_item.items():
            values = stack_states.values.swapaxes(0, 1)
            units = _build_unit_table(name, group_name, stack_states.positions, level)
            parts.setdefault(stack, []).append((units, values))
            size += values.nbytes
        if size > batch_bytes:
            yield _join_parts(parts, level, skipped)
            parts, size = {}, 0
    if parts:
        yield _join_parts(parts, level, skipped)
    elif len(skipped) == len(items):
        raise InputError(f"no clip has states of {level}s: {': '.join(skipped[0])}")


def _join_parts(
    parts: Mapping[str, Sequence[tuple[pd.DataFrame, np.ndarray]]],
    level: str,
    skipped: Sequence[tuple[str, str]],
) -> dict[str, UnitStates]:
    return {
        stack: UnitStates(
            pd.concat([units for units, _ in of_stack], ignore_index=True),
            np.concatenate([values for _, values in of_stack]),
            stack,
            level,
            tuple(skipped),
        )
        for stack, of_stack in parts.items()
    }


def _build_unit_table(name: str, group: str, spans: Sequence[Span], level: str) -> pd.DataFrame:
    """Describe the units of a clip, a row for each."""
    index = [span.word if level == "word" else index for index, span in enumerate(spans)]
    columns: dict[str, Any] = {"clip": name, "group": group, "index": index}
    columns["word"] = pd.array([span.word for span in spans], dtype="Int64")
    columns["label"] = [span.label for span in spans]
    columns["start"] = np.array([span.onset for span in spans], dtype=float)
    columns["end"] = np.array([span.offset for span in spans], dtype=float)
    return pd.DataFrame(columns)
