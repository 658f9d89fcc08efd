"""A kind of result: what a run computes of each clip and model, under which key it is stored.

In: a model, a clip, options. Out: `ResultKind`, which computes the results that are missing and puts
them into the run's store (results/result_store.py). Shards, workers, Ray, resume and status know
kinds by this value alone. The kinds of the package are listed in registry.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow.compute as pc

from ...errors import InputError, SpeechmixError, StorageError
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...files.timing import phase
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_registry import measure_revision
from ..progress import memory_errors_named
from ..results.result_store import Key, Results

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ..results.clip_result_files import Owner, Part
    from ..results.run_folder import RunFolder

ClipColumns = Callable[["Sequence[Clip]", "str | None"], Mapping[str, Mapping[str, object]]]
Outcome = list[Key] | SpeechmixError  # keys of what is stored of an item, or why it failed


class ClipSnapshot(NamedTuple):
    """A clip when the run began: hash of its sound, and of all that decides its maps but the model."""

    audio_hash: str
    clip_hash: str

    @classmethod
    def of(cls, clip: Clip) -> ClipSnapshot:
        """Hash a clip."""
        return cls(clip.audio_hash, digest([clip.fingerprint, clip.alignment, clip.doubts]))


IDENTITY_COLUMNS = ("clip", "fingerprint", "model", "init", "seed")  # of every table of a kind


class Result(NamedTuple):
    """What a kind computes of one item: content that JSON can hold, and perhaps bytes."""

    content: object
    vectors: bytes = b""


@dataclass(frozen=True)
class ResultItem:
    """One clip and one model of a run, with the options of a kind.

    Attributes
    ----------
    loaded_model : Model, optional
        Of word times the model that aligns, if there is one.
    clip : Clip
    options : mapping
        Of the kind, as the run requests it.
    twin_index : int
        How many random twins of the model come before it in the run.
    is_partial_twin : bool
        Whether the model is a further twin, which has results of few clips and contributions alone.
    snapshot : ClipSnapshot, optional
        Of the clip when the run began.
    stored : mapping of str to object
        Content of the clip's results by kind, of the kinds that come before this one.
    pair : Clip, optional
        The other clip of its pair, with words, for a kind that `uses_pairs`.
    shared : dict
        Values that a kind computes once for all clips of a model.
    """

    loaded_model: Model | None
    clip: Clip
    options: Mapping[str, Json] = field(default_factory=dict)
    twin_index: int = 0
    is_partial_twin: bool = False
    snapshot: ClipSnapshot | None = None
    stored: Mapping[str, Json] = field(default_factory=dict)
    pair: Clip | None = None
    shared: JsonObject = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model; of every kind but word times there is one."""
        if self.loaded_model is None:
            raise TypeError(f"no model computes the results of {self.clip.name!r}")
        return self.loaded_model

    @property
    def ingredients(self) -> dict[str, object]:
        """Weights and precision of the model, and all of the clip: what decides most results."""
        model = self.model
        weights = {"weights": model.fingerprint, "dtype": str(model.state_dtype)}
        return {**weights, **self.clip.fingerprint_fields}


def default_cache_key(item: ResultItem) -> dict[str, object] | None:
    """Return model, clip and options of an item; None for a further random twin."""
    return None if item.is_partial_twin else {**item.ingredients, **item.options}


@dataclass(frozen=True)
class FinishedResults:
    """Results of a kind when the last shard is done, for `ResultKind.finish`.

    Clips have words. `report` gets a line for what cannot be done. `job` is the name of a job that
    computed kinds alone, "" in a run; `group` is the column that says which clips belong together.
    """

    folder: RunFolder
    parts_by_owner: Mapping[Owner, Sequence[Part]]
    clips: Sequence[Clip]
    report: Callable[[str], None]
    job: str = ""
    group: str | None = None


def _no_options(clips: Sequence[Clip], count: int) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True)
class ResultKind:
    """What a run computes of each clip and model.

    Parameters
    ----------
    name : str
        Of the results in the store, of the table, and of the phase in ``times.csv``.
    compute : callable
        `ResultItem` -> `Result`. A `SpeechmixError` drops the item; the run goes on.
    version : int
        Raise it when the same item gives another result from now on: stored results are then
        computed again.
    cache_key : callable
        `ResultItem` -> what decides the result, as JSON can hold it; None where the kind has no
        result of this item. By default model, clip and options.
    columns : mapping of str to str, optional
        Types of the columns (as pandas names them) of the kind's table, ``<name>.parquet`` and
        ``.csv``: the content is then a list of rows. None: no table.
    finish : callable, optional
        Gets `FinishedResults` when all shards are done: writes what is made of all clips.
    clip_columns : callable, optional
        Clips and the column of their groups (or None) -> further columns of the table by clip, put
        behind those that name clip and model.
    uses_pairs : bool
        Whether an item needs the other clip of its pair, which may be in another shard.
    choose_options : callable
        Clips of a run and a number (`score_clips(explain=20)`) -> options of the kind.
    needs_words : bool
        Whether a job of this kind alone leaves out clips that have neither words nor text.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> def count_words(item):
    ...     return Result([{"words": len(item.clip.words or ())}])
    >>> kind = ResultKind("word_count", count_words, columns={"words": "int64"})
    >>> kind.compute(ResultItem(None, bundled.clips()[0]))
    Result(content=[{'words': 2}], vectors=b'')
    """

    name: str
    compute: Callable[[ResultItem], Result]
    version: int = 1
    cache_key: Callable[[ResultItem], Mapping[str, object] | None] = default_cache_key
    columns: Mapping[str, str] | None = None
    finish: Callable[[FinishedResults], None] | None = None
    clip_columns: ClipColumns | None = None
    uses_pairs: bool = False
    choose_options: Callable[[Sequence[Clip], int], Mapping[str, object]] = _no_options
    needs_words: bool = True

    def __post_init__(self) -> None:
        reserved = [name for name in IDENTITY_COLUMNS if name in (self.columns or {})]
        if reserved:
            raise InputError(
                f"{self.name}: the table has columns {', '.join(IDENTITY_COLUMNS)} already; leave "
                f"out {', '.join(reserved)}"
            )
        for name, dtype in (self.columns or {}).items():
            try:
                pd.api.types.pandas_dtype(dtype)
            except TypeError:
                raise InputError(
                    f"{self.name}: column {name!r} needs a type of pandas, such as 'float64', "
                    f"'int64', 'bool', 'str'; found {dtype!r}"
                ) from None

    def check_result(self, result: object) -> None:
        """Raise `TypeError`, which ends the run, unless a result can be stored, and be rows of the table."""
        if not isinstance(result, Result):
            raise TypeError(
                f"{self.name}: `compute` should return a Result, found {type(result).__name__}"
            )
        if not isinstance(result.vectors, bytes):
            raise TypeError(
                f"{self.name}: the vectors of a Result are bytes, found "
                f"{type(result.vectors).__name__}"
            )
        if self.columns is None:
            return
        rows = result.content
        if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
            raise TypeError(
                f"{self.name}: it has columns, so the content of its Result should be a list of "
                f"dicts, one a row; found {rows!r:.100}"
            )
        reserved = {name for row in rows for name in row if name in IDENTITY_COLUMNS}
        if reserved:
            raise TypeError(
                f"{self.name}: rows get {', '.join(IDENTITY_COLUMNS)} by themselves; leave out "
                f"{', '.join(sorted(reserved))}"
            )
        table = pd.DataFrame([*rows])
        for name in self.columns.keys() & set(table):
            try:
                table.astype({name: self.columns[name]})
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"{self.name}: column {name!r} should be {self.columns[name]}, found "
                    f"{[*table[name]]!r:.100} ({error})"
                ) from error

    def keys(self, item: ResultItem) -> list[Key]:
        """Return the keys of an item's results in the store; none where the kind has none of it."""
        facts = self.cache_key(item)
        if facts is None:
            return []
        return [Key(item.clip.name, self.name, digest({**facts, **version_entry(self.version)}))]

    def store(self, results: Results, items: Sequence[ResultItem]) -> list[Outcome]:
        """Compute the missing results of some items and store them; an error for each that fails."""
        return [self._store_one(results, item) for item in items]

    def _store_one(self, results: Results, item: ResultItem) -> Outcome:
        try:
            keys = self.keys(item)
            for key in keys:
                if key not in results:
                    with phase(self.name), memory_errors_named():
                        result = self.compute(item)
                    self.check_result(result)
                    results.put(key, content=_as_json(result.content), vectors=result.vectors)
            return keys
        except StorageError:
            raise
        except SpeechmixError as error:
            return error


def version_entry(version: int, measures: Iterable[str] = ()) -> dict[str, object]:
    """Return what the version of a kind, and of measures, adds to a cache key.

    Name the measures that the result is computed with only where they are not in its key already.
    """
    revisions = {name: revision for name in measures if (revision := measure_revision(name)) > 1}
    entries: dict[str, object] = {"revision": version} if version > 1 else {}
    return entries | ({"measure_revisions": revisions} if revisions else {})


def stored_contents(parts: Iterable[Part], kind: str) -> Iterator[tuple[Owner, str, Any]]:
    """Yield model, clip and content of all results of a kind in parts of a run, each once.

    InputError if a part is damaged.
    """
    seen: set[tuple[Owner, str]] = set()
    for part in parts:
        is_of_kind = pc.equal(part.read(("kind",))["kind"], kind)
        if not pc.any(is_of_kind).as_py():
            continue  # without the content, which is most of the file
        for row in part.read(("clip", "content")).filter(is_of_kind).to_pylist():
            content = json.loads(row["content"])
            if content and (part.owner, row["clip"]) not in seen:
                seen.add((part.owner, row["clip"]))
                yield part.owner, row["clip"], content


def _as_json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=_python_number)


def _python_number(value: Any) -> object:
    """Return a number of numpy as one of Python."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        raise TypeError(
            f"the content of a Result is of dicts, lists, text, numbers and None, as JSON is; "
            f"found {type(value).__name__} ({value!r:.80})"
        ) from None
