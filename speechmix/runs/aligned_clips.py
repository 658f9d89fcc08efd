"""The clips of a run or a shard, with their words, placed now or by an earlier start; and what
tables say of them.

In: all clips of a run. Out: those of the shard that can be scored, and the part file that holds
their word times and their rows of the clip table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..adapters.model import Model
from ..errors import SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.shards import Shard
from ..inputs.audio.byte_ranges import file_signature
from ..inputs.audio.loading import cache_recording
from ..inputs.clips.clip import Clip
from .merging import FACTS
from .out_of_memory import memory_errors_named
from .results.part_files import Owner
from .results.result_store import Key, Results
from .results.run_folder import RunFolder
from .results.tidy_tables import facts_of
from .word_times import MOST_TEXTGRIDS, WORDS, load_or_align, write_aligned_textgrid

Item = TypeVar("Item")
Skip = Callable[[str, object], None]
Progress = (
    bool | Callable[[str, int, int], None]
)  # whether a bar is shown; or what is told a stage, clips done, all clips
ALIGN = "align"  # the stage of word times


class AlignedClips:
    """Clips of a run, to be given words.

    Parameters
    ----------
    folder : RunFolder
    clips : sequence of Clip
        All of the run.
    shard : Shard
    aligner, method
        Of `speechmix.align`.
    needs_words : bool
        Whether a clip without words cannot be scored.
    job : str
        Name of the job that computes kinds alone in the folder; empty for the run itself.
    uses_pairs : bool
        Whether the other clip of each clip's pair gets words, too, where it is in another shard.

    Attributes
    ----------
    pairs : dict of str to Clip
        By name of a clip the other of its pair, if the pair has two that can be used.
    """

    def __init__(
        self,
        folder: RunFolder,
        clips: Sequence[Clip],
        shard: Shard,
        aligner: Model | None,
        method: str,
        *,
        needs_words: bool,
        job: str = "",
        uses_pairs: bool = False,
    ):
        self._folder, self._clips, self._shard = folder, clips, shard
        self._aligner, self._method, self._needs_words = aligner, method, needs_words
        self._is_run, self._uses_pairs = not job, uses_pairs
        self.pairs: dict[str, Clip] = {}

    def align_all(
        self, skip: Skip, report: Callable[[str], None], progress: Progress
    ) -> tuple[list[Clip], list[str]]:
        """Clips of the shard that can be scored, and their part files below the run's folder."""
        ready: list[Clip] = []
        keys: list[Key] = []
        own = [
            (position, clip)
            for position, clip in enumerate(self._clips)
            if self._shard.holds(clip.name)
        ]
        waiting = any(clip.words is None for _, clip in own)
        with Results(
            self._folder, Owner(), self._shard, report, own_kinds=self._own_kinds()
        ) as results:
            remember_recordings(results)
            for position, clip in shown(own, progress if waiting else False, ALIGN, total=len(own)):
                try:
                    with memory_errors_named():
                        clip.validate()
                        aligned, of_words = self._aligned(results, clip)
                    of_clip = [*of_words, self._facts_key(results, aligned, position)]
                except StorageError:
                    raise
                except SpeechmixError as error:
                    skip(clip.name, error)
                    report(f"{clip.name}  SKIPPED: {error}")
                    continue
                ready.append(aligned)
                keys += of_clip
                results.write_if_due()
            if self._uses_pairs:
                keys += self._find_pairs(results, ready)
            parts = results.settled(keys)
        return ready, self._folder.relative(parts)

    def _find_pairs(self, results: Results, ready: Sequence[Clip]) -> list[Key]:
        """Find the other clip of each clip's pair; returns keys of words of clips of other shards."""
        usable = {clip.name: clip for clip in ready}
        members: dict[str, list[Clip]] = {}
        keys: list[Key] = []
        for clip in ready:
            members.setdefault(clip.meta.get("pair", ""), [])
        members.pop("", None)
        for clip in self._clips:
            pair = members.get(clip.meta.get("pair", ""))
            if pair is None:
                continue
            if not self._shard.holds(clip.name):
                try:
                    clip.validate()
                    usable[clip.name], of_words = self._aligned(results, clip)
                except StorageError:
                    raise
                except SpeechmixError:  # its own shard says why
                    continue
                keys += of_words
            if clip.name in usable:
                pair.append(usable[clip.name])
        couples = [pair for pair in members.values() if len(pair) == 2]
        self.pairs = {one.name: other for pair in couples for one, other in (pair, pair[::-1])}
        return keys

    def _own_kinds(self) -> frozenset[str] | None:
        """What may be removed: a job leaves the word times of a run that is not finished."""
        if self._is_run:
            return None
        return frozenset() if self._folder.is_running else frozenset({FACTS, WORDS})

    def _aligned(self, results: Results, clip: Clip) -> tuple[Clip, list[Key]]:
        """Return the clip with its words, and the key of those that are placed here; a clip's line
        says what is doubtful."""
        if clip.words is not None or not (clip.text or self._needs_words):
            return clip, []
        aligned, key, is_new = load_or_align(results, clip, self._aligner, self._method)
        if self._is_run and len(self._clips) <= MOST_TEXTGRIDS:
            write_aligned_textgrid(self._folder, aligned, replace=is_new)
        return aligned, [key]

    @staticmethod
    def _facts_key(results: Results, clip: Clip, position: int) -> Key:
        marks = _marks_of(clip)
        facts = {
            "position": position,
            **facts_of(clip),
        }  # the sound is read, if it is not known
        key = Key(clip.name, FACTS, digest(facts))
        if marks and marks == _marks_of(clip):
            facts["file"] = {"path": str(clip.path), "marks": marks, "seconds": clip.duration}
        if key not in results:
            results.put(key, content=json.dumps(facts, ensure_ascii=False))
        return key


def _marks_of(clip: Clip) -> list[int | str] | None:
    """What changes when the clip's file is written again; None without a file."""
    try:
        return None if clip.path is None else file_signature(clip.path)
    except OSError:
        return None


def remember_recordings(results: Results) -> None:
    """Know the sounds of an earlier start, so that recordings of which nothing is missing are not
    read again."""
    for content in results.contents(FACTS):
        facts = json.loads(content)
        if file := facts.get("file"):
            cache_recording(file["path"], file["marks"], facts["source"]["sound"], file["seconds"])


def shown(items: Iterable[Item], show: Progress, description: str, *, total: int) -> Iterable[Item]:
    """The same items, with a bar on standard error, or told to who wants to know."""
    if callable(show):
        return _told(items, show, description, total)
    if not show or not total:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="clip", leave=False, total=total)


def _told(
    items: Iterable[Item], tell: Callable[[str, int, int], None], description: str, total: int
) -> Iterator[Item]:
    tell(description, 0, total)
    for done, item in enumerate(items, 1):
        yield item
        tell(description, done, total)
