"""Clips of a job get word times, before any model computes a result: stored ones, or new ones.

In: all clips of a job. Out: those of the shard that can be scored, with their words; part files with
the word times and the rows of the clip table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..adapters.model import Model
from ..errors import InputError, SpeechmixError, StorageError
from ..files.cache_keys import digest
from ..files.json_files import Json, read_json_object
from ..files.shard_assignment import Shard
from ..files.whole_files import whole_file
from ..inputs.audio.audio_source import cache_recording
from ..inputs.audio.decoding import file_signature
from ..inputs.clips.clip import Clip
from ..inputs.formats.textgrid import write_tiers
from ..inputs.formats.word_files import file_tier_names
from .kinds.result_kind import ResultItem
from .kinds.word_times import WORD_TIMES_KIND, add_stored_words, alignment_options
from .model_run import ClipOutcome
from .progress import ALIGN, Progress, memory_errors_named, show_progress
from .results.clip_result_files import Owner
from .results.result_store import Key, Results
from .results.run_folder import RunFolder, RunState
from .results.tidy_tables import clip_facts
from .shard_merge import FACTS

Skip = Callable[[str, object], None]
MAX_TEXTGRIDS = 1_000  # clips of a run, above which there is no TextGrid for each


@dataclass
class ClipAligner:
    """Gives word times to the clips of a job.

    Aligner and method are those of `speechmix.align`; a job that names neither uses those of the
    run in the folder. `needs_words` says whether a clip without words cannot be scored,
    `needs_phones` whether clips without phones get them. `job` is the name of a job that computes
    kinds alone, "" for the run. With `uses_pairs` the other clip of each pair gets words, too, from
    another shard; `pairs` maps a clip's name to it, if both can be used.
    """

    folder: RunFolder
    clips: Sequence[Clip]
    shard: Shard
    aligner: Model | None
    method: str
    needs_words: bool
    needs_phones: bool = False
    job: str = ""
    uses_pairs: bool = False
    pairs: dict[str, Clip] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        weights = None if self.aligner is None else self.aligner.fingerprint
        self.options = alignment_options(self.method, weights, self.needs_words, self.needs_phones)
        run_options = self._run_options()
        self._all_options = (
            [self.options] if run_options == self.options else [run_options, self.options]
        )

    def _run_options(self) -> dict[str, Json]:
        """Options of the word times that the run has, for a job that names no way to align."""
        alignment: Json = {}
        if self.job and self.aligner is None and self.method == "auto":
            with suppress(InputError, OSError):
                alignment = read_json_object(self.folder.description_path).get("alignment")
        if not isinstance(alignment, dict) or not {"method", "weights"} <= alignment.keys():
            return self.options
        return {**self.options, "method": alignment["method"], "aligner": alignment["weights"]}

    @property
    def _own_kinds(self) -> frozenset[str] | None:
        """What may be removed: a job leaves the word times of a run that is not finished."""
        if not self.job:
            return None
        return (
            frozenset()
            if RunState(self.folder).is_running
            else frozenset({FACTS, WORD_TIMES_KIND.name})
        )

    def open_results(self, report: Callable[[str], None]) -> Results:
        """Open the store of word times and of rows of the clip table."""
        return Results(self.folder, Owner(), self.shard, report, own_kinds=self._own_kinds)

    def unaligned_clips(self, report: Callable[[str], None]) -> list[Clip]:
        """Return the clips of the shard whose word times are to be computed."""
        with self.open_results(report) as results:
            remember_recordings(results.contents(FACTS))
            pending: list[Clip] = []
            for clip in filter(lambda clip: self.shard.holds(clip.name), self.clips):
                if self.needs_phones or (clip.text and clip.words is None):
                    with suppress(SpeechmixError):  # `align_clips` says why
                        clip.validate()
                        if (key := self._key(results, clip)) and key not in results:
                            pending.append(clip)
        return pending

    def align_clips(
        self,
        skip: Skip,
        report: Callable[[str], None],
        progress: Progress,
        outcomes: Mapping[str, str | None] | None = None,
    ) -> tuple[list[Clip], list[str]]:
        """Return the clips of the shard that can be scored, and their part files below the folder.

        `skip` gets the name of a clip that is left out, and the reason. `outcomes` are what workers
        have done: by name of a clip None, or why it has no word times.
        """
        outcomes = outcomes or {}
        ready: list[Clip] = []
        keys: list[Key] = []
        indexed_clips = [pair for pair in enumerate(self.clips) if self.shard.holds(pair[1].name)]
        is_shown = any(clip.words is None for _, clip in indexed_clips)
        with self.open_results(report) as results:
            remember_recordings(results.contents(FACTS))
            bar = show_progress(
                indexed_clips, progress if is_shown else False, ALIGN, total=len(indexed_clips)
            )
            for position, clip in bar:
                try:
                    if (reason := outcomes.get(clip.name)) is not None:
                        raise SpeechmixError(reason)
                    with memory_errors_named():
                        clip.validate()
                        aligned, word_keys = self._align(results, clip, clip.name in outcomes)
                    clip_keys = [*word_keys, self._facts_key(results, aligned, position)]
                except StorageError:
                    raise
                except SpeechmixError as error:
                    skip(clip.name, error)
                    report(f"{clip.name}  SKIPPED: {error}")
                    continue
                ready.append(aligned)
                keys += clip_keys
                results.write_if_due()
            if self.uses_pairs:
                keys += self._find_pairs(results, ready)
            parts = results.compact(keys)
        return ready, self.folder.relative(parts)

    def _find_pairs(self, results: Results, ready: Sequence[Clip]) -> list[Key]:
        """Find the other clip of each clip's pair; returns keys of words of clips of other shards."""
        usable = {clip.name: clip for clip in ready}
        members: dict[str, list[Clip]] = {}
        keys: list[Key] = []
        for clip in ready:
            members.setdefault(clip.meta.get("pair", ""), [])
        members.pop("", None)
        for clip in self.clips:
            pair = members.get(clip.meta.get("pair", ""))
            if pair is None:
                continue
            if not self.shard.holds(clip.name):
                try:
                    clip.validate()
                    usable[clip.name], word_keys = self._align(results, clip)
                except StorageError:
                    raise
                except SpeechmixError:  # its own shard says why
                    continue
                keys += word_keys
            if clip.name in usable:
                pair.append(usable[clip.name])
        couples = [pair for pair in members.values() if len(pair) == 2]
        self.pairs = {
            member.name: other for pair in couples for member, other in (pair, pair[::-1])
        }
        return keys

    def _key(self, results: Results, clip: Clip) -> Key | None:
        """Return the key of a clip's word times, if it is to have any: of those of the run, if
        there are."""
        keys = [
            key
            for options in self._all_options
            for key in WORD_TIMES_KIND.keys(ResultItem(self.aligner, clip, options))
        ]
        return next((key for key in keys if key in results), keys[-1] if keys else None)

    def _align(self, results: Results, clip: Clip, is_new: bool = False) -> tuple[Clip, list[Key]]:
        """Return a clip with its words, and the key of those that are stored."""
        key = self._key(results, clip)
        if key is None:
            return clip, []
        if key not in results:
            is_new = True
            item = ResultItem(self.aligner, clip, self.options)
            (outcome,) = WORD_TIMES_KIND.store(results, [item])
            if isinstance(outcome, SpeechmixError):
                raise outcome
        aligned = add_stored_words(clip, results.row(key)["content"])
        if self.job in ("", WORD_TIMES_KIND.name) and len(self.clips) <= MAX_TEXTGRIDS:
            self._write_textgrid(aligned, replace=is_new)
        return aligned, [key]

    def _write_textgrid(self, clip: Clip, *, replace: bool) -> None:
        """Write the TextGrid of an aligned clip; an old one, which may have been corrected by hand,
        is only replaced if the words are new."""
        path = self.folder.words_dir / f"{clip.name}.TextGrid"
        if path.is_file() and not replace:
            return
        with whole_file(path) as unfinished:
            write_tiers(unfinished, file_tier_names(clip.words, clip.tiers), clip.duration)

    @staticmethod
    def _facts_key(results: Results, clip: Clip, position: int) -> Key:
        """Store the row of the clip table, for which the recording is read if its hash is unknown."""
        marks = _file_marks(clip)
        facts = {"position": position, **clip_facts(clip)}
        key = Key(clip.name, FACTS, digest(facts))
        if marks and marks == _file_marks(clip):
            facts["file"] = {"path": str(clip.path), "marks": marks, "seconds": clip.duration}
        if key not in results:
            results.put(key, content=json.dumps(facts, ensure_ascii=False))
        return key


@dataclass(frozen=True)
class AlignmentRun:
    """Word times as workers compute them, block by block; has the methods of `ModelRun`.

    `options` are those of the kind; `aligner` is None where words are aligned without a model.
    """

    options: Mapping[str, Json]
    aligner: Model | None = None

    @property
    def own_kinds(self) -> frozenset[str]:
        """Kinds of the parts that it may remove."""
        return frozenset((WORD_TIMES_KIND.name,))

    def of_model(self, aligner: Model | None, *, twin: int = 0) -> AlignmentRun:
        """Return the run of an aligner."""
        return replace(self, aligner=aligner)

    def selected(self, clips: Sequence[Clip]) -> Sequence[Clip]:
        """Return all clips."""
        return clips

    def outcomes(
        self,
        results: Results,
        clips: Sequence[Clip],
        report: Callable[[str], None],
        progress: Progress,
        begins: Callable[[Sequence[Clip]], object],
    ) -> Iterator[ClipOutcome]:
        """Yield what became of each clip."""
        for clip in show_progress(clips, progress, ALIGN, total=len(clips)):
            begins([clip])
            (outcome,) = WORD_TIMES_KIND.store(
                results, [ResultItem(self.aligner, clip, self.options)]
            )
            results.write_if_due()
            if isinstance(outcome, SpeechmixError):
                yield ClipOutcome(clip, error=outcome)
            else:
                yield ClipOutcome(clip, outcome, is_new=True)


def _file_marks(clip: Clip) -> list[int | str] | None:
    """What changes when the clip's file is written again; None without a file."""
    try:
        return None if clip.path is None else file_signature(clip.path)
    except OSError:
        return None


def remember_recordings(contents: Iterable[str]) -> None:
    """Know the sounds of an earlier start by its `FACTS`, so that recordings of which nothing is
    missing are not read again."""
    for content in contents:
        facts = json.loads(content) if '"file"' in content else {}  # none of sounds in memory
        if file := facts.get("file"):
            cache_recording(file["path"], file["marks"], facts["source"]["sound"], file["seconds"])
