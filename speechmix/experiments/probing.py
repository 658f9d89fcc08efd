"""Probes of a run: states of each clip kept beside its maps, and what is read off them at the run's end.

In: models and clips while a run scores them, one plain pass a clip. Out: in the run's folder

    states/<model>/<clip>.safetensors   mean state of target and deciding position in every layer, with the hash of its question
    probes.csv, probe_answers.csv       `evaluation.probing`: trained models beside some of their random twins

States are kept like everything else of a run: a later start uses them if model, clip and cue are still the same. The probes are
fitted again only if some state, label or group has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..adapters.model import Model
from ..errors import InputError, SpeechmixError
from ..evaluation.probing.fits import Settings
from ..evaluation.probing.positions import States, states_at
from ..evaluation.probing.probe import ANSWERS_FILE, FILE, probes_of
from ..evaluation.probing.task import Task
from ..files.identity import digest
from ..files.text_files import read_csv, write_csv
from ..files.whole_files import whole_file, write_json
from ..inputs.clips import Clip
from .folder import RunFolder

Report = Callable[[str], None]
POSITIONS = ("target", "deciding")
LABEL, SIDE, CONTROL = "number", "side", "control"  # columns of a manifest that the study asks about
PROBED_TWINS = 5  # of each model: the band in which a new one would lie needs no more
_SETTINGS = Settings(controls=2)
_TWIN_CONTROLS = 0  # which clips' words can be learned by heart is asked of the trained model


class ProbedModel(NamedTuple):
    """A model whose states were kept, as tables name it."""

    name: str
    init: str
    seed: int | None
    label: str


def keep_states(folder: RunFolder, model: Model, clip: Clip, report: Report) -> None:
    """Keep the states of a clip, unless they are there already."""
    question = _question(model, clip)
    path = folder.states(model.label, clip)
    if path.is_file() and _read(path, report)[1] == question:
        return
    states = states_at(model, clip, POSITIONS)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, states, question)


def _question(model: Model, clip: Clip) -> str:
    return digest({"weights": model.fingerprint, "dtype": str(model.state_dtype), "at": POSITIONS, **clip.ingredients})


def _write(path: Path, states: States, question: str) -> None:
    from safetensors.numpy import save_file

    vectors = {f"{stack} {position}": np.ascontiguousarray(at) for (stack, position), at in states.at.items()}
    missing = [[stack, position, reason] for (stack, position), reason in states.missing.items()]
    checksum = digest([sorted((name, digest(at.tobytes().hex())) for name, at in vectors.items()), question, missing])
    told = {"question": question, "missing": json.dumps(missing), "checksum": checksum}
    with whole_file(path) as unfinished:
        save_file(vectors, unfinished, metadata=told)


def _read(path: Path, report: Report) -> tuple[States, str]:
    """States that are kept, and their question; "" for a file that is not as it was written, which is said."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            told = file.metadata() or {}
            names = list(file.keys())
            vectors = {name: file.get_tensor(name) for name in names}
        missing = json.loads(told["missing"])
        whole = sorted((name, digest(at.tobytes().hex())) for name, at in vectors.items())
        if told["checksum"] != digest([whole, told["question"], missing]):
            raise ValueError("its checksum is another")
        at = {(name.partition(" ")[0], name.partition(" ")[2]): vector for name, vector in vectors.items()}
        return States(at, {(stack, position): reason for stack, position, reason in missing}), told["question"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        report(f"{path} is damaged and made again ({error})")
        return States({}, {}), ""


def write_probes(
    folder: RunFolder, models: Mapping[ProbedModel, Collection[str]], clips: Sequence[Clip], report: Report
) -> None:
    """Fit the probes of a run and write their tables; none where no clip has a number that the cue decides.

    Parameters
    ----------
    folder : RunFolder
    models : mapping of ProbedModel to collection of str
        Names of the clips whose states were kept in this run; what an earlier start left may be of other weights.
    clips : sequence of Clip
    report : callable
        Gets a line for what cannot be probed.
    """
    asked = [clip for clip in clips if clip.meta.get(CONTROL) != "yes"]
    try:
        by = SIDE if any(clip.meta.get(SIDE) for clip in asked) else None
        task = Task.of(asked, LABEL, by=by)
    except InputError as error:
        report(f"nothing is probed: {error}")
        return
    states = {model: list(_kept(folder, model, names, task, report)) for model, names in models.items()}
    question = _question_of_probes(folder, task, states)
    noted = folder.probes_question
    tables = [folder.path / FILE, folder.path / ANSWERS_FILE]
    if noted.is_file() and all(path.is_file() for path in tables) and _noted(noted) == question:
        return
    for path in tables:
        _drop_label(path)
    probes = probes_of(states.items(), task, _SETTINGS, twin_controls=_TWIN_CONTROLS)
    for reason in dict.fromkeys(probes.left_out.loc[probes.left_out["item"] == "", "reason"]):
        report(f"not probed: {reason}")
    if len(probes.table):
        probes.write(folder.path)
    write_json(noted, {"question": question})


def _kept(
    folder: RunFolder, model: ProbedModel, names: Collection[str], task: Task, report: Report
) -> Iterator[States | str]:
    for item in task.items:
        if not isinstance(item, Clip) or item.name not in names:
            yield "its states were not read in this run"
            continue
        states, question = _read(folder.states(model.label, item), report)
        yield states if question else "its states cannot be read"


def _question_of_probes(folder: RunFolder, task: Task, states: dict[ProbedModel, list[States | str]]) -> str:
    """Hash of all that the tables are made of."""
    numbers = {
        str(model): [
            one if isinstance(one, str) else [(str(key), at.tobytes().hex()) for key, at in one.at.items()]
            for one in of_model
        ]
        for model, of_model in states.items()
    }
    arrays = {name: getattr(task, name).tolist() for name in ("labels", "groups", "types", "parts")}
    return digest(
        {"states": digest(numbers), "names": task.names, **arrays, **vars(_SETTINGS), "twins": _TWIN_CONTROLS}
    )


def _drop_label(path: Path) -> None:
    """Take the rows of an earlier start out of a table; those of other labels (`speechmix probe --out RUN`) stay."""
    try:
        table = read_csv(path) if path.is_file() else pd.DataFrame({"label": []})
        others = table[table["label"] != LABEL]
    except (InputError, KeyError):
        others = pd.DataFrame()
    if len(others):
        write_csv(others, path)
    else:
        path.unlink(missing_ok=True)


def _noted(path: Path) -> str | None:
    from ..files.json_files import read_json_object

    try:
        return read_json_object(path).get("question")
    except SpeechmixError:
        return None
