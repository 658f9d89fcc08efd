"""Word times adapted to the speakers of a corpus: what a speaker's own clips say of the sounds, beside the synthetic voices.

In: a study folder with pairs, or a corpus. Out: `words.jsonl` and TextGrids as `align_corpus` writes them, each clip with the
less doubtful alignment of two, without doubts if one is, else better scored: by synthesis alone, or with the speaker's own
sounds (`speechmix.alignment.own_voice`). Beside them, so that it can be stopped and resumed like any stage:

    adaptation/first.jsonl               the alignment by synthesis, with phonemes
    adaptation/round_1.jsonl             the same with voices learnt from the first, from which the last round's are learnt
    adaptation/voices/<hash>.safetensors a voice, by what it was learnt from

A clip is never judged by a voice that has heard it: a speaker's clips are in four parts, and each is aligned with a voice
learnt from the other three.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ..alignment.base import REVISION, Alignment
from ..alignment.cepstra import HeardRecording, listen
from ..alignment.own_voice import REVISION as VOICE_REVISION
from ..alignment.own_voice import OwnVoice, frames_by_sound, learn
from ..alignment.synthesis import ADAPTED, align_by_synthesis
from ..errors import InputError
from ..files.identity import digest
from ..inputs.clips import Clip
from ..inputs.rows import lot
from ..inputs.spans import Word
from ..stages.journal import LeftOut, StoredLines
from ..stages.stage_lines import kept, options_of
from .alignments import check_audio, kept_words, write_words
from .study import WORDS, clip_of
from .words_stage import words_stage

ADAPTATION = "adaptation"
ROUNDS = 2
PARTS = 4  # of a speaker's clips
LEAST, MOST = 12, 200  # trusted clips of a speaker who has a voice of one's own; clips that a voice is learnt from
_SPEAKER = ("speaker", "speaker_id", "client_id")  # columns that name one
_KEPT = ("seconds", "alignment", "score", "doubts", "words")
_FOR_THE_NEXT = ("phonemes", "speaker", "path")


def align_adapted(
    study: str | PathLike, *, source: str | PathLike | None = None, overwrite: bool = False, progress: bool = False
) -> Path:
    """Place the words by synthesis, learn the speakers' sounds from that, and place them again where that lowers the doubt.

    Speakers are told by a column `speaker`, `speaker_id` or `client_id`; those of fewer than 12 clips without doubts are taken
    together, as are all where there is no such column.

    Parameters
    ----------
    study, source, overwrite, progress
        As of `speechmix.homophony.stages.align_corpus`. Takes two to three times as long.

    Returns
    -------
    Path
        ``words.jsonl``. The alignment of a line is "synthesis" or "adapted synthesis", its score the better of the two.

    Raises
    ------
    InputError
        As `align_corpus`.
    """
    study = Path(study)
    plain: dict[str, Any] = {"method": "synthesis", "textgrids": None, "aligner": None}
    _refuse_others(study, overwrite)
    stage = functools.partial(words_stage, study, source=source, overwrite=overwrite, progress=progress)
    path = stage(study / ADAPTATION / "first.jsonl", _first, _of, options=plain)
    for number in range(1, ROUNDS + 1):
        last = number == ROUNDS
        with StoredLines(path) as former:
            again = _Round(
                former, _Voices(study / ADAPTATION / "voices", path, former), study / "textgrids" if last else None
            )
            output = study / WORDS if last else study / ADAPTATION / f"round_{number}.jsonl"
            path = stage(output, again.work, again.ingredients, options={**plain, "adapt": number})
    return path


def adapted_count(path: str | PathLike) -> tuple[int, int]:
    """On how many clips of a ``words.jsonl`` the adapted alignment is used, and how many there are."""
    methods = [line["alignment"] for line in kept(Path(path))]
    return methods.count(ADAPTED), len(methods)


def _refuse_others(study: Path, overwrite: bool) -> None:
    """Refuse words that were placed otherwise before hours are spent on those that would replace them."""
    stored = options_of(study / WORDS)
    if stored and "adapt" not in stored and not overwrite:
        raise InputError(
            f"{study / WORDS} was made without adaptation: align again with --overwrite (overwrite=True), or in another folder"
        )


def _of(line: Mapping[str, Any], *more: Any) -> dict[str, Any]:
    return {"of": digest([line["text"], line["language"], line.get("words", REVISION), *more])}


def _first(line: dict[str, Any]) -> dict[str, Any]:
    """The alignment by synthesis, or the word times that a corpus brings; and what the next round asks."""
    clip = clip_of(line)
    check_audio(clip)
    speaker = next((line["meta"][column] for column in _SPEAKER if line.get("meta", {}).get(column)), "")
    if "words" in line:
        alignment = Alignment(tuple(Word(*word) for word in line["words"]), "given", 1.0)
    else:
        alignment = _aligned(clip)
    return {**_kept(clip, alignment), "speaker": speaker, "path": line["path"]}


def _aligned(clip: Clip, own: OwnVoice | None = None) -> Alignment:
    return align_by_synthesis(clip.audio(16_000), clip.text or "", language=clip.language or "", own=own)


def _kept(clip: Clip, alignment: Alignment) -> dict[str, Any]:
    phonemes = [[word.text, round(word.start, 4), round(word.end, 4)] for word in alignment.phonemes]
    return {**kept_words(clip, alignment)[1], "phonemes": phonemes}


class _Round:
    """What is done with each clip once there are voices: align it again; in the last round keep the less doubtful alignment.

    Only the first and the last are compared: with each further chance a text that is not what is said would find one that fits.
    """

    def __init__(self, former: StoredLines, voices: _Voices, textgrids: Path | None):
        self._voices, self._textgrids = voices, textgrids
        self._former = functools.lru_cache(maxsize=2)(former.line_of)  # asked for ingredients, then for work

    def ingredients(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """What decides the line: its former alignment, and the voice by what it was learnt from."""
        former = self._former(line["key"]) or {}
        settled = [former.get(name) for name in ("why", "reason", "score", "words", "doubts", "first")]
        return {**_of(line, settled), "voice": self._voices.name_for(former)}

    def work(self, line: dict[str, Any]) -> dict[str, Any]:
        """The adapted alignment; in the last round the less doubtful of it and the first, with its TextGrid."""
        former = self._former(line["key"]) or {}
        if "why" in former:
            raise LeftOut(former["why"], former["reason"])
        clip, own = clip_of(line), self._voices.voice_for(former)
        first = former.get("first") or {name: former[name] for name in _KEPT}
        again = former if own is None else {**former, **_kept(clip, _aligned(clip, own))}
        if self._textgrids is None:
            return {**{name: again[name] for name in (*_KEPT, *_FOR_THE_NEXT)}, "first": first}
        best = max(first, again, key=lambda line: (not line["doubts"], line["score"]))
        words = [Word(line["text"][a:b], start, end) for a, b, start, end, _ in best["words"]]
        write_words(self._textgrids, clip, words)
        return {**{name: best[name] for name in _KEPT}, "first_score": first["score"]}


class _Voices:
    """Voices of the speakers of a stage's lines, learnt when they are asked for, kept in files."""

    def __init__(self, folder: Path, path: Path, former: StoredLines):
        self._folder, self._former = folder, former
        self._trusted: dict[str, list[tuple[float, str, str]]] = {}
        for line in kept(path):
            if line["alignment"] in ("synthesis", ADAPTED) and not line["doubts"]:
                heard = digest([line["sound"], line["phonemes"]])
                self._trusted.setdefault(line["speaker"], []).append((lot(line["key"], 0), line["key"], heard))
        few = [speaker for speaker, clips in self._trusted.items() if len(clips) < LEAST]
        self._trusted[""] = [clip for speaker in {*few, ""} for clip in self._trusted.pop(speaker, [])]
        self._names: dict[tuple[str, int], str | None] = {}
        self._loaded = functools.lru_cache(maxsize=4 * PARTS)(self._voice)

    def name_for(self, line: Mapping[str, Any]) -> str | None:
        """Hash of what the voice for a clip is learnt from; None if there is too little, or nothing to adapt."""
        if line.get("alignment") not in ("synthesis", ADAPTED):
            return None
        of = self._of(line)
        if of not in self._names:
            clips = self._learnt_from(*of)
            self._names[of] = digest([REVISION, VOICE_REVISION, clips]) if len(clips) >= LEAST // 2 else None
        return self._names[of]

    def voice_for(self, line: Mapping[str, Any]) -> OwnVoice | None:
        """The voice of a clip's speaker, learnt from other clips; None if there is too little."""
        name = self.name_for(line)
        if name is None:
            return None
        return self._loaded(name, *self._of(line))

    def _of(self, line: Mapping[str, Any]) -> tuple[str, int]:
        """Whose voice a clip is aligned with, and the part of their clips that it is in."""
        speaker = line["speaker"] if line["speaker"] in self._trusted else ""
        return speaker, int(PARTS * lot(line["key"], 0))

    def _learnt_from(self, speaker: str, part: int) -> list[tuple[float, str, str]]:
        clips = (clip for clip in self._trusted[speaker] if int(PARTS * clip[0]) != part)
        return heapq.nsmallest(MOST, clips)

    def _voice(self, name: str, speaker: str, part: int) -> OwnVoice | None:
        path = self._folder / f"{name}.safetensors"
        if path.is_file():
            return OwnVoice.load(path)
        lines = (self._former.line_of(key) for _, key, _ in self._learnt_from(speaker, part))
        voice = learn(frames_by_sound(_heard(line) for line in lines if line is not None))
        if voice is not None:
            voice.save(path)
        return voice


def _heard(line: Mapping[str, Any]) -> tuple[HeardRecording, list[Word]]:
    clip = Clip.from_file(line["path"], name=line["key"])
    return listen(clip.audio(16_000), 16_000), [Word(*phoneme) for phoneme in line["phonemes"]]
