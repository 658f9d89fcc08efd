"""The end of a run: what its shards have done becomes its tables.

In: a marker of each shard (one, where one process did it all), which says what it was asked, what
it left out and which part files hold its results. Out: the run's tables, in the order of models and
clips as they were given, whatever the shards; `run.json` says that they stand and which parts they
are made of. Scores are not touched: they are where their part put them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..files.cache_keys import digest
from ..files.json_files import read_checked_json, write_checked_json
from ..files.locks import LOCK
from ..files.shards import Shard
from ..files.text_files import write_csv
from ..inputs.clips.clip import Clip
from .results.part_files import Owner, Part, opened_part
from .results.run_folder import ABLATION, CONTRIBUTIONS, TRANSCRIPTS, RunFolder
from .results.run_times import write_times
from .results.tidy_tables import TableWriter, table_of_facts
from .run_probes import stored_states, write_probes
from .word_times import WORDS, placed

FACTS = "facts"  # kind of result: the row of the clip table
_CLIPS_AT_ONCE = 1_000


@dataclass
class Marker:
    """What one shard of a run has done.

    Attributes
    ----------
    shard : str
    asked : str
        Hash of clips and options of the whole run, which `run.json` has from the start, and of its
        models, once all are loaded: shards of one run were asked the same.
    clips : list of str
        Part files of its clips, below the run's folder.
    models : list of (owner, part files, whether its states are probed)
    skipped : list of dict
        clip, model, reason.
    done : int
        (clip, model) pairs.
    told : str
        Hash of all that its results follow from but the models; empty where it is of few clips
        (standing.py).
    figures : dict of str to (size, hash)
        Pictures of clips, by path below the run's folder, where `told` is there.
    """

    shard: str
    asked: str
    clips: list[str] = field(default_factory=list)
    models: list[tuple[dict[str, Any], list[str], bool]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    done: int = 0
    told: str = ""
    figures: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def made(self) -> dict[str, Any]:
        """What tables follow from."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("told", "figures")
        }

    def add(self, folder: RunFolder, owner: Owner, parts: Sequence[Part], *, probed: bool) -> None:
        """Note where the results of a model are."""
        self.models.append((vars(owner), folder.relative(parts), probed))

    def tell_asked(self, but_models: str) -> None:
        """Note what the whole run was asked: the hash of clips and options that it began with, and
        the models it had."""
        self.asked = f"{but_models}+{digest([owner for owner, _, _ in self.models])}"

    def is_of(self, but_models: str) -> bool:
        """Whether it was asked so, as far as is known before models are loaded."""
        return self.asked.startswith(f"{but_models}+")

    def write(self, folder: RunFolder) -> None:
        """Say in the run's folder that the shard is done."""
        write_checked_json(folder.shards / f"{self.shard}.json", asdict(self))

    @classmethod
    def read(cls, folder: RunFolder, shard: Shard) -> Marker | None:
        """Return the marker of a shard; None if it is not done, or the marker is damaged."""
        path = folder.shards / f"{shard.label}.json"
        try:
            return cls(**read_checked_json(path)) if path.is_file() else None
        except (InputError, TypeError):
            return None


def begun_shards(folder: RunFolder) -> list[str]:
    """Labels of the shards, of whatever number, that some process has held."""
    return sorted(
        path.name.removeprefix(f"{LOCK}-") for path in folder.shards.glob(f"{LOCK}-*-of-*[0-9]")
    )


def missing_shards(folder: RunFolder, asked: str, count: int) -> list[int]:
    """Shards of a run that are not done, or were asked something else."""
    markers = ((index, Marker.read(folder, Shard(index, count))) for index in range(1, count + 1))
    return [index for index, marker in markers if marker is None or marker.asked != asked]


def write_tables(
    folder: RunFolder,
    markers: Sequence[Marker],
    clips: Sequence[Clip],
    report: Callable[[str], None],
) -> None:
    """Write the tables of a run whose shards are all done, unless they stand; the caller holds the
    folder's lock.

    Raises
    ------
    InputError
        If a part is damaged: start its shard again.
    """
    write_times(folder)
    made_of = digest([marker.made for marker in markers])
    if folder.stands(made_of):
        return
    facts, words = _facts(folder, markers)
    order = {row["own"]["clip"]: position for position, row in enumerate(facts)}
    about = {row["own"]["clip"]: row["source"]["fingerprint"] for row in facts}
    models = _models(folder, markers)
    with ExitStack() as files:
        writers = {
            name: files.enter_context(TableWriter(folder.path / name))
            for name in (CONTRIBUTIONS, ABLATION, TRANSCRIPTS)
        }
        for owner, (parts, _) in models.items():
            for rows in _in_order(parts, order):
                _append_tables(writers, rows, owner, about)
    write_csv(table_of_facts(facts), folder.clips)
    skipped = [row for marker in markers for row in marker.skipped]
    write_skipped(folder, skipped)
    probed = {
        owner: stored_states(parts) for owner, (parts, is_probed) in models.items() if is_probed
    }
    if probed:
        placed_clips = [
            placed(clip, words[clip.name]) if clip.words is None and clip.name in words else clip
            for clip in clips
            if clip.name in order
        ]
        write_probes(folder, probed, placed_clips, report)
    standing = [folder.path / path for marker in markers for path in marker.clips]
    standing += [part.path for of_model, _ in models.values() for part in of_model]
    folder.finish(sum(marker.done for marker in markers), standing, made_of)


def write_skipped(folder: RunFolder, skipped: Sequence[Mapping[str, str]]) -> None:
    """Write the table of what was left out."""
    write_csv(
        pd.DataFrame(distinct_reasons(skipped), columns=["clip", "model", "reason"]), folder.skipped
    )


def distinct_reasons(skipped: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """What was left out; what several shards say of one clip counts once."""
    return list({(row["clip"], row["model"], row["reason"]): dict(row) for row in skipped}.values())


def _facts(
    folder: RunFolder, markers: Sequence[Marker]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of the clip table, in the order in which clips were given; and word times, by clip."""
    facts, words = [], {}
    for path in (path for marker in markers for path in marker.clips):
        rows = opened_part(folder.path / path).read(("clip", "kind", "content"))
        for row in rows.to_pylist():
            if row["kind"] == FACTS:
                facts.append(json.loads(row["content"]))
            elif row["kind"] == WORDS:
                words[row["clip"]] = row["content"]
    facts.sort(key=lambda row: row["position"])
    return facts, words


def _models(folder: RunFolder, markers: Sequence[Marker]) -> dict[Owner, tuple[list[Part], bool]]:
    """Parts of each model, and whether it is probed, in the order in which models were given."""
    models: dict[Owner, tuple[list[Part], bool]] = {}
    for marker in markers:
        for told, paths, is_probed in marker.models:
            parts, probed = models.get(Owner(**told), ([], False))
            parts += [opened_part(folder.path / path) for path in paths]
            models[Owner(**told)] = (parts, probed or is_probed)
    return models


def _in_order(parts: Sequence[Part], order: Mapping[str, int]) -> Iterator[pa.Table]:
    """Rows of several parts, those of some thousand clips at a time, in the order of the clips;
    others are left out.

    The rows of a part are in that order already, so a few row groups are in memory.
    """
    columns = ("clip", "kind", "contributions", "content")
    clips = [part.read(("clip",))["clip"].to_pylist() for part in parts]
    starts = [0] * len(parts)
    for bound in range(_CLIPS_AT_ONCE, len(order) + _CLIPS_AT_ONCE, _CLIPS_AT_ONCE):
        pieces, positions = [], []
        for number, part in enumerate(parts):
            stop = start = starts[number]
            while stop < len(clips[number]) and order.get(clips[number][stop], -1) < bound:
                stop += 1
            starts[number] = stop
            if stop > start:
                pieces.append(part.slice(start, stop, columns))
                positions += [order.get(name, -1) for name in clips[number][start:stop]]
        if pieces:
            place = np.argsort(positions, kind="stable")
            yield pa.concat_tables(pieces).take(place[np.asarray(positions)[place] >= 0])


def _append_tables(
    writers: Mapping[str, TableWriter], rows: pa.Table, owner: Owner, about: Mapping[str, str]
) -> None:
    """Put results of one model into the tables they belong to."""
    lists = rows["contributions"].combine_chunks()
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    shares = pa.Table.from_struct_array(lists.flatten()).to_pandas()
    writers[CONTRIBUTIONS].append(
        _told(shares, np.repeat(rows["clip"].to_pylist(), counts).tolist(), owner, about)
    )
    for name in (ABLATION, TRANSCRIPTS):
        of_kind = rows.filter(pc.equal(rows["kind"], name))
        told = [
            (clip, row)
            for clip, content in zip(
                of_kind["clip"].to_pylist(), of_kind["content"].to_pylist(), strict=True
            )
            for row in json.loads(content)
        ]
        table = _told(
            pd.DataFrame([row for _, row in told]), [clip for clip, _ in told], owner, about
        )
        writers[name].append(table.astype({"layer": "Int64"}) if "layer" in table else table)


def _told(
    table: pd.DataFrame, clips: Sequence[str], owner: Owner, about: Mapping[str, str]
) -> pd.DataFrame:
    """Rows with columns that say of which clip and model they are, before the others."""
    names: dict[str, Any] = {"clip": list(clips), "fingerprint": [about[clip] for clip in clips]}
    names |= {"model": owner.name, "init": owner.init, "seed": owner.seed}
    for position, (column, value) in enumerate(names.items()):
        table.insert(position, column, value)
    return table.astype({"seed": "Int64"})
