"""Worker that loads one model and works on blocks of clips.

In: what the pass of a model is about, then blocks of clips. Out: a row for each clip, small, that
says what is kept of it or why it is left out. What is kept lies in the run's folder before the row
is returned, in part files named after the block: they are the checkpoint. Whoever is given a block
that another died at finds there what that one had done, and no list of finished clips has to be
kept in step with the results. Workers take no lock: files named after a block are its worker's own.

Record which worker has which clips, to skip a clip that kills its worker.

In: a folder that all workers of a run see. Out: one small file a worker, written again before each
pass. A worker that dies leaves its note behind, and whoever is given its block reads there which
clips it was at when it died.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ...adapters.model import Model
from ...errors import SpeechmixError, StorageError
from ...files.json_files import JsonObject
from ...files.shard_assignment import Shard
from ...files.whole_files import UNFINISHED, write_error, write_json
from ...inputs.clips.clip import Clip
from ...runs.clip_aligner import AlignmentRun
from ...runs.model_run import ClipOutcome, ModelRun
from ...runs.results.clip_result_files import Owner
from ...runs.results.result_store import Results
from ...runs.results.run_folder import RunFolder

MAX_DEATHS = 2  # of workers that were at a clip; then it is left out


class Attempts:
    """Notes of one worker, and those that others left.

    No other worker has the name `worker`, also none that the same machine starts later.
    `alive_nodes` returns the machines that are alive, named as `node`: a worker that dies with its
    machine does not die of a clip.
    """

    def __init__(
        self, folder: Path, worker: str, node: str, alive_nodes: Callable[[], Collection[str]]
    ):
        self._path = folder / f"{worker}.json"
        self._node, self._alive_nodes = node, alive_nodes
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, block: str, clips: Sequence[str]) -> None:
        """Record which clips of a block begin now.

        StorageError if it cannot be written: no clip's fault, and none is left out for it.
        """
        try:
            write_json(self._path, {"node": self._node, "block": block, "clips": list(clips)})
        except OSError as error:
            raise write_error(self._path.parent, error) from error

    def end(self) -> None:
        """Say that the block is done."""
        self._path.unlink(missing_ok=True)

    def deaths(self, block: str) -> Counter[str]:
        """How many workers have died at each clip of a block, other than with their machines."""
        notes = [note for note in self._others() if note["block"] == block]
        alive = self._alive_nodes() if notes else ()
        return Counter(name for note in notes if note["node"] in alive for name in note["clips"])

    def _others(self) -> Iterator[JsonObject]:
        for name in sorted(os.listdir(self._path.parent)):
            if name != self._path.name and not name.startswith(UNFINISHED):
                # Its block is done; or the machine that was writing it went down, and no clip is at
                # fault.
                with suppress(FileNotFoundError, ValueError):
                    yield json.loads((self._path.parent / name).read_bytes())


# A row a clip; of a pass that cannot go on, one row with what is wrong.
ROW = pa.schema(
    {
        "clip": pa.string(),
        "block": pa.string(),
        "owner": pa.string(),
        "keys": pa.list_(pa.list_(pa.string())),
        "reason": pa.string(),
        "is_heard": pa.bool_(),
        "lines": pa.list_(pa.string()),
        "stops": pa.string(),
    }
)


@dataclass(frozen=True)
class ClipBlock(Shard):
    """A shard that is a block of clips, of whatever names; the names of its files begin with the
    block's."""

    name: str = ""

    @property
    def prefix(self) -> str:
        """What the names of its files begin with."""
        return f"{self.name}."


@dataclass(frozen=True)
class Pass:
    """What a worker has to know of a pass of one model, or of the aligner, through the clips.

    The folder is at the same place on all machines. `load` loads the model, None where words are
    aligned without one. `former` are the models whose pass came before. `part_paths` are the part
    files that are there when the pass begins, `attempts` is the folder of `Attempts`.
    """

    folder: Path
    load: Callable[[], Model] | None
    run: ModelRun | AlignmentRun
    former: Sequence[Owner]
    part_paths: Sequence[Path]
    attempts: Path


@dataclass
class BlockWorker:
    """A worker with its model.

    `node` is the machine it is on; `alive_nodes` is that of `Attempts`. SpeechmixError if the model
    cannot be loaded.
    """

    clip_pass: Pass
    node: str
    alive_nodes: Callable[[], Collection[str]]
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _lines: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        folder, model = (
            RunFolder(self.clip_pass.folder),
            self.clip_pass.load and self.clip_pass.load(),
        )
        self.owner, self.run = self._start(folder, model)
        self._attempts = Attempts(
            self.clip_pass.attempts, secrets.token_hex(8), self.node, self.alive_nodes
        )
        owner_paths = [
            path
            for path in self.clip_pass.part_paths
            if path.parent == folder.results_dir(self.owner.label)
        ]
        self._results = self._open.enter_context(
            Results(folder, self.owner, Shard(), self._lines.append, paths=owner_paths)
        )
        if model is not None:
            self._open.enter_context(model.unchanged())

    def _start(
        self, folder: RunFolder, model: Model | None
    ) -> tuple[Owner, ModelRun | AlignmentRun]:
        run = self.clip_pass.run
        if isinstance(run, AlignmentRun):
            return Owner(), run.of_model(model)
        if model is None:
            raise TypeError("results of models need a function that loads one")
        model.forget_fingerprint()
        owner, former = Owner.of(model), self.clip_pass.former
        twin = sum(
            (former_owner.name, former_owner.init) == (model.name, "random")
            for former_owner in former
        )
        return owner, run.of_model(model, twin=twin)

    def rows(self, block: str, clips: Sequence[Clip]) -> Iterator[JsonObject]:
        """Work on a block; its results are on the disk when the first row comes.

        A block has the same name whenever it is given out. StorageError if the run's folder cannot
        be written to.
        """
        self._results.change_shard(ClipBlock(name=block))
        deaths = self._attempts.deaths(block)
        selected_clips = self.run.selected(clips)
        answers = {
            answer.clip.name: answer for answer in self._answers(block, selected_clips, deaths)
        }
        self._results.write()
        self._attempts.end()
        lines = list(self._lines)
        self._lines.clear()  # the list itself is what `Results` reports to
        for position, clip in enumerate(clips):
            answer = answers.get(clip.name)
            yield {
                **result_row(self.owner, clip.name, block),
                "keys": [list(key[1:]) for key in answer.keys] if answer else [],
                "reason": str(answer.error) if answer and answer.error is not None else None,
                "is_heard": answer is not None,
                "lines": lines if position == 0 else [],
            }

    def _answers(
        self, block: str, clips: Sequence[Clip], deaths: Mapping[str, int]
    ) -> Iterator[ClipOutcome]:
        """What became of each clip. Where a worker died before, one clip at a time, so that the
        next death has one cause."""
        todo = {clip.name: clip for clip in clips}
        if not deaths:
            try:
                for answer in self._answered(block, clips):
                    del todo[answer.clip.name]
                    yield answer
            except StorageError:
                raise
            except Exception as error:  # of one of them: the others are done below
                self._lines.append(
                    f"block {block}: {type(error).__name__}: {error}: its clips are tried one by "
                    "one"
                )
        for clip in sorted(todo.values(), key=lambda clip: deaths.get(clip.name, 0)):
            if deaths.get(clip.name):
                self._results.write()  # should it be the one, nothing is lost with it
            yield self._alone(block, clip, deaths.get(clip.name, 0))

    def _alone(self, block: str, clip: Clip, deaths: int) -> ClipOutcome:
        """ClipOutcome of one clip; an error that nobody foresaw costs this clip alone."""
        if deaths >= MAX_DEATHS:
            return self._left_out(
                clip,
                f"{deaths} workers died at this clip, so it is left out; the same command tries it "
                "again",
            )
        try:
            [answer] = self._answered(block, [clip])
            return answer
        except StorageError:
            raise
        except Exception as error:
            return self._left_out(clip, f"{type(error).__name__}: {error}")

    def _answered(self, block: str, clips: Sequence[Clip]) -> Iterator[ClipOutcome]:
        def begins(group: Sequence[Clip]) -> None:
            self._attempts.begin(block, [clip.name for clip in group])

        return self.run.outcomes(self._results, clips, self._lines.append, False, begins)

    def _left_out(self, clip: Clip, reason: str) -> ClipOutcome:
        self._lines.append(f"{clip.name}  {self.owner.label}  SKIPPED: {reason}")
        return ClipOutcome(clip, [], SpeechmixError(reason))


def result_row(owner: Owner | None, clip: str, block: str) -> JsonObject:
    """Return an empty row."""
    owner_json = None if owner is None else json.dumps(vars(owner))
    return {
        **dict.fromkeys(ROW.names),
        "clip": clip,
        "block": block,
        "owner": owner_json,
        "lines": [],
        "keys": [],
    }
