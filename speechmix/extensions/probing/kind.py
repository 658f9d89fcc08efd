"""Result kind "probes": stored states of clips, and probes fitted at the end.

In: a model and a clip with words, one forward pass. Out: in the run's folder

    results/<model>/                    mean state of target and deciding position in every layer, a row for each clip
    probes.csv, probe_answers.csv       `extensions.probing`: trained models beside some of their random twins

The probes are fitted again only if some state, label or group has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from ...errors import InputError, SpeechmixError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject, read_json_object
from ...files.text_files import read_csv, write_csv
from ...files.whole_files import write_json
from ...inputs.clips.clip import Clip
from ...runs.kinds.result_kind import FinishedResults, Result, ResultItem, ResultKind
from ...runs.results.clip_result_files import Owner, Part
from ...runs.results.run_folder import RunFolder
from .fits import ProbeSettings
from .probe import fit_models
from .scores import ANSWERS_FILE, FILE
from .task import ItemStates, Position, ProbeTask, read_item_states

POSITIONS = ("target", "deciding")
LABEL, SIDE, CONTROL = "number", "side", "control"  # columns of a manifest that the study is about
PROBED_TWINS = 5  # of each model: the band in which a new one would lie needs no more
STATES = "states"
_REVISION = 2  # of the tables: raised when the same states give other columns or numbers
_SETTINGS = ProbeSettings(controls=2)
_TWIN_CONTROLS = 0  # which clips' words can be learned by heart is a question for the trained model


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    is_probed = item.model.init == "trained" or item.twin_index < PROBED_TWINS
    if not is_probed or not item.clip.words:
        return None
    return {**item.ingredients, "at": _probed_positions(item), **_optional_reading_options(item)}


def _probed_positions(item: ResultItem) -> Sequence[Position]:
    return tuple(item.options.get("positions", POSITIONS))


def _optional_reading_options(item: ResultItem) -> JsonObject:
    """Further options of `read_item_states`, where they are given."""
    return {name: item.options[name] for name in ("stacks", "rounding") if name in item.options}


def _compute(item: ResultItem) -> Result:
    states = read_item_states(
        item.model, item.clip, _probed_positions(item), **_optional_reading_options(item)
    )
    missing = [
        [stack, position, reason] for (stack, position), reason in states.missing_reasons.items()
    ]
    return Result(missing, _encode_states(states))


def _finish(finished: FinishedResults) -> None:
    """Fit and write the probes of all models whose states are stored, in a run of all kinds."""
    if finished.job:
        return
    states = {owner: stored_states(parts) for owner, parts in finished.parts_by_owner.items()}
    write_probes(finished, {owner: by_clip for owner, by_clip in states.items() if by_clip})


STATES_KIND = ResultKind(STATES, _compute, cache_key=_cache_key, finish=_finish)


def _encode_states(states: ItemStates) -> bytes:
    from safetensors.numpy import save

    return save(
        {
            f"{stack} {position}": np.ascontiguousarray(vector)
            for (stack, position), vector in states.states.items()
        }
    )


def stored_states(parts: Sequence[Part]) -> dict[str, ItemStates]:
    """States that lie in parts of one model, by clip; a damaged part is an `InputError`."""
    from safetensors.numpy import load

    by_clip = {}
    for part in parts:
        if STATES not in part.read(("kind",))["kind"].unique().to_pylist():
            continue
        rows = part.read(("clip", "kind", "content", "vectors"))
        for row in rows.filter(pc.equal(rows["kind"], STATES)).to_pylist():
            vectors_by_position = load(row["vectors"])
            state_vectors: dict[tuple[str, str | int], np.ndarray] = {
                (name.partition(" ")[0], name.partition(" ")[2]): vector
                for name, vector in sorted(vectors_by_position.items())
            }
            missing = {
                (stack, position): reason for stack, position, reason in json.loads(row["content"])
            }
            by_clip[row["clip"]] = ItemStates(state_vectors, missing)
    return by_clip


def write_probes(
    finished: FinishedResults, models: Mapping[Owner, Mapping[str, ItemStates]]
) -> None:
    """Fit the probes of a run and write their tables; none where no clip has a number that the cue decides.

    Parameters
    ----------
    finished : FinishedResults
    models : mapping of Owner to mapping of str to States
        States of each model, by clip.
    """
    if not models:
        return
    folder, report = finished.folder, finished.report
    clips = [clip for clip in finished.clips if clip.meta.get(CONTROL) != "yes"]
    try:
        by = SIDE if any(clip.meta.get(SIDE) for clip in clips) else None
        task = ProbeTask.from_items(clips, LABEL, group=finished.group, by=by)
    except InputError as error:
        report(f"nothing is probed: {error}")
        return
    unread = "its states were not read in this run"
    states: dict[Owner, list[ItemStates | str]] = {
        model: [
            by_clip.get(item.name, unread) if isinstance(item, Clip) else unread
            for item in task.items
        ]
        for model, by_clip in models.items()
    }
    question = _probe_request(folder, task, states)
    noted = folder.probes_key_path
    tables = [folder.path / FILE, folder.path / ANSWERS_FILE]
    if (
        noted.is_file()
        and all(path.is_file() for path in tables)
        and _read_probe_key(noted) == question
    ):
        return
    for path in tables:
        _remove_number_rows(path)
    probes = fit_models(states.items(), task, _SETTINGS, twin_controls=_TWIN_CONTROLS)
    for reason in dict.fromkeys(probes.left_out.loc[probes.left_out["item"] == "", "reason"]):
        report(f"not probed: {reason}")
    if len(probes.to_dataframe()):
        probes.write(folder.path)
    write_json(noted, {"question": question})


def _probe_request(
    folder: RunFolder, task: ProbeTask, states: Mapping[Owner, Sequence[ItemStates | str]]
) -> str:
    """Hash of all that the tables are made of."""
    numbers = {
        str(tuple(vars(model).values())): [
            of_item
            if isinstance(of_item, str)
            else sorted(
                (f"{stack} {position}", vector.tobytes().hex())
                for (stack, position), vector in of_item.states.items()
            )
            for of_item in of_model
        ]
        for model, of_model in states.items()
    }
    arrays = {name: getattr(task, name).tolist() for name in ("labels", "groups", "types", "parts")}
    return digest(
        {
            "states": digest(numbers),
            "names": task.names,
            **arrays,
            **_SETTINGS.to_dict(),
            "twins": _TWIN_CONTROLS,
            "revision": _REVISION,
        }
    )


def _remove_number_rows(path: Path) -> None:
    """Remove the rows of an earlier start from a table; those of other labels (`speechmix probe --out RUN`) stay."""
    try:
        table = read_csv(path) if path.is_file() else pd.DataFrame({"label": []})
        others = table[table["label"] != LABEL]
    except (InputError, KeyError):
        others = pd.DataFrame()
    if len(others):
        write_csv(others, path)
    else:
        path.unlink(missing_ok=True)


def _read_probe_key(path: Path) -> object:
    try:
        return read_json_object(path).get("question")
    except SpeechmixError:
        return None
