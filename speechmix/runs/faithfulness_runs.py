"""Faithfulness of measures over many clips, clip by clip into a journal; resumable, in shards.

In: a model, clips, options, a folder (it may be that of a run). Out: in the folder

    faithfulness/<model>.jsonl               what was found of each clip; in shards <model>/3-of-48.jsonl (stages.journal)
    faithfulness.csv, faithfulness_values.csv   the trial, over all clips

Means, tests and chosen layers are of all clips: made when the last shard is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ..adapters.model import Model
from ..alignment import align
from ..errors import InputError, SpeechmixError
from ..evaluation.faithfulness.evaluate import combine_items, evaluate_item, model_provenance
from ..evaluation.faithfulness.item_evaluation import ItemResult
from ..evaluation.faithfulness.leaderboard import DROP_COLUMNS, VALUE_COLUMNS
from ..evaluation.faithfulness.options import (
    DEFAULT_MEASURES,
    FEWEST_WORDS,
    evaluation_options,
    resolve_measures,
)
from ..evaluation.faithfulness.perturbations import custom_perturbations, name_and_fills
from ..evaluation.faithfulness.results import FaithfulnessResults
from ..evaluation.statistics.groups import TIED_BY, item_table
from ..files.cache_keys import digest
from ..files.json_files import Json, JsonObject
from ..files.locks import locked
from ..files.names import safe_name
from ..files.shards import WHOLE, Shard
from ..inputs.clips.clip import Clip
from ..inputs.clips.clip_names import refuse_duplicate_names
from ..mixing.measures.registry import custom_identities
from .journal.stage_files import TRIALS, stage_files
from .journal.stage_journal import LeftOut, run_stage
from .journal.stage_lines import AT, kept, lines
from .kinds.result_kind import version_entry

VERSION = 2  # of the evaluation; 2: layers are composed by their mixing strength
_ROWS, _DROPS = VALUE_COLUMNS[2:], DROP_COLUMNS[2:]  # of an item, which the line names
_READ_OFF = ("text", "target", "foil")  # what ties items, and decides what is found of them
_TIES = "ties"  # what else ties them: where it changes nothing is judged again
_NOT_ALIGNED = "not aligned"
_SECONDS_OF_A_LOCK = 120  # that another shard may take to write the tables


def faithfulness_of_clips(
    model: Model,
    clips: Sequence[Clip],
    out: str | PathLike[str],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    fewest: int = FEWEST_WORDS,
    aligner: Model | None = None,
    align_method: str = "auto",
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
    skipped: list[tuple[str, str]] | None = None,
    **options: Any,
) -> FaithfulnessResults | None:
    """Put measures on trial as `speechmix.faithfulness` does, and keep what is found of each clip
    in a folder.

    Parameters
    ----------
    model : Model
        With its head.
    clips : sequence of Clip
        All clips of the trial, whatever the shard; those without words are aligned first.
    out : path
        Gets the tables, beside those of other models.
    measures, fewest
        As for `speechmix.faithfulness`.
    aligner : Model, optional
        Model that aligns; else see `speechmix.align`.
    align_method : str
    shard : Shard
        Judge only the clips that it holds, beside other processes with other shards.
    overwrite : bool
        Start afresh if the folder holds a trial of this model with other options.
    progress : bool
        Show a bar.
    skipped : list, optional
        Gets (name, reason) of clips that cannot be aligned.
    **options
        judges, aggregations, metrics, protocol, units of `speechmix.faithfulness`.

    Returns
    -------
    FaithfulnessResults or None
        None while other shards are not done. Who ends last has the trial, with the tables of one
        process.

    Raises
    ------
    InputError
        For options that cannot be, two clips of one name, no clip that can be used, or a folder
        that holds a trial of this model with other options, other clips, or in another number of
        shards.
    StorageError
        If another process does this shard, or the folder cannot be written to. What was judged is
        kept.

    Examples
    --------
    >>> faithfulness_of_clips(model, clips, "runs/small", shard=Shard(3, 48))             # doctest: +SKIP
    """
    refuse_duplicate_names(clips)
    asked = evaluation_options(**options, fewest=fewest)
    told: JsonObject = {
        "measures": list(resolve_measures(model, measures)),
        "fewest": fewest,
        "protocol": options.get("protocol"),
    }
    items = _Items(clips, aligner, align_method)

    def work(item: tuple[int, Clip]) -> JsonObject:
        clip = items.aligned(item[1])
        result = evaluate_item(model, clip, items.pair_of(clip), told["measures"], asked)
        row = item_table([clip]).to_dict("records")[0]
        return {"item": {name: row[name] for name in _READ_OFF}, **_as_lists(result)}

    output = Path(out) / TRIALS / f"{safe_name(model.label)}.jsonl"
    run_stage(
        output,
        ((clip.name, (at, clip)) for at, clip in enumerate(clips) if shard.holds(clip.name)),
        work,
        options={
            **_described(model, aligner),
            **told,
            **asked.cache_entry(),
            "align": align_method,
            **version_entry(VERSION, told["measures"]),
            **_custom_code(told["measures"], asked.judges or ()),
        },
        ingredients=items.ingredients,
        unimportant=(AT, _TIES),
        why="not judged",
        inputs={"corpus": digest(item_table(clips).to_csv(index=False))},
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )
    if stage_files(output).missing:
        return None
    with locked(output.parent, "tables", wait=_SECONDS_OF_A_LOCK):
        trial = stored_trial(output, {**model_provenance(model), **told}, skipped)
        trial.write(out)
    return trial


def _custom_code(measures: Sequence[str], references: Sequence[str]) -> JsonObject:
    """Identities of custom measures and perturbations, so that results of edited functions are
    computed again."""
    names = [name_and_fills(name)[0] for name in measures]
    custom = {**custom_identities(names), **custom_perturbations(references)}
    return {"custom": custom} if custom else {}


def _described(model: Model, aligner: Model | None) -> JsonObject:
    """Which models judge and align, as the options of the journal say it."""
    of_aligner = aligner and f"{aligner.label} {aligner.fingerprint}"
    return {
        **model_provenance(model),
        "model": model.label,
        "dtype": str(model.dtype),
        "aligner": of_aligner,
    }


def stored_trial(
    output: Path, told: Mapping[str, Json], skipped: list[tuple[str, str]] | None = None
) -> FaithfulnessResults:
    """Put the lines of a journal, or of all its shards, together.

    Parameters
    ----------
    output : Path
        By the name that one process gives it.
    told : mapping
        For the trial's provenance.
    skipped : list, optional
        Gets (name, reason) of clips that could not be aligned.

    Raises
    ------
    InputError
        If shards are missing or of other options or clips, or no clip could be aligned.
    """
    left_out = [(line["key"], line["reason"]) for line in lines(output) if "why" in line]
    if skipped is not None:
        skipped += left_out
    table = pd.DataFrame(
        [{"clip": line["key"], **line["item"], **line[_TIES]} for line in kept(output)]
    )
    if table.empty:
        reasons = "; ".join(reason for _, reason in left_out[:3])
        raise InputError(f"no clip can be used: {reasons or 'there are none'}")
    return combine_items(map(_of_lists, kept(output)), table, told)


class _Items:
    """Clips of a trial with their words and pairs; each is aligned once, when it is asked for."""

    def __init__(self, clips: Sequence[Clip], aligner: Model | None, method: str):
        self._clips, self._aligner, self._method = clips, aligner, method
        self._aligned: dict[str, Clip | SpeechmixError] = {}

    @cached_property
    def _pairs(self) -> dict[str, list[Clip]]:
        members: dict[str, list[Clip]] = {}
        for clip in self._clips:
            members.setdefault(clip.meta.get("pair", ""), []).append(clip)
        return members

    def tied_to(self, clip: Clip) -> list[Clip]:
        """The clip, and the others of its pair."""
        pair = clip.meta.get("pair")
        return (
            [clip, *(other for other in self._pairs[pair] if other.name != clip.name)]
            if pair
            else [clip]
        )

    def aligned(self, clip: Clip) -> Clip:
        """The clip with words, or the error of one that cannot be aligned, raised."""
        if clip.name not in self._aligned:
            try:
                self._aligned[clip.name] = align(clip, model=self._aligner, method=self._method)
            except SpeechmixError as error:
                self._aligned[clip.name] = error
        result = self._aligned[clip.name]
        if isinstance(result, SpeechmixError):
            raise LeftOut(_NOT_ALIGNED, str(result))
        return result

    def ingredients(self, item: tuple[int, Clip], stored: Mapping[str, Json]) -> JsonObject:
        """What decides the line of a clip: the clip and those of its pair, their sound too, and
        what ties it to others."""
        at, clip = item
        ties = {
            name: clip.meta[name] for name in TIED_BY if name in clip.meta and name not in _READ_OFF
        }
        return {
            "of": digest([_decisive(other) for other in self.tied_to(clip)]),
            AT: at,
            _TIES: ties,
        }

    def pair_of(self, clip: Clip) -> Clip | None:
        """The other member of a pair of two that can be used."""
        others = list(self._usable(other for other in self.tied_to(clip)[1:]))
        return others[0] if len(others) == 1 else None

    def _usable(self, clips: Iterator[Clip]) -> Iterator[Clip]:
        for clip in clips:
            try:
                yield self.aligned(clip)
            except LeftOut:
                continue


def _decisive(clip: Clip) -> Any:
    """What decides what is found of a clip; the reason where its sound cannot be read."""
    try:
        return clip.ingredients
    except SpeechmixError as error:
        return str(error)


def _as_lists(result: ItemResult) -> JsonObject:
    """What was found, as a line keeps it: names of columns are not repeated row by row."""
    return {
        "rows": [[_plain(row[name]) for name in _ROWS] for row in result.rows],
        "drops": [[_plain(drop[name]) for name in _DROPS] for drop in result.drops],
        "notes": result.notes,
    }


def _of_lists(line: Mapping[str, Json]) -> ItemResult:
    rows = [dict(zip(_ROWS, row, strict=True)) for row in line["rows"]]
    return ItemResult(
        rows, [dict(zip(_DROPS, drop, strict=True)) for drop in line["drops"]], line["notes"]
    )


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item() if hasattr(value, "item") else value
