"""Record which worker has which clips, to skip a clip that kills its worker.

In: a folder that all workers of a run see. Out: one small file a worker, written again before each
pass. A worker that dies leaves its note behind, and whoever is given its block reads there which
clips it was at when it died.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...files.json_files import JsonObject
from ...files.locks import write_error
from ...files.unfinished_files import UNFINISHED
from ...files.whole_files import write_json

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
