"""One model of a run: its clips scored in groups, ablated, transcribed, their states kept.

In: a model, clips with words, what is wanted of them. Out: one part file that holds all of it; what
an earlier start left is used, and what cannot be done is recorded and left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..adapters.generation.generated_texts import generated_text_key
from ..adapters.generation.transcription import needs_generated_text
from ..adapters.model import Model
from ..errors import SpeechmixError, StorageError
from ..evaluation.transcript_accuracy import transcribe
from ..files.shards import Shard
from ..files.timing import count_clip, phase
from ..inputs.clips.clip import Clip
from ..mixing.maps.mixing_map import Maps
from ..mixing.passes.batches import clips_together, in_groups, prepare_ahead
from ..mixing.passes.request import Question
from .aligned_clips import Progress, shown
from .clip_store import TRANSCRIPTS, ClipAsked, MapsAsked, keep_map_rows, keep_maps, keep_spelling
from .generated_texts import remember_written, texts_of
from .results.part_files import Owner, Part
from .results.result_store import Key, Results
from .results.run_folder import RunFolder
from .results.tidy_tables import result_line
from .run_explanations import ToExplain, keep_explanation
from .run_probes import PROBED_TWINS, keep_states

if TYPE_CHECKING:
    from .scored_run import Run

Report = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What a run wants of every model.

    Parameters
    ----------
    question : Question
    batch_size : int or "auto"
    ablation, probes : bool
    drawn : frozenset of str
        Names of the clips to draw.
    by_layer : frozenset of str
        Names of the clips in which the cue is silenced layer by layer, too.
    clips : mapping of str to ClipAsked
        What each clip is, by name.
    few : frozenset of str, optional
        Names of the clips that further random twins hear, which then only say how much the draw of
        weights matters; without it they are treated as the first.
    maps : bool
        Whether word maps are also kept in files of their own.
    maps_dtype : str, optional
        Type in which maps of frames are kept.
    to_explain : ToExplain
        Of which clips it is explained why trained models wrote what they wrote.
    """

    question: Question
    batch_size: int | str
    ablation: bool
    probes: bool
    drawn: frozenset[str]
    by_layer: frozenset[str]
    clips: Mapping[str, ClipAsked]
    few: frozenset[str] | None
    maps: bool
    maps_dtype: str | None
    to_explain: ToExplain = field(default_factory=ToExplain)


@dataclass
class Answer:
    """What became of one clip.

    Attributes
    ----------
    clip : Clip
    keys : list of Key
        Of what is kept of it.
    error : SpeechmixError, optional
        Why it, or what was asked for besides its scores, is left out.
    """

    clip: Clip
    keys: list[Key]
    error: SpeechmixError | None = None


class ModelRun:
    """The part of a run that is one model's.

    Parameters
    ----------
    folder : RunFolder
    model : Model
    owner : Owner
    wanted : Wanted
    twin : int
        How many random twins of the model came before.

    Attributes
    ----------
    probed : bool
        Whether states are kept, to be probed.
    """

    def __init__(self, folder: RunFolder, model: Model, owner: Owner, wanted: Wanted, *, twin: int):
        self._folder, self._model, self._owner, self._wanted = folder, model, owner, wanted
        is_further = model.init == "random" and twin > 0
        self._few = wanted.few if is_further else None
        self._spells = wanted.ablation and model.can_spell and self._few is None
        self._drawn = frozenset() if is_further else wanted.drawn
        self._asked = MapsAsked(
            model,
            wanted.question,
            wanted.clips,
            with_scores=self._few is None,
            maps_dtype=wanted.maps_dtype,
        )
        self._explains = model.init == "trained" and model.can_spell
        self._by_layer = wanted.by_layer if model.init == "trained" else frozenset()
        self.probed = wanted.probes and (model.init == "trained" or twin < PROBED_TWINS)
        self._of_trained: Mapping[str, Mapping[str, Any]] | None = None

    def score(
        self, clips: Sequence[Clip], shard: Shard, run: Run, report: Report, progress: Progress
    ) -> list[Part]:
        """Score clips; returns the part files that hold what became of them."""
        keys_of_clip: dict[str, list[Key]] = {}
        with Results(self._folder, self._owner, shard, report) as results, self._model.unchanged():
            for answer in self.answers(results, clips, report, progress):
                keys_of_clip[answer.clip.name] = answer.keys
                if answer.error is None:
                    run.done += 1
                else:
                    run.skip(answer.clip.name, answer.error, self._model.label)
            return results.settled(
                [key for clip in clips for key in keys_of_clip.get(clip.name, ())]
            )

    def heard(self, clips: Sequence[Clip]) -> list[Clip]:
        """Return those of some clips that the model is to hear."""
        return [clip for clip in clips if self._few is None or clip.name in self._few]

    def answers(
        self,
        results: Results,
        clips: Sequence[Clip],
        report: Report,
        progress: Progress,
        begins: Callable[[Sequence[Clip]], object] | None = None,
    ) -> Iterator[Answer]:
        """Yield what became of each clip that the model is to hear: first those that are kept.

        Parameters
        ----------
        results : Results
            Of this model, which keep what is new.
        clips, report, progress
        begins : callable, optional
            Is called with the clips that share a pass before it begins. Without it the report says
            how many were kept.
        """
        clips = self.heard(clips)
        for clip, keys, maps in self._scored(results, clips, report, progress, begins):
            answer = Answer(clip, [])
            try:
                if isinstance(maps, SpeechmixError):
                    raise maps
                answer.keys = keys
                self._further(results, clip, maps, keys)
                if maps:
                    count_clip()
                    transcript = self._transcript(results, clip, answer.keys)
                    report(result_line(clip, self._model, results.contributions(keys), transcript))
            except StorageError:
                raise
            except SpeechmixError as error:
                answer.error = (
                    SpeechmixError(f"scored, but not all else was done: {error}")
                    if answer.keys
                    else error
                )
                report(
                    f"{clip.name}  {self._model.label}  "
                    f"{'' if answer.keys else 'SKIPPED: '}{answer.error}"
                )
            finally:
                results.write_if_due()
            yield answer

    def _texts(self, clips: Sequence[Clip]) -> Mapping[str, Mapping[str, Any]]:
        """What the trained model of this name wrote about clips without a text, for its twin."""
        if self._model.init != "random" or not any(
            needs_generated_text(self._model, clip) for clip in clips
        ):
            return {}
        if self._of_trained is None:
            self._of_trained = texts_of(self._folder, self._model.name)
        return self._of_trained

    def _further(self, results: Results, clip: Clip, maps: Maps, keys: list[Key]) -> None:
        """What is wanted besides scores; `keys` grow by what is kept."""
        measures = list(self._wanted.question.measures)
        of_maps = [key for key in keys if key.kind in measures]
        if self._spells:
            keys += keep_spelling(results, self._model, clip, by_layer=clip.name in self._by_layer)
        if self.probed and clip.words:
            keys.append(keep_states(results, self._model, clip))

        if self._explains and clip.words and clip in self._wanted.to_explain:
            written = partial(self._written, results, clip, keys)
            keys.append(
                keep_explanation(results, self._model, clip, self._wanted.to_explain, written)
            )

        def all_maps() -> Maps:
            computed = {name for name, _ in maps}
            stored = results.maps([key for key in of_maps if key.kind not in computed])
            return Maps(
                {key: {**stored, **maps}[key] for key in sorted({**stored, **maps}, key=place)}
            )

        stacks = list(self._model.stacks)

        def place(key: tuple[str, str]) -> tuple[int, int]:
            return measures.index(key[0]), stacks.index(key[1])

        if self._wanted.maps and self._asked.in_scores:
            keys.append(keep_map_rows(results, self._asked, clip, all_maps))

    def _transcript(self, results: Results, clip: Clip, keys: Sequence[Key]) -> str | None:
        """What the model writes of a clip, for its line: as kept; else written now, of a clip that
        is drawn."""
        if (kept := self._kept_transcript(results, keys)) is not None:
            return kept
        model = self._model
        transcribes = (
            model.init == "trained" and model.can_spell and model.prefix.task == "transcribe"
        )
        if not transcribes or clip.name not in self._drawn:
            return None
        if needs_generated_text(model, clip) and (
            written := model.generated_texts.get(generated_text_key(model, clip))
        ):
            return written.text
        try:
            with phase(TRANSCRIPTS):
                return transcribe(model, clip)
        except SpeechmixError:  # its scores are there; a line that says less is all it costs
            return None

    def _kept_transcript(self, results: Results, keys: Sequence[Key]) -> str | None:
        stored_key = next((key for key in keys if key.kind == TRANSCRIPTS), None)
        return stored_key and json.loads(results.row(stored_key)["content"])[0]["transcript"]

    def _written(self, results: Results, clip: Clip, keys: Sequence[Key]) -> str:
        """What the model writes of a clip: as kept, or written now."""
        kept = self._kept_transcript(results, keys)
        return transcribe(self._model, clip) if kept is None else kept

    def _scored(
        self,
        results: Results,
        clips: Sequence[Clip],
        report: Report,
        progress: Progress,
        begins: Callable[[Sequence[Clip]], object] | None,
    ) -> Iterator[tuple[Clip, list[Key], Maps | SpeechmixError]]:
        """Each clip with keys of its scores and the maps that were computed now (or why not): first
        those that are kept."""
        todo = []
        for clip in clips:
            keys = self._asked.keys(clip) if clip.text is not None else []
            if keys and all(key in results for key in keys):
                yield clip, keys, Maps({})
            else:
                todo.append(clip)
        if begins is None and len(todo) < len(clips):
            report(
                f"{self._model.label}: {len(clips) - len(todo)} of {len(clips)} clips were scored "
                "before"
            )
        at_once = clips_together(self._model)
        texts = self._texts(todo)
        with closing(prepare_ahead(self._model, todo, count=at_once)) as ahead:
            bar = shown(ahead, progress, f"score {self._model.label}", total=len(todo))
            for group in in_groups(bar, at_once):
                if begins is not None:
                    begins(group)
                yield from self._scored_group(results, texts, group)

    def _scored_group(
        self, results: Results, texts: Mapping[str, Mapping[str, Any]], group: Sequence[Clip]
    ) -> Iterator[tuple[Clip, list[Key], Maps | SpeechmixError]]:
        """The same of clips that share a pass."""
        written: dict[str, list[Key] | SpeechmixError] = {}
        for clip in group:
            try:
                with phase("decoding"):
                    written[clip.name] = remember_written(
                        results, texts, self._model, clip, self._wanted.question
                    )
            except SpeechmixError as error:
                written[clip.name] = error
        able = [clip for clip in group if not isinstance(written[clip.name], SpeechmixError)]
        computed = keep_maps(results, self._asked, able, batch_size=self._wanted.batch_size)
        maps = {clip.name: of_clip for clip, of_clip in zip(able, computed, strict=True)}
        for clip in group:
            keys = written[clip.name]
            if isinstance(keys, SpeechmixError):
                yield clip, [], keys
            else:
                yield clip, [*keys, *self._asked.keys(clip)], maps[clip.name]
