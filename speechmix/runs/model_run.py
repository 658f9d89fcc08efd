"""Run one model over the clips and result kinds that are missing.

In: a model, clips with words, the kinds that the run requests. Out: part files that hold the results.
What an earlier start left is used; what fails is recorded, and the other clips go on.

Say in one line what was computed of a part of a run: one model or twin and its clips.

In: what `result_line` takes of each clip. Out: the line of a single clip as it is; of several, how
many were scored, whose word times may be wrong, which clips the model does not transcribe, and
which transcripts differ from their texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..adapters.generation.greedy_generation import needs_generated_text, transcribe
from ..adapters.generation.text_tokens import generated_text_key
from ..adapters.model import Model
from ..alignment.alignment_result import without_calibration_note
from ..errors import SpeechmixError, StorageError
from ..files.json_files import Json, JsonObject
from ..files.timing import count_clip, phase
from ..inputs.clips.clip import Clip
from ..inputs.words.transcript_accuracy import count_word_errors, is_other_text
from ..mixing.passes.batches import clips_per_pass, prefetch_inputs, split_into_groups
from .kinds.generated_texts import GENERATED, TRANSCRIPTS_KIND
from .kinds.result_kind import ClipSnapshot, ResultItem, ResultKind
from .progress import Progress, show_progress
from .results.clip_result_files import Part
from .results.result_store import Key, Results
from .results.tidy_tables import result_line

if TYPE_CHECKING:
    from .scored_run import Run


_MAX_NAMES = 5  # of a list of clips; the tables have them all


class PartSummary:
    """Collects the clips of one model that were computed.

    Doubts about clips are listed for a trained model alone: its twins have the same word times.
    """

    def __init__(self, model: Model):
        self._model = model
        self._clip_count = self._transcript_count = 0
        self._single_line = ""
        self._doubtful_names: list[str] = []
        self._other_text_names: list[str] = []
        self._differing_names: list[str] = []  # by less

    def add(self, clip: Clip, shares: Sequence[Mapping[str, Json]], transcript: str | None) -> None:
        """Add a clip, as `result_line` takes it."""
        self._clip_count += 1
        if self._clip_count == 1:
            self._single_line = result_line(clip, self._model, shares, transcript)
        if without_calibration_note(" ".join(clip.doubts)):
            self._doubtful_names.append(clip.name)
        if transcript is not None and clip.text is not None:
            self._transcript_count += 1
            if is_other_text(transcript, clip.text, clip.language):
                self._other_text_names.append(clip.name)
            elif count_word_errors(clip.text, transcript, clip.language):
                self._differing_names.append(clip.name)

    def line(self) -> str | None:
        """Return the line; None without any clip."""
        if self._clip_count <= 1:
            return self._single_line or None
        phrases = [f"{self._model.label}: {self._clip_count} clips scored"]
        if self._model.init == "trained" and self._doubtful_names:
            phrases.append(
                f"word times may be wrong in {len(self._doubtful_names)} "
                f"({_list_names(self._doubtful_names)}; clips.csv says why)"
            )
        if count := len(self._other_text_names):
            phrases.append(
                f"writes another text for {count} clip{'s' * (count > 1)}: "
                f"{_list_names(self._other_text_names)} (see transcripts.csv)"
            )
        if count := len(self._differing_names):
            phrases.append(
                f"{count} of {self._transcript_count} transcripts differ{'s' * (count == 1)} from the "
                f"text by some words ({_list_names(self._differing_names)})"
            )
        return "; ".join(phrases)


def _list_names(names: Sequence[str]) -> str:
    """List the first names, and how many more there are.

    Examples
    --------
    >>> _list_names(["a", "b"]), _list_names(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


Report = Callable[[str], None]


@dataclass
class ClipOutcome:
    """What became of one clip.

    `keys` are those of its results in the store; `error` is why it, or one of the further kinds,
    failed; `is_new` says whether something was computed now.
    """

    clip: Clip
    keys: list[Key] = field(default_factory=list)
    error: SpeechmixError | None = None
    is_new: bool = False


@dataclass
class ModelRun:
    """What a run computes of a model, clip by clip; workers get it before there is a model.

    `kinds` come in the order in which they are computed, each with its options. `drawn_clip_names`
    are the clips to draw. `twin_clips` are those that further random twins get, which only say how
    much the draw of weights matters; None treats these twins as the first. `snapshots` are what
    each clip was when the run began, and `pairs` the other clip of its pair, where a kind uses it,
    both by name. `job` is the name of a job that computes kinds alone in a run's folder, "" for the
    run.
    """

    kinds: tuple[tuple[ResultKind, Mapping[str, Json]], ...]
    drawn_clip_names: frozenset[str] = frozenset()
    twin_clips: frozenset[str] | None = None
    snapshots: Mapping[str, ClipSnapshot] = field(default_factory=dict)
    pairs: Mapping[str, Clip] = field(default_factory=dict)
    job: str = ""
    _model: Model = field(init=False, repr=False)
    _twin_index: int = field(default=0, init=False)
    _shared: dict[str, JsonObject] = field(default_factory=dict, init=False, repr=False)

    @property
    def own_kinds(self) -> frozenset[str] | None:
        """Kinds of the parts that a job may remove; None for the run itself, which may remove all."""
        return frozenset(kind.name for kind, _ in self.kinds) if self.job else None

    def of_model(self, model: Model, *, twin: int) -> ModelRun:
        """Return the run of a model; `twin` counts the random twins of the model before this one."""
        run = copy(self)
        run._model, run._twin_index = model, twin if model.init == "random" else 0
        run._shared = {kind.name: {} for kind, _ in self.kinds}
        return run

    @property
    def _is_partial(self) -> bool:
        """Whether the model is a further twin, which gets few clips."""
        return self._twin_index > 0 and self.twin_clips is not None

    def score(
        self,
        results: Results,
        clips: Sequence[Clip],
        run: Run,
        report: Report,
        progress: Progress,
    ) -> list[Part]:
        """Compute the results of clips; returns the part files that hold them."""
        keys_of_clip: dict[str, list[Key]] = {}
        with results, self._model.unchanged():
            for outcome in self.outcomes(results, clips, report, progress):
                keys_of_clip[outcome.clip.name] = outcome.keys
                if outcome.error is None:
                    run.done += 1
                else:
                    run.skip(outcome.clip.name, outcome.error, self._model.label)
            return results.compact(
                [key for clip in clips for key in keys_of_clip.get(clip.name, ())]
            )

    def selected(self, clips: Sequence[Clip]) -> list[Clip]:
        """Return those of some clips that the model has results of."""
        few = self.twin_clips if self._is_partial else None
        return [clip for clip in clips if few is None or clip.name in few]

    def outcomes(
        self,
        results: Results,
        clips: Sequence[Clip],
        report: Report,
        progress: Progress,
        begins: Callable[[Sequence[Clip]], object] | None = None,
    ) -> Iterator[ClipOutcome]:
        """Yield what became of each clip of the model: first those whose results are all stored.

        New results go to `results`. `begins` is called with the clips that share a pass before it
        begins; without it the report says how many were stored.
        """
        pending = []
        for clip in self.selected(clips):
            outcome = ClipOutcome(clip, self._stored_keys(results, clip))
            if outcome.keys:
                yield outcome
            else:
                pending.append(clip)
        stored_count = len(self.selected(clips)) - len(pending)
        if begins is None and stored_count:
            report(
                f"{self._model.label}: {stored_count} of {stored_count + len(pending)} clips were scored before"
            )
        at_once, summary = clips_per_pass(self._model), PartSummary(self._model)
        with closing(prefetch_inputs(self._model, pending, count=at_once)) as prefetched_clips:
            bar = show_progress(
                prefetched_clips, progress, f"score {self._model.label}", total=len(pending)
            )
            for group in split_into_groups(bar, at_once):
                if begins is not None:
                    begins(group)
                for outcome in self._computed(results, group):
                    self._report_outcome(results, outcome, report, summary)
                    results.write_if_due()
                    yield outcome
        if (line := summary.line()) is not None:
            results.write()  # what is said to be scored is on the disk
            report(line)

    def _stored_keys(self, results: Results, clip: Clip) -> list[Key]:
        """Keys of a clip whose results are all stored; none if one is missing, or its text is to be generated."""
        if clip.text is None:
            return []
        keys = [
            key
            for kind, options in self.kinds
            for key in kind.keys(self._item(kind, options, clip))
        ]
        return keys if all(key in results for key in keys) else []

    def _computed(self, results: Results, group: Sequence[Clip]) -> list[ClipOutcome]:
        """Compute all kinds of the clips that share a pass: an error of one ends that clip alone."""
        outcomes = [ClipOutcome(clip) for clip in group]
        for kind, options in self.kinds:
            pending = [outcome for outcome in outcomes if outcome.error is None]
            items = [
                self._item(kind, options, pending_outcome.clip, results, pending_outcome.keys)
                for pending_outcome in pending
            ]
            former = [{key for key in kind.keys(item) if key in results} for item in items]
            stored = kind.store(results, items)
            for outcome, existing_keys, keys in zip(pending, former, stored, strict=True):
                if isinstance(keys, StorageError):  # no clip's fault
                    raise keys
                if isinstance(keys, SpeechmixError):
                    outcome.error = keys
                else:
                    outcome.keys += keys
                    outcome.is_new |= not existing_keys.issuperset(keys)
        return outcomes

    def _report_outcome(
        self, results: Results, outcome: ClipOutcome, report: Report, summary: PartSummary
    ) -> None:
        """Report why a clip failed, or add what was computed of it to the summary."""
        clip, label = outcome.clip, self._model.label
        if outcome.error is not None:
            is_scored = any(key.kind != GENERATED for key in outcome.keys)
            if is_scored:
                outcome.error = SpeechmixError(
                    f"scored, but not all else was done: {outcome.error}"
                )
            report(f"{clip.name}  {label}  {'' if is_scored else 'SKIPPED: '}{outcome.error}")
        elif outcome.is_new:
            count_clip()
            transcript = self._transcript(results, clip, outcome.keys)
            shares = results.contributions(outcome.keys)
            summary.add(clip, shares, transcript)

    def _transcript(self, results: Results, clip: Clip, keys: Sequence[Key]) -> str | None:
        """What the model generates for a clip, for its line: as stored, else now, of a clip that is drawn."""
        model = self._model
        for key in keys:
            if key.kind == TRANSCRIPTS_KIND.name:
                rows = json.loads(results.row(key)["content"])
                return str(rows[0]["transcript"]) if rows else None
        transcribes = (
            model.init == "trained" and model.can_transcribe and model.prefix.task == "transcribe"
        )
        if not transcribes or clip.name not in self.drawn_clip_names:
            return None
        if needs_generated_text(model, clip) and (
            generated_text := model.generated_texts.get(generated_text_key(model, clip))
        ):
            return str(generated_text.text)
        try:
            with phase(TRANSCRIPTS_KIND.name):
                return transcribe(model, clip)
        except SpeechmixError:  # its scores are there; a line that says less is all it costs
            return None

    def _item(
        self,
        kind: ResultKind,
        options: Mapping[str, Json],
        clip: Clip,
        results: Results | None = None,
        keys: Sequence[Key] = (),
    ) -> ResultItem:
        """What a kind gets of a clip; `stored` is the content of kinds that have a table."""
        stored = {}
        if results is not None:
            for key in keys:
                if key.kind == TRANSCRIPTS_KIND.name:
                    stored[key.kind] = json.loads(results.row(key)["content"])
        return ResultItem(
            self._model,
            clip,
            options,
            twin_index=self._twin_index,
            is_partial_twin=self._is_partial,
            snapshot=self.snapshots.get(clip.name),
            stored=stored,
            pair=self.pairs.get(clip.name),
            shared=self._shared[kind.name],
        )
