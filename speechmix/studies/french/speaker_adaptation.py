"""Improve word times by models of the corpus speakers' sounds.

In: a study folder with pairs, or a corpus. Out: `words.jsonl` and TextGrids as `align_corpus` writes
them. Each clip is aligned by synthesis, then once more with the speaker's own sounds
(`speechmix.alignment.speaker_sounds`). Where the first alignment trusts the text, a boundary moves
by at most 10 ms towards the second. Where it does not, the less doubtful of the two is used. For
resuming, `adaptation/first.jsonl` has the first alignment with phonemes, and
`adaptation/voices/<hash>.safetensors` a voice, by what it was learnt from. A clip is never judged by
a voice that has heard it: a speaker's clips are in four parts, each aligned by the other three.

Models of the speakers' sounds in a corpus, learnt from their clips.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...alignment.alignment_result import REVISION, Alignment
from ...alignment.cepstra import RecordingCepstra, analyse_recording
from ...alignment.confidence import TRUSTED_TEXT
from ...alignment.speaker_sounds import REVISION as VOICE_REVISION
from ...alignment.speaker_sounds import SpeakerVoice, frames_by_sound, learn_voice
from ...alignment.synthesis_aligner import ADAPTED, align_by_synthesis, words_by_synthesis
from ...errors import InputError
from ...evaluation.statistics.groups import SPEAKER_COLUMNS
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import WHOLE, Shard
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import seeded_uniform
from ...inputs.words.timed_words import Word
from ...runs.journal.stage_journal import SkipItem, StoredLines
from ...runs.journal.stage_lines import read_kept_lines, read_stage_options
from .sentence_alignment import check_audio, make_stored_words, write_clip_textgrid
from .stages import align_corpus, run_alignment_stage
from .study_folder import WORDS, clip_from_line

if TYPE_CHECKING:
    from ...adapters import Model


PART_COUNT = 4  # of a speaker's clips
# Trusted clips of a speaker who has a voice of one's own; clips that a voice is learnt from.
MIN_SPEAKER_CLIPS, MAX_VOICE_CLIPS = 12, 200


class CorpusVoices:
    """Voices of the speakers of the first alignment, learnt when they are needed, stored in
    files."""

    def __init__(self, folder: Path, path: Path, first_lines: StoredLines):
        self._folder, self._first_lines = folder, first_lines
        self._trusted_clips: dict[str, list[tuple[float, str, str]]] = {}
        for line in read_kept_lines(path):
            if line["alignment"] == "synthesis" and not line["doubts"]:
                audio_digest = digest([line["sound"], line["phonemes"]])
                self._trusted_clips.setdefault(line["speaker"], []).append(
                    (seeded_uniform(line["key"], 0), line["key"], audio_digest)
                )
        small_speakers = [
            speaker
            for speaker, clips in self._trusted_clips.items()
            if len(clips) < MIN_SPEAKER_CLIPS
        ]
        self._trusted_clips[""] = [
            clip
            for speaker in {*small_speakers, ""}
            for clip in self._trusted_clips.pop(speaker, [])
        ]
        self._voice_names: dict[tuple[str, int], str | None] = {}
        self._load_cached = functools.lru_cache(maxsize=4 * PART_COUNT)(self._load_or_learn)

    def voice_name(self, line: Mapping[str, Json]) -> str | None:
        """Hash of what the voice for a clip is learnt from; None if there is too little, or nothing
        to adapt."""
        if line.get("alignment") != "synthesis":
            return None
        speaker_part = self._speaker_and_part(line)
        if speaker_part not in self._voice_names:
            clips = self._training_clips(*speaker_part)
            self._voice_names[speaker_part] = (
                digest([REVISION, VOICE_REVISION, clips])
                if len(clips) >= MIN_SPEAKER_CLIPS // 2
                else None
            )
        return self._voice_names[speaker_part]

    def load_voice(self, line: Mapping[str, Json]) -> SpeakerVoice | None:
        """The voice of a clip's speaker, learnt from other clips; None if there is too little."""
        name = self.voice_name(line)
        if name is None:
            return None
        return self._load_cached(name, *self._speaker_and_part(line))

    def _speaker_and_part(self, line: Mapping[str, Json]) -> tuple[str, int]:
        """Whose voice a clip is aligned with, and the part of their clips that it is in."""
        speaker = line["speaker"] if line["speaker"] in self._trusted_clips else ""
        return speaker, int(PART_COUNT * seeded_uniform(line["key"], 0))

    def _training_clips(self, speaker: str, fold_index: int) -> list[tuple[float, str, str]]:
        clips = (
            clip for clip in self._trusted_clips[speaker] if int(PART_COUNT * clip[0]) != fold_index
        )
        return heapq.nsmallest(MAX_VOICE_CLIPS, clips)

    def _load_or_learn(self, name: str, speaker: str, fold_index: int) -> SpeakerVoice | None:
        path = self._folder / f"{name}.safetensors"
        if path.is_file():
            return SpeakerVoice.load(path)
        lines = (
            self._first_lines.read_line(key)
            for _, key, _ in self._training_clips(speaker, fold_index)
        )
        voice = learn_voice(
            frames_by_sound(_read_recording(line) for line in lines if line is not None)
        )
        if voice is not None:
            voice.save(path)
        return voice


def _read_recording(line: Mapping[str, Json]) -> tuple[RecordingCepstra, list[Word]]:
    clip = Clip.from_file(line["path"], name=line["key"])
    return analyse_recording(clip.audio(16_000), 16_000), [
        Word(*phoneme) for phoneme in line["phonemes"]
    ]


ADAPTATION = "adaptation"
# Raised when the same two alignments become other word times; lines are then made again.
_REVISION = 3
_ADAPT_OPTION = 2  # what stored headers say since there is adaptation
_MAX_SHIFT_SECONDS = 0.010  # seconds that a boundary of a trusted text moves
_STORED_FIELDS = ("seconds", "alignment", "score", "doubts", "words")


def align_study(
    study: str | PathLike[str],
    *,
    source: str | PathLike[str] | None = None,
    adapt: bool | None = None,
    method: str = "auto",
    model: Model | None = None,
    textgrids: str | PathLike[str] | None = None,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
    log: Callable[[str], None] = lambda text: None,
) -> Path:
    """Place the words with `align_adapted` where that is possible, else with `align_corpus`.

    Options and errors are those of `speechmix.studies.french.stages.align_corpus`, and InputError
    if `adapt` is true with another method or in shards. By default it adapts by synthesis in one
    process, unless the folder holds words that were placed without. `log` gets a sentence that says
    why nothing is adapted, if the options alone do not say it, and on how many clips the adapted
    alignment is used. Returns ``words.jsonl``, or the shard's ``words/3-of-48.jsonl``.
    """
    study = Path(study)
    uses_other_method = bool(model or textgrids) or method not in ("auto", "synthesis")
    if adapt and (uses_other_method or shard.count > 1):
        raise InputError(
            "--adapt goes with alignment by synthesis, in one process, for a voice is learned from "
            "all clips of its speaker: "
            "leave --aligner, --textgrids, --shard and other methods out. To share the work, split "
            "the corpus by "
            "speaker, a study for each part"
        )
    if adapt is None and not uses_other_method:
        reason = _find_reason_not_to_adapt(study, shard, overwrite)
        if reason:
            log(reason)
        adapt = not reason
    if not adapt:
        options: JsonObject = {
            "source": source,
            "method": method,
            "model": model,
            "textgrids": textgrids,
        }
        return align_corpus(study, shard=shard, overwrite=overwrite, progress=progress, **options)
    path = align_adapted(study, source=source, overwrite=overwrite, progress=progress)
    log("adapted: used on {} of {} clips".format(*count_adapted(path)))
    return path


def _find_reason_not_to_adapt(study: Path, shard: Shard, overwrite: bool) -> str:
    """Why the words of a study are not adapted if nobody says whether; empty if they are."""
    if shard.count > 1:
        return "not adapted to the speakers: a shard does not see all clips of a speaker"
    if _has_unadapted_words(study) and not overwrite:
        return (
            f"not adapted to the speakers: {study / WORDS} was begun without; --adapt "
            "--overwrite aligns again"
        )
    return ""


def align_adapted(
    study: str | PathLike[str],
    *,
    source: str | PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Place the words by synthesis, learn the speakers' sounds from that, and place them again.

    Where the score of the first alignment says that the text is what is said, each boundary moves
    by at most 10 ms towards the second; score and doubts stay. Elsewhere the less doubtful
    alignment is used, then the better scored. Speakers are told apart by a column `speaker`,
    `speaker_id` or `client_id`; those of fewer than 12 clips without doubts are taken together, as
    are all where there is no such column. Nothing is adapted where these are fewer than about 8
    clips.

    Options and errors are those of `speechmix.studies.french.stages.align_corpus`; it takes about
    twice as long. Returns ``words.jsonl``, where the alignment of a line is "synthesis" or "adapted
    synthesis".
    """
    study = Path(study)
    options: JsonObject = {"method": "synthesis", "textgrids": None, "aligner": None}
    if _has_unadapted_words(study) and not overwrite:  # before hours are spent
        raise InputError(
            f"{study / WORDS} was made without adaptation: align again with --overwrite "
            "(overwrite=True), or in another folder"
        )
    stage = functools.partial(
        run_alignment_stage, study, source=source, overwrite=overwrite, progress=progress
    )
    path = stage(study / ADAPTATION / "first.jsonl", _align_first, _line_cache_key, options=options)
    with StoredLines(path) as first_lines:
        second = _SecondAlignment(
            first_lines,
            CorpusVoices(study / ADAPTATION / "voices", path, first_lines),
            study / "textgrids",
        )
        return stage(
            study / WORDS,
            second.align_line_again,
            second.cache_key,
            options={**options, "adapt": _ADAPT_OPTION},
        )


def count_adapted(path: str | PathLike[str]) -> tuple[int, int]:
    """On how many clips of a ``words.jsonl`` the adapted alignment is used, and how many there
    are."""
    methods = [line["alignment"] for line in read_kept_lines(Path(path))]
    return methods.count(ADAPTED), len(methods)


def _has_unadapted_words(study: Path) -> bool:
    """Whether the folder holds words that were aligned without adaptation."""
    stored = read_stage_options(study / WORDS)
    return bool(stored) and "adapt" not in stored


def _line_cache_key(line: Mapping[str, Json], *further_values: Any) -> JsonObject:
    return {
        "of": digest([line["text"], line["language"], line.get("words", REVISION), *further_values])
    }


def _align_first(line: JsonObject) -> JsonObject:
    """The alignment by synthesis, or the word times that a corpus brings; and whose voice it is."""
    clip = clip_from_line(line)
    check_audio(clip)
    speaker = next(
        (line["meta"][column] for column in SPEAKER_COLUMNS if line.get("meta", {}).get(column)),
        "",
    )
    if "words" in line:
        alignment = Alignment(tuple(Word(*word) for word in line["words"]), "given", 1.0)
    else:
        alignment = _synthesis_alignment(clip)
    return {**_make_stored_line(clip, alignment), "speaker": speaker, "path": line["path"]}


def _synthesis_alignment(clip: Clip, speaker_voice: SpeakerVoice | None = None) -> Alignment:
    return align_by_synthesis(
        clip.audio(16_000),
        clip.text or "",
        language=clip.language or "",
        speaker_voice=speaker_voice,
    )


def _make_stored_line(clip: Clip, alignment: Alignment) -> JsonObject:
    phonemes = [
        [word.text, round(word.start, 4), round(word.end, 4)] for word in alignment.phonemes
    ]
    return {**make_stored_words(clip, alignment)[1], "phonemes": phonemes}


class _SecondAlignment:
    """What is done with each clip once there are voices: align it again, and make one alignment of
    the two."""

    def __init__(self, first_lines: StoredLines, voices: CorpusVoices, textgrids: Path):
        self._voices, self._textgrids = voices, textgrids
        self._find_first_line = functools.lru_cache(maxsize=2)(
            first_lines.read_line
        )  # asked for ingredients, then for work

    def cache_key(self, line: Mapping[str, Json]) -> JsonObject:
        """What decides the line: its first alignment, and the voice by what it was learnt from."""
        first_line = self._find_first_line(line["key"]) or {}
        first_result = [
            _REVISION,
            *(first_line.get(name) for name in ("why", "reason", "score", "words", "doubts")),
        ]
        return {**_line_cache_key(line, first_result), "voice": self._voices.voice_name(first_line)}

    def align_line_again(self, line: JsonObject) -> JsonObject:
        """The clip's line of ``words.jsonl``, with its TextGrid."""
        first_line = self._find_first_line(line["key"]) or {}
        if "why" in first_line:
            raise SkipItem(first_line["why"], first_line["reason"])
        clip, speaker_voice = clip_from_line(line), self._voices.load_voice(first_line)
        first = {name: first_line[name] for name in _STORED_FIELDS}
        result = first if speaker_voice is None else _adapt_alignment(clip, first, speaker_voice)
        words = [Word(line["text"][a:b], start, end) for a, b, start, end, _ in result["words"]]
        write_clip_textgrid(self._textgrids, clip, words)
        return {**{name: result[name] for name in _STORED_FIELDS}, "first_score": first["score"]}


def _adapt_alignment(clip: Clip, first: JsonObject, speaker_voice: SpeakerVoice) -> JsonObject:
    """A clip's line after adaptation: near the first alignment if that trusts the text, else the
    less doubtful one."""
    if first["score"] < TRUSTED_TEXT:
        return max(
            first,
            _make_stored_line(clip, _synthesis_alignment(clip, speaker_voice)),
            key=lambda line: (not line["doubts"], line["score"]),
        )
    words = words_by_synthesis(
        clip.audio(16_000),
        clip.text or "",
        language=clip.language or "",
        speaker_voice=speaker_voice,
    )
    second = make_stored_words(clip, Alignment(words, ADAPTED, first["score"]))[1]
    shifted_words = _shift_boundaries(first["words"], second["words"])
    return {**first, "alignment": ADAPTED, "words": shifted_words}


def _shift_boundaries(
    words: Sequence[Sequence[Any]], target_words: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """Words with boundaries moved towards others by at most `_MAX_SHIFT_SECONDS`, which leaves them in
    order; their scores stay."""

    def limit_shift(first_time: float, second_time: float) -> float:
        return round(
            min(max(second_time, first_time - _MAX_SHIFT_SECONDS), first_time + _MAX_SHIFT_SECONDS),
            4,
        )

    return [
        [*word[:2], limit_shift(word[2], target[2]), limit_shift(word[3], target[3]), word[4]]
        for word, target in zip(words, target_words, strict=True)
    ]
