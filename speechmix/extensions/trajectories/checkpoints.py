"""Checkpoints of trainings, in the order of their steps.

In: folders of a Trainer (``checkpoint-500``, ...), folders in hub format, or a model on the hub with
patterns of its branches and tags ("step*"). Out: `Checkpoint`s with the step that is in their name.
Steps are compared as numbers: checkpoint-1000 comes after checkpoint-500.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, ModelError

if TYPE_CHECKING:
    from ...adapters.model import Model

_CONFIGS = ("config.json", "adapter_config.json")
_MOST_DIGITS = 12  # of a step; thousands and millions of it still fit 64 bits
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_WILDCARDS = re.compile(r"[*?\[]")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}

Sources = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class Checkpoint:
    """A model while it was trained.

    `training` is the folder that its checkpoints are in, or the model on the hub; `source` is the
    folder, or name on the hub, of the checkpoint; `revision` is a branch or tag on the hub.
    """

    training: str
    step: int
    source: str
    revision: str | None = None

    @property
    def label(self) -> str:
        """What the tables of a run call the model: ``TRAINING@step500``."""
        return f"{self.training}@step{self.step}"

    def load(self, **options: Any) -> Model:
        """Load the model; options of `speechmix.load`.

        Its name is the label; that of an untrained twin is the training, whatever the step.
        A folder without a processor takes that of the folder above it, where a Trainer keeps it.
        """
        from ...adapters.loading.load import load

        if self.revision is None:
            options |= _processor_above(Path(self.source))
        model = load(self.source, revision=self.revision, **options)
        model.name = self.training if model.init == "random" else self.label
        return model

    def to_dict(self) -> dict[str, object]:
        """Return the attributes, for JSON."""
        return asdict(self)


def list_checkpoints(
    sources: Sources, revisions: str | Sequence[str] | None = None
) -> list[Checkpoint]:
    """List the checkpoints of one or several trainings, by training in the order given and by step.

    A source is a folder with checkpoints in it, one checkpoint, a pattern ("runs/a/checkpoint-*"),
    or a model on the hub. `revisions` are branches or tags on the hub, or patterns of them
    ("step*"); offline, those in the cache count. InputError if there is no checkpoint, one has no
    step in its name, or two have the same step.
    """
    listed = [sources] if isinstance(sources, str | PathLike) else list(sources)
    patterns = [revisions] if isinstance(revisions, str) else list(revisions or ())
    checkpoints = [
        checkpoint for source in map(str, listed) for checkpoint in _list_source(source, patterns)
    ]
    trainings = list(dict.fromkeys(checkpoint.training for checkpoint in checkpoints))
    checkpoints.sort(key=lambda checkpoint: (trainings.index(checkpoint.training), checkpoint.step))
    for one, other in itertools.pairwise(checkpoints):
        if one.label == other.label:
            places = " and ".join(c.revision or c.source for c in (one, other))
            raise InputError(
                f"two checkpoints are called {one.label}: {places}. Give each training a folder with "
                "a name of its own, and each step once"
            )
    if not checkpoints:
        raise InputError("expected checkpoints of a training, found none")
    return checkpoints


def read_step(name: str) -> int:
    """Read the training step in the name of a checkpoint: the number behind "step", else the last.

    InputError if there is no number in it, or one that no training reaches.
    """
    match = re.search(r"step[-_ ]?(\d+)([km]?)(?![a-z])", name.lower())
    numbers = [match[1]] if match else re.findall(r"\d+", name)
    if not numbers:
        raise InputError(f"expected a training step in the name of a checkpoint, found {name!r}")
    if len(numbers[-1].lstrip("0")) > _MOST_DIGITS:
        raise InputError(
            f"expected a training step in the name of a checkpoint, found a number of {len(numbers[-1]):,} "
            f"digits: {name[:60]!r}. Rename it"
        )
    step = int(numbers[-1].lstrip("0") or 0)
    return step * _UNITS[match[2]] if match else step


def _list_source(source: str, revisions: Sequence[str]) -> list[Checkpoint]:
    if _WILDCARDS.search(source):
        folders = [Path(path) for path in glob.glob(source) if _is_checkpoint(Path(path))]
        if not folders:
            raise InputError(f"no folder with a config.json matches {source!r}")
        return _name_folders(folders)
    folder = Path(source)
    if not folder.is_dir():
        if not revisions:
            raise InputError(
                f"{source} is no folder: of a model on the hub say which revisions are its "
                "checkpoints, as --revisions 'step*'"
            )
        return [
            Checkpoint(source, read_step(revision), source, revision)
            for revision in _match_revisions(source, revisions)
        ]
    if revisions:
        raise InputError(f"revisions are those of a model on the hub, and {source} is a folder")
    inside = [path for path in folder.iterdir() if _is_checkpoint(path) and _has_step(path)]
    if inside:
        return _name_folders(inside)
    if not _is_checkpoint(folder):
        raise InputError(f"no checkpoint is in {source}: expected folders as checkpoint-500")
    return _name_folders([folder])


def _is_checkpoint(path: Path) -> bool:
    return any((path / name).is_file() for name in _CONFIGS)


def _has_step(path: Path) -> bool:
    return bool(re.search(r"\d", path.name))


def _name_folders(folders: Iterable[Path]) -> list[Checkpoint]:
    return [
        Checkpoint(path.resolve().parent.name, read_step(path.resolve().name), str(path))
        for path in folders
    ]


def _match_revisions(source: str, patterns: Sequence[str]) -> list[str]:
    """Return the branches and tags that match; a name without a wildcard is taken as it is."""
    names = [pattern for pattern in patterns if not _WILDCARDS.search(pattern)]
    if len(names) < len(patterns):
        revision_names = _list_revisions(source)
        matching = [name for name in revision_names if any(fnmatchcase(name, p) for p in patterns)]
        if not matching:
            raise InputError(
                f"{source}: no branch or tag matches {', '.join(patterns)}; there are "
                f"{', '.join(revision_names[:8]) or 'none'}"
            )
        names += matching
    return list(dict.fromkeys(names))


def _list_revisions(source: str) -> list[str]:
    """List branches and tags on the hub; those in the cache where it cannot be reached."""
    import huggingface_hub

    from ...adapters.loading.checkpoints import first_line

    try:
        refs = huggingface_hub.list_repo_refs(source)
        return [ref.name for ref in (*refs.branches, *refs.tags)]
    except Exception as error:  # of the hub's client: offline, not reached, no such model
        has_cache = Path(huggingface_hub.constants.HF_HUB_CACHE).is_dir()
        repos = huggingface_hub.scan_cache_dir().repos if has_cache else ()
        cached = [ref for repo in repos if repo.repo_id == source for ref in repo.refs]
        if not cached:
            raise InputError(
                f"the revisions of {source} cannot be listed, and none is in the cache: {first_line(error)}"
            ) from error
        return sorted(cached)


def _processor_above(folder: Path) -> dict[str, Any]:
    """Return the processor of the folder above as an option, where the folder has none.

    ModelError if its files cannot be read.
    """
    above = folder.resolve().parent
    if any((folder / name).is_file() for name in _PROCESSORS):
        return {}
    if not any((above / name).is_file() for name in _PROCESSORS):
        return {}
    from transformers import AutoProcessor

    from ...adapters.loading.checkpoints import NO_CUSTOM_CODE, check_processor_files, first_line

    check_processor_files(above)
    try:
        return {"processor": AutoProcessor.from_pretrained(above, **NO_CUSTOM_CODE)}
    except Exception as error:  # whatever transformers makes of its files
        raise ModelError(
            f"cannot read the processor in {above} ({first_line(error)}): correct its files, or give "
            "each checkpoint a processor of its own"
        ) from error
