"""Models of the speakers' sounds in a corpus, learnt from their clips."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...alignment.alignment_result import REVISION
from ...alignment.cepstra import RecordingCepstra, analyse_recording
from ...alignment.speaker_sounds import REVISION as VOICE_REVISION
from ...alignment.speaker_sounds import SpeakerVoice, frames_by_sound, learn_voice
from ...files.cache_keys import digest
from ...files.json_files import Json
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import seeded_uniform
from ...inputs.words.timed_words import Word
from ...runs.journal.stage_journal import StoredLines
from ...runs.journal.stage_lines import read_kept_lines

if TYPE_CHECKING:
    pass

PART_COUNT = 4  # of a speaker's clips
MIN_SPEAKER_CLIPS, MAX_VOICE_CLIPS = (
    12,
    200,
)  # trusted clips of a speaker who has a voice of one's own; clips that a voice is learnt from


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
