"""States of the words, phones or frames of many clips, as arrays.

In: a model and clips or sentences. Out: for each stack a table of units and an array [N, L + 1, D].

Hidden states of one item as arrays: every layer, every frame, token, word or phone, with labels.

In: a model and a clip, sentence or prepared inputs. Out: for each stack a `LayerStates`. The state of a
word or phone is the mean over its frames or tokens. What the last entry is, behind the stack's final
norm, is defined in `adapters.capture.forward_pass`.

States of the words, phones or frames of many clips, in a Parquet file.

In: a model and clips or sentences. Out: a row for each unit and layer. The file is written while the
model runs, so it may be larger than the memory. Each of its row groups holds one layer of one stack:
who reads layer 5 reads only that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from tqdm.auto import tqdm

from ...adapters.capture.forward_pass import INPUT, hidden_states, stacks_with_states
from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table
from ...files.whole_files import whole_file
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import TextWord
from ...inputs.words.spans import Span
from ...inputs.words.timed_words import Word
from ...mixing.passes.request import AUDIO_UNITS, MixRequest
from ...mixing.passes.view_kinds import feeds_decoder, make_view

if TYPE_CHECKING:
    from ...mixing.passes.item_view import Item, View


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Hidden states of one stack for one item.

    Parameters
    ----------
    values : ndarray [L + 1, T, D]
        float32. Entry 0 is the input of the first layer, entry l + 1 the output of layer l; the
        last entry is behind the stack's final norm, if it has one.
    positions : tuple of Span
        One for each of the T frames, tokens, words or phones: its label, its seconds, the word that
        it is in.
    stack : str
        "encoder" or "decoder".
    """

    values: np.ndarray
    positions: tuple[Span, ...]
    stack: str

    def __repr__(self) -> str:
        layers, positions, width = self.values.shape
        return (
            f"LayerStates({self.stack}: {layers - 1} layers, {positions} positions, {width} wide)"
        )


def states(
    model: Model, item: Item, *, stacks: Sequence[str] | None = None, level: str | None = None
) -> dict[str, LayerStates]:
    """Return the hidden states of an item in every layer.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or mapping
        As for `speechmix.mix`. Word times are used where a clip has them; only words, phones and
        syllables need them.
    stacks : sequence of str, optional
        "encoder", "decoder"; by default those that the model has and the item feeds.
        Cross-attention has no states of its own.
    level : {"frame", "word", "phone", "syllable"}, optional
        The units: frames of the sound, or means over the frames or tokens of each word, phone or
        syllable. A decoder of text has words alone. By default frames and tokens.

    Returns
    -------
    dict of str to LayerStates
        By stack: ``values`` [L + 1, T, D] with a label for each unit.

    Raises
    ------
    InputError
        If the model does not take the item, has no such stack, or the item no such units.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> clip = bundled.clips()[1]  # synthetic: "nos maisons"
    >>> states(model, clip)
    {'encoder': LayerStates(encoder: 4 layers, 59 positions, 144 wide)}
    >>> states(model, clip)["encoder"].positions[20].onset
    0.4025
    >>> [span.label for span in states(model, clip, level="word")["encoder"].positions]
    ['nos', 'maisons']
    """
    if level is not None and level not in AUDIO_UNITS:
        raise InputError(f"level should be one of {', '.join(AUDIO_UNITS)}, found {level!r}")
    units = level or ("frame" if model.hears else "token")
    window = (0.0, math.inf) if units == "frame" else None  # a state of each frame, padding too
    request = MixRequest(units=units, window=window)
    names = _choose_stacks(model, item, request, stacks, level)
    view = make_view(model, item, request, tuple(names))
    spans = {name: _level_spans(view, name, level) for name in names}

    def to_array(stack: str, entry: Tensor) -> np.ndarray:  # [1, T, D]
        if not spans[stack]:  # of prepared inputs, whose frames are known only now
            spans[stack] = [Span(i, i + 1, str(i), "frame") for i in range(entry.shape[1])]
        array: np.ndarray = _pool_states(entry[0], spans[stack]).float().cpu().numpy()
        return array

    entries = hidden_states(model, view.prepared.inputs, to_array, stacks=names)
    return {name: LayerStates(np.stack(entries[name]), tuple(spans[name]), name) for name in names}


def _choose_stacks(
    model: Model, item: Item, request: MixRequest, stacks: Sequence[str] | None, level: str | None
) -> list[str]:
    """Return the requested stacks that the item feeds and that have units of the level."""
    with_states = stacks_with_states(model)
    unknown_stacks = [name for name in stacks or () if name not in with_states]
    if unknown_stacks:
        raise InputError(
            f"{model.name} has states in {', '.join(with_states)}, found {unknown_stacks[0]!r}"
        )
    input_stack = model.capabilities.input_stack
    names = [
        name
        for name in with_states
        if (stacks is None or name in stacks)
        and (name == input_stack or feeds_decoder(model, item, request))
    ]
    if not names:
        raise InputError(f"the decoder of {model.name} is fed no text by {item!r:.80}")
    with_units = [name for name in names if level in (None, "word") or name == input_stack]
    if not with_units:
        raise InputError(f"the {names[0]} of {model.name} reads text, which has no {level}s")
    return with_units


def _level_spans(view: View, stack: str, level: str | None) -> list[Span]:
    """Units of a stack; the frames or tokens of a word are one."""
    spans, item = view.sources(stack), view.item
    if level is None:
        return spans
    if item is None:
        raise InputError(f"prepared inputs have no {level}s: leave level= out")
    if level != "word":
        return [span for span in spans if span.kind == level]
    ranges: dict[int | None, list[tuple[int, int]]] = {}
    for span in spans:
        ranges.setdefault(span.word, []).extend(span.ranges)
    word_spans = []
    words: Sequence[Word | TextWord] = item.words or ()
    for index, word in enumerate(words):
        times = {"onset": word.start, "offset": word.end} if isinstance(word, Word) else {}
        if index in ranges:
            word_spans.append(Span.from_ranges(ranges[index], word.text, word=index, **times))
    if not word_spans:
        raise InputError(f"{item.name}: no word has a position in the {stack}")
    return word_spans


def _pool_states(entry: Tensor, spans: Sequence[Span]) -> Tensor:
    """Average the states of each unit, [T, D] -> [units, D]."""
    if all(span.stop == span.start + 1 for span in spans):
        return entry[[span.start for span in spans]]
    return torch.stack([entry[list(span.positions)].mean(dim=0) for span in spans])


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


_BATCH_BYTES = 64 * 2**20  # of states that are written together


def write_states(
    model: Model,
    items: Sequence[Clip | Sentence],
    path: str | PathLike[str],
    *,
    level: str = "word",
    stacks: Sequence[str] | None = None,
    group: str | None = None,
    progress: bool = False,
) -> tuple[tuple[str, str], ...]:
    """Write the states of the words, phones or frames of many clips to a Parquet file.

    Parameters
    ----------
    model, items, level, stacks, group, progress
        As for `unit_states`. The stacks must be equally wide.
    path : path
        A row for each unit and layer: stack, layer (-1 is the input of the first layer), then the
        columns of `UnitStates.units`, then the state in d0, d1, ... (float32). Model, init, seed and
        level are in the metadata of the file, under ``speechmix``.

    Returns
    -------
    tuple of (str, str)
        Names of skipped clips, with the reason.

    Raises
    ------
    InputError
        If no clip has states, or stacks have several widths.

    Examples
    --------
    >>> import pandas, speechmix, tempfile
    >>> from speechmix.inputs import bundled
    >>> path = f"{tempfile.mkdtemp()}/states.parquet"
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> write_states(model, bundled.clips()[:2], path)
    ()
    >>> pandas.read_parquet(path, filters=[("layer", "==", 3)]).shape  # 4 words, 9 columns, 144 dimensions
    (4, 153)
    """
    skipped: list[tuple[str, str]] = []
    facts = {"model": model.name, "init": model.init, "seed": model.seed, "level": level}
    options: dict[str, Any] = {"level": level, "stacks": stacks, "group": group}
    batches = read_unit_states(
        model, items, skipped, progress=progress, batch_bytes=_BATCH_BYTES, **options
    )
    with whole_file(path) as unfinished:
        tables = (table for batch in batches for table in _layer_tables(batch))
        first = next(tables)
        schema = first.schema.with_metadata({"speechmix": json.dumps(facts)})
        with pq.ParquetWriter(unfinished, schema, write_page_checksum=True) as writer:
            for table in chain([first], tables):
                if table.num_columns != first.num_columns:
                    raise InputError("the stacks have states of several widths: write one stack")
                writer.write_table(table.cast(schema), row_group_size=len(table))
    return tuple(skipped)


def _layer_tables(by_stack: Mapping[str, UnitStates]) -> Iterator[pa.Table]:
    for stack, states in by_stack.items():
        for layer in range(INPUT, INPUT + states.values.shape[1]):
            table = states.to_dataframe(layer)
            table.insert(0, "stack", stack)
            table.insert(1, "layer", np.int32(layer))
            yield pa.Table.from_pandas(table, preserve_index=False)
