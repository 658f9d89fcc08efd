"""Where the time of a run went: seconds by model and phase, of all starts and shards.

In: blocks in which a shard works on the clips, or on one model. Out:
``results/.shards/times-3-of-48.json`` of each shard, added to at every start with the same request;
``times.csv`` of the whole run. No result depends on them, and they are the only numbers in a run's
folder that are others the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError, SpeechmixError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject, read_checked_json, read_json_object, write_checked_json
from ...files.shard_assignment import Shard
from ...files.text_files import write_csv
from ...files.timing import PREFETCH, Seconds, phase, timed_phases
from .clip_result_files import Owner
from .run_folder import RunFolder

if TYPE_CHECKING:
    from ...adapters.model import Model

COLUMNS = ("model", "init", "seed", "phase", "seconds", "share", "clips")
_OWNER_COLUMNS = ["model", "init", "seed"]
_KEY_COLUMNS = [*_OWNER_COLUMNS, "phase"]


class RunTimes:
    """Times of one shard of a run; those that the folder has of a run with other options are
    deleted.

    `exact` waits for the GPU at the beginning and end of every phase.
    """

    def __init__(self, folder: RunFolder, shard: Shard, *, exact: bool = False):
        self._path, self._asked, self._exact = (
            folder.shard_times_path(shard.label),
            _read_request(folder),
            exact,
        )
        self._models = [
            of_model
            for of_model in _read_stored_times(folder, shard.label)
            if of_model["asked"] == self._asked
        ]

    @contextmanager
    def timed_phases(self) -> Iterator[CountedClips]:
        """Count a block, which says whose time it is once it knows."""
        of_model: CountedClips = CountedClips(
            Seconds(keep=lambda: self._write(of_model)), exact=self._exact
        )
        try:
            with timed_phases(of_model.seconds):
                yield of_model
        finally:
            self._write(of_model)
            self._models.append(self._row(of_model))

    def _row(self, of_model: CountedClips) -> JsonObject:
        seconds = of_model.seconds
        return {
            "asked": self._asked,
            "owner": vars(of_model.owner),
            "clips": seconds.clips,
            "seconds": dict(seconds.by_phase),
        }

    def _write(self, of_model: CountedClips) -> None:
        with suppress(OSError):  # a full disk is for the results to tell
            write_checked_json(
                self._path, {"models": _add_models([*self._models, self._row(of_model)])}
            )


@dataclass
class CountedClips:
    """What is counted for one model; until a model is loaded, for the clips."""

    seconds: Seconds
    exact: bool
    owner: Owner = field(default_factory=Owner)

    def loaded(self, model: Model | Callable[[], Model]) -> Model:
        """Return a model, loaded if that is still to be done."""
        import torch  # here: a page of a run reads its times without it

        from ...adapters.model import Model

        with phase("loading"):
            loaded = model if isinstance(model, Model) or not callable(model) else model()
        if not isinstance(loaded, Model):
            raise InputError(
                f"expected a model, or a function that loads one, found {loaded!r:.80}: make one with "
                "speechmix.load(source)"
            )
        model = loaded
        if self.exact and model.device.type == "cuda":
            self.seconds.settle = partial(torch.cuda.synchronize, model.device)
        return model


def _read_request(folder: RunFolder) -> str:
    """Hash of the options of the run that the folder holds."""
    try:
        return digest(read_json_object(folder.description_path).get("options"))
    except InputError:
        return ""


def _read_stored_times(folder: RunFolder, label: str) -> list[JsonObject]:
    """Times of a shard, of each model; none if they are not there or damaged."""
    try:
        models = read_checked_json(folder.shard_times_path(label))["models"]
        for of_model in models:
            Owner(**of_model["owner"])
            float(of_model["clips"] + sum(of_model["seconds"].values()))
            str(of_model["asked"])
    except (InputError, OSError, KeyError, TypeError, AttributeError, ValueError):
        return []
    result: list[JsonObject] = models
    return result


def _add_models(models: list[JsonObject]) -> list[JsonObject]:
    """Times of several starts, those of one model in one."""
    sums: dict[str, JsonObject] = {}
    for of_model in models:
        total = sums.setdefault(of_model["owner"]["label"], {**of_model, "clips": 0, "seconds": {}})
        total["clips"] += of_model["clips"]
        for name, seconds in of_model["seconds"].items():
            total["seconds"][name] = total["seconds"].get(name, 0.0) + seconds
    return list(sums.values())


def run_times(folder: RunFolder) -> pd.DataFrame:
    """Seconds of a run by model and phase, of all starts and shards so far.

    Columns are `COLUMNS`; the share is that of the model's seconds, and missing where a thread
    worked ahead, for nobody waited.
    """
    run_request = _read_request(folder)
    labels = sorted(
        path.stem.removeprefix("times-") for path in folder.shards_dir.glob("times-*.json")
    )
    models = _add_models(
        [
            row
            for label in labels
            for row in _read_stored_times(folder, label)
            if row["asked"] == run_request
        ]
    )
    rows = [
        (owner.name or "", owner.init or "", owner.seed, name, seconds, of_model["clips"])
        for of_model in models
        for owner in [Owner(**of_model["owner"])]
        for name, seconds in sorted(
            of_model["seconds"].items(), key=lambda item: (item[0].endswith(PREFETCH), -item[1])
        )
    ]
    table = pd.DataFrame(rows, columns=[*_KEY_COLUMNS, "seconds", "clips"])
    table["seed"] = table["seed"].astype("Int64")
    is_ahead = table["phase"].str.endswith(PREFETCH)
    waited = table["seconds"].mask(is_ahead)
    table["share"] = waited / waited.groupby(
        [table[name] for name in _OWNER_COLUMNS], dropna=False
    ).transform("sum")
    return table[[*COLUMNS]].round({"seconds": 3, "share": 4})


def write_times(folder: RunFolder) -> None:
    """Write the table of times of a run."""
    with suppress(SpeechmixError):
        write_csv(run_times(folder), folder.times_path)


def sum_by_phase(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds, share and milliseconds a clip of each phase, over all models; what was done ahead at
    the end."""
    if table.empty:
        return pd.DataFrame(columns=["phase", "seconds", "% of the time", "ms a clip"])
    pairs = table.groupby(_OWNER_COLUMNS, dropna=False)["clips"].first().sum()
    sums = table.groupby("phase", sort=False)["seconds"].sum().reset_index()
    is_ahead = sums["phase"].str.endswith(PREFETCH)
    waited = sums["seconds"].mask(is_ahead)
    sums["% of the time"] = 100 * waited / waited.sum()
    sums["ms a clip"] = 1000 * sums["seconds"] / pairs if pairs else float("nan")
    order = (
        sums.assign(ahead=is_ahead).sort_values(["ahead", "seconds"], ascending=[True, False]).index
    )
    return sums.loc[order].reset_index(drop=True)
