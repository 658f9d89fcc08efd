"""A clip: one recording, what is said in it, where each word is, and which two words the question is about.

In: an audio file or array; optionally its text, its words with times, a cue and a target. Out: a `Clip`, which reads
its audio only when asked and can check itself. Cue and target may be named before the words are known (before forced
alignment); they are looked up when the words come.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, SpeechmixError
from ..files.identity import digest
from ..files.names import safe_name
from .audio import LONGEST, audio_file, audio_seconds, fingerprint_of, mono, read_audio, sound_fingerprint
from .frames import Seconds
from .spans import Word
from .words import WordRequest, check_words, find_word

# A path of a word file, or the words themselves.
WordSource = str | PathLike | Sequence


class Clip:
    """One recording with its words. Make one with `from_file` or `from_array`.

    Attributes
    ----------
    name : str
        Names the clip in results and is safe in a file name; `fingerprint` says whether it is still the same clip.
    path : Path or None
    text : str or None
        What is said.
    words : tuple of Word, or None
        With times in seconds; None until they are known.
    cue, target : int or None
        Indices into `words`; None if not asked for, or while there are no words.
    foil : str or None
        The other spelling of the target ("livre" for "livres"): what a model that misses the cue would write.
    language : str or None
        Language code, as the model wants it ("fr").
    alignment : str or None
        How the words came to be: "textgrid", "ctm", "json", "table", "given", "ctc", "synthesis", ...
    doubts : tuple of str
        Why the word times cannot be trusted, if the aligner said so.
    meta : dict of str
        Whatever else is known (further columns of a manifest).

    Examples
    --------
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="demo", cue="les", target="livres")
    >>> clip.cue is None
    True
    >>> clip = clip.with_words([("les", 0.1, 0.3), ("livres", 0.3, 0.9)], alignment="given")
    >>> clip
    Clip('demo', 1.00 s, 2 words, cue=0 'les', target=1 'livres')
    """

    def __init__(
        self,
        *,
        name: str,
        path: Path | None = None,
        samples: np.ndarray | None = None,
        sample_rate: int | None = None,
        text: str | None = None,
        cue: WordRequest | None = None,
        target: WordRequest | None = None,
        foil: str | None = None,
        language: str | None = None,
        meta: Mapping[str, str] | None = None,
        sound: str | None = None,
    ):
        if text is not None and not text.strip():
            raise InputError(f"clip {name!r}: expected a text, found an empty one: leave `text` out if it is unknown")
        self.name = safe_name(name)
        self.path = path
        self.text = text.strip() if text is not None else None
        self.language = language
        self.foil = foil
        self.meta = dict(meta or {})
        self.words: tuple[Word, ...] | None = None
        self.alignment: str | None = None
        self.doubts: tuple[str, ...] = ()
        self.cue: int | None = None
        self.target: int | None = None
        self._requests = {"cue": cue, "target": target}
        self._samples, self._sample_rate = samples, sample_rate
        self._sound: str | None = None
        self._expected_sound = sound
        self._duration = len(samples) / sample_rate if samples is not None else None

    @classmethod
    def from_file(
        cls,
        path: str | PathLike,
        *,
        text: str | None = None,
        words: WordSource | None = None,
        cue: WordRequest | None = None,
        target: WordRequest | None = None,
        foil: str | None = None,
        language: str | None = None,
        tier: str | None = None,
        name: str | None = None,
        meta: Mapping[str, str] | None = None,
        sound: str | None = None,
    ) -> Clip:
        """Clip of an audio file; the audio is not read yet.

        Parameters
        ----------
        path : path of a WAV, FLAC, OGG or MP3 file
        text : str, optional
        words : path or sequence, optional
            A .TextGrid, .ctm, .json, .tsv or .csv file, or `Word`s or (text, start, end) with times in seconds.
        cue, target : int, str or (str, int), optional
            An index into the words, a word, or a word and its occurrence: ``"les:2"`` or ``("les", 2)``.
        foil : str, optional
            The other spelling of the target.
        language : str, optional
        tier : str, optional
            Which tier of a TextGrid holds the words.
        name : str, optional
            Default: the file's name without its ending.
        sound : str, optional
            `sound` of the recording that the words are of: `validate` refuses another.

        Raises
        ------
        InputError
            If a file is missing or unusable, the words cannot be right, or cue or target is none or several of them.
        """
        path = audio_file(path)
        clip = cls(
            name=name or path.stem,
            path=path,
            text=text,
            cue=cue,
            target=target,
            foil=foil,
            language=language,
            meta=meta,
            sound=sound,
        )
        return clip if words is None else clip.with_words(words, tier=tier)

    @classmethod
    def from_array(
        cls,
        audio: np.ndarray,
        sample_rate: int,
        *,
        text: str | None = None,
        words: WordSource | None = None,
        cue: WordRequest | None = None,
        target: WordRequest | None = None,
        foil: str | None = None,
        language: str | None = None,
        tier: str | None = None,
        name: str | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> Clip:
        """Clip of samples in memory; the other options are those of `from_file`.

        Parameters
        ----------
        audio : array, [samples] or [samples, channels]
            Floats, or integers at full scale.
        sample_rate : int
            Samples per second.
        name : str, optional
            Default: "clip-" and the beginning of `sound`, so that no two recordings share a name.
        """
        samples = mono(audio, sample_rate, sample_rate=sample_rate, where=f"clip {name!r}" if name else "clip")
        sound = fingerprint_of(samples, sample_rate)
        name = name or f"clip-{sound[:8]}"
        clip = cls(
            name=name,
            samples=samples,
            sample_rate=int(sample_rate),
            text=text,
            cue=cue,
            target=target,
            foil=foil,
            language=language,
            meta=meta,
        )
        clip._sound = sound
        return clip if words is None else clip.with_words(words, tier=tier)

    def renamed(self, name: str) -> Clip:
        """Return a copy of another name."""
        clip = copy.copy(self)
        clip.name = safe_name(name)
        return clip

    def with_doubts(self, doubts: Iterable[str]) -> Clip:
        """Return a copy with reasons why its word times cannot be trusted."""
        clip = copy.copy(self)
        clip.doubts = tuple(doubts)
        return clip

    def with_words(self, words: WordSource, *, alignment: str | None = None, tier: str | None = None) -> Clip:
        """Return a copy that has these words, with cue and target looked up among them.

        Parameters
        ----------
        words : path or sequence
            As in `from_file`.
        alignment : str, optional
            How the words came to be; default: the kind of file, or "given".
        tier : str, optional
            Which tier of a TextGrid holds the words.
        """
        clip = copy.copy(self)
        kind = "given"
        if isinstance(words, (str, PathLike)):
            from .word_files import read_words, word_file_kind  # a later room: only when a file is given

            kind = word_file_kind(words)
            words = read_words(words, tier=tier, utterance=self.path.stem if self.path else self.name)
        clip.words = check_words(words, duration=self._duration, where=f"clip {self.name!r}")
        clip.alignment = alignment or kind
        clip._look_up_requests()
        return clip

    def cut(self, start: Seconds, end: Seconds) -> Clip:
        """Return the part of the clip between two times, with the words that lie wholly in it.

        Parameters
        ----------
        start, end : float
            Seconds. Best in pauses: a word that is cut through is left out. The text is that of the words that remain;
            without words it is no longer known.

        Raises
        ------
        InputError
            If the part is empty, or the cue or target is not in it.
        """
        if not 0 <= start < end:
            raise InputError(f"clip {self.name!r}: expected 0 <= start < end (seconds) to cut, found {start} and {end}")
        rate = self._sample_rate or 16_000
        if self.path is not None and self.duration > LONGEST:  # only its part can be read
            samples = read_audio(self.path, sample_rate=rate, start=start, stop=min(end, self.duration))
        else:
            samples = self.audio(rate)[round(start * rate) : round(end * rate)]
        if not len(samples):
            raise InputError(f"clip {self.name!r} of {self.duration:.2f} s has nothing between {start} and {end} s")
        kept = [i for i, word in enumerate(self.words or ()) if start <= word.start and word.end <= end]
        for role in ("cue", "target"):
            if getattr(self, role) is not None and getattr(self, role) not in kept:
                raise InputError(f"clip {self.name!r}: the {role} is not wholly between {start} and {end} s")
        requests = dict(self._requests)
        if self.words:
            requests = {role: kept.index(i) if (i := getattr(self, role)) is not None else None for role in requests}
        part = Clip.from_array(
            samples,
            rate,
            text=" ".join(self.words[i].text for i in kept) or None if self.words else None,
            foil=self.foil,
            language=self.language,
            name=f"{self.name}_{start:g}-{end:g}",
            meta=self.meta,
            **requests,
        )
        if not kept:
            return part
        moved = [replace(self.words[i], start=self.words[i].start - start, end=self.words[i].end - start) for i in kept]
        return part.with_words(moved, alignment=self.alignment)

    def _look_up_requests(self) -> None:
        for role, request in self._requests.items():
            if request is not None:
                setattr(self, role, find_word(self.words, request, role=role, where=f"clip {self.name!r}"))
        if self.cue is not None and self.cue == self.target:
            raise InputError(
                f"clip {self.name!r}: cue and target must be two words, "
                f"found word {self.cue} {self.words[self.cue].text!r} for both"
            )

    @property
    def duration(self) -> Seconds:
        """Length of the audio in seconds (from the file's header)."""
        if self._duration is None:
            self._duration = audio_seconds(self.path)
        return self._duration

    @property
    def sound(self) -> str:
        """Hash of the recording: of its decoded samples (mono, at their own rate), not of its name or file format.

        Read from the file, if that has changed since it was read last.
        """
        return self._sound or sound_fingerprint(self.path)

    @property
    def ingredients(self) -> dict[str, Any]:
        """What decides a model's answer about this clip: sound, text, words, cue, target, foil and language."""
        roles = {role: request if (i := getattr(self, role)) is None else i for role, request in self._requests.items()}
        words = None if self.words is None else [[word.text, word.start, word.end] for word in self.words]
        return {
            "sound": self.sound,
            "text": self.text,
            "words": words,
            **roles,
            "foil": self.foil,
            "language": self.language,
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the clip's `ingredients`, 16 hexadecimal digits: what it is, whatever it is called and wherever it lies."""
        return digest(self.ingredients)[:16]

    def audio(self, sample_rate: int = 16_000) -> np.ndarray:
        """Samples, float32 mono [samples], channels averaged, resampled to `sample_rate` per second.

        Read from the file at each call, except that the few clips read last are kept.

        Raises
        ------
        InputError
            If the file cannot be decoded, or holds no samples, NaN or infinity.
        """
        if self._samples is None:
            return read_audio(self.path, sample_rate=sample_rate)
        return mono(self._samples, self._sample_rate, sample_rate=sample_rate, where=f"clip {self.name!r}").copy()

    def validate(self) -> None:
        """Check audio and words together; done before scoring.

        Word ends up to 50 ms behind the audio are cut to it; nothing else changes. All-zero audio is legitimate. A
        cue or target that waits for words is no error here: whoever needs its index finds None.

        Raises
        ------
        InputError
            If the audio cannot be read, has no samples, NaN or infinity, is not the recording that the words are of, or a
            word lies past its end.
        """
        if self._samples is None:  # samples in memory were checked when they came
            self.audio()
        if self._expected_sound not in (None, self.sound):
            raise InputError(
                f"clip {self.name!r}: {self.path} was replaced since its words were placed: align it again"
            )
        if self.words is not None:
            self.words = check_words(self.words, duration=self.duration, where=f"clip {self.name!r}")
            self._look_up_requests()

    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if self._duration is not None:
            parts.append(f"{self._duration:.2f} s")
        parts.append("no words yet" if self.words is None else f"{len(self.words)} words")
        for role, request in self._requests.items():
            index = getattr(self, role)
            if index is not None:
                parts.append(f"{role}={index} {self.words[index].text!r}")
            elif request is not None:
                parts.append(f"{role}={request!r} (not looked up yet)")
        return f"Clip({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Shown in a notebook: what is said, cue and target marked, and a player."""
        from .player import as_player

        return as_player(self)


def read_ahead(clips: Iterable[Any], *, sample_rate: int, count: int = 1) -> Iterator[Any]:
    """Yield clips, while a thread reads the audio of the `count` that follow; what is no clip passes through.

    An audio file that cannot be read is no error here: whoever asks for its samples is told.
    """

    def read(clip: Any) -> None:
        with suppress(SpeechmixError):
            if isinstance(clip, Clip):
                clip.audio(sample_rate)

    with ThreadPoolExecutor(max_workers=1) as reader:
        waiting: deque[Any] = deque()
        for clip in clips:
            reader.submit(read, clip)
            waiting.append(clip)
            if len(waiting) > count:
                yield waiting.popleft()
        yield from waiting
