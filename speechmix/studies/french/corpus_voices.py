"""The voices of a corpus: what a speaker's own clips say of the sounds of the others."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...alignment.alignment_result import REVISION
from ...alignment.cepstra import RecordingCepstra, listen
from ...alignment.speaker_voice import REVISION as VOICE_REVISION
from ...alignment.speaker_voice import SpeakerVoice, frames_by_sound, learn
from ...files.cache_keys import digest
from ...files.json_files import Json
from ...inputs.clips.clip import Clip
from ...inputs.clips.rows import seeded_uniform
from ...inputs.words.timed_words import Word
from ...runs.journal.stage_journal import StoredLines
from ...runs.journal.stage_lines import kept

if TYPE_CHECKING:
    pass

PARTS = 4  # of a speaker's clips
LEAST, MOST = (
    12,
    200,
)  # trusted clips of a speaker who has a voice of one's own; clips that a voice is learnt from


class CorpusVoices:
    """Voices of the speakers of the first alignment, learnt when they are needed, stored in
    files."""

    def __init__(self, folder: Path, path: Path, former: StoredLines):
        self._folder, self._former = folder, former
        self._trusted: dict[str, list[tuple[float, str, str]]] = {}
        for line in kept(path):
            if line["alignment"] == "synthesis" and not line["doubts"]:
                heard = digest([line["sound"], line["phonemes"]])
                self._trusted.setdefault(line["speaker"], []).append(
                    (seeded_uniform(line["key"], 0), line["key"], heard)
                )
        few = [speaker for speaker, clips in self._trusted.items() if len(clips) < LEAST]
        self._trusted[""] = [
            clip for speaker in {*few, ""} for clip in self._trusted.pop(speaker, [])
        ]
        self._names: dict[tuple[str, int], str | None] = {}
        self._loaded = functools.lru_cache(maxsize=4 * PARTS)(self._voice)

    def name_for(self, line: Mapping[str, Json]) -> str | None:
        """Hash of what the voice for a clip is learnt from; None if there is too little, or nothing
        to adapt."""
        if line.get("alignment") != "synthesis":
            return None
        of = self._of(line)
        if of not in self._names:
            clips = self._learnt_from(*of)
            self._names[of] = (
                digest([REVISION, VOICE_REVISION, clips]) if len(clips) >= LEAST // 2 else None
            )
        return self._names[of]

    def voice_for(self, line: Mapping[str, Json]) -> SpeakerVoice | None:
        """The voice of a clip's speaker, learnt from other clips; None if there is too little."""
        name = self.name_for(line)
        if name is None:
            return None
        return self._loaded(name, *self._of(line))

    def _of(self, line: Mapping[str, Json]) -> tuple[str, int]:
        """Whose voice a clip is aligned with, and the part of their clips that it is in."""
        speaker = line["speaker"] if line["speaker"] in self._trusted else ""
        return speaker, int(PARTS * seeded_uniform(line["key"], 0))

    def _learnt_from(self, speaker: str, part: int) -> list[tuple[float, str, str]]:
        clips = (clip for clip in self._trusted[speaker] if int(PARTS * clip[0]) != part)
        return heapq.nsmallest(MOST, clips)

    def _voice(self, name: str, speaker: str, part: int) -> SpeakerVoice | None:
        path = self._folder / f"{name}.safetensors"
        if path.is_file():
            return SpeakerVoice.load(path)
        lines = (self._former.line_of(key) for _, key, _ in self._learnt_from(speaker, part))
        voice = learn(
            frames_by_sound(_recording_and_words(line) for line in lines if line is not None)
        )
        if voice is not None:
            voice.save(path)
        return voice


def _recording_and_words(line: Mapping[str, Json]) -> tuple[RecordingCepstra, list[Word]]:
    clip = Clip.from_file(line["path"], name=line["key"])
    return listen(clip.audio(16_000), 16_000), [Word(*phoneme) for phoneme in line["phonemes"]]
