"""What a clip is once it is made, and what can be asked of it: it is checked, and does not change.

In: a recording, and what is known of it (`ClipFacts`). Out: a `ClipValue`, whose words are in order
and within the audio, with cue and target looked up among them; the audio is read only when asked
for. How a clip comes to be is in `clips`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import MappingProxyType
from typing import Unpack

import numpy as np

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.names import safe_name
from ..audio.frame_grid import Seconds
from ..audio.recordings import Recording
from ..words.cue_and_target import Cue, RoleRequests, cue_words, spelled_cue
from ..words.multipart_words import words_and_roles
from ..words.timed_words import Word
from ..words.word_checks import WordLike, check_words
from .clip_metadata import ClipFacts, checked_text, refuse_unknown_fields


class ClipValue:
    """One recording with what is known of it; `speechmix.Clip` says what its attributes are."""

    name: str
    text: str | None
    words: tuple[Word, ...] | None
    cue: Cue | None
    target: int | None
    foil: str | None
    language: str | None
    translation: str | None
    alignment: str | None
    doubts: tuple[str, ...]
    _recording: Recording
    _expected_sound: str | None
    _checked_seconds: Seconds | None  # of the audio that the words were last held against
    _hashed: tuple[str, str]  # a sound, and the fingerprint that the clip has with it
    _requests: RoleRequests
    _meta: dict[str, str]

    def __init__(
        self, recording: Recording, *, sound: str | None = None, **facts: Unpack[ClipFacts]
    ):
        name = facts.get("name", "clip")
        refuse_unknown_fields(facts, where=f"clip {name!r}")
        state = self.__dict__  # written here; elsewhere only what is remembered of the same clip
        state.update(_recording=recording, _expected_sound=sound, name=safe_name(name))
        state.update(
            text=checked_text(facts.get("text"), where=f"clip {name!r}"), foil=facts.get("foil")
        )
        state.update(language=facts.get("language"), doubts=tuple(facts.get("doubts", ())))
        state.update(
            translation=checked_text(facts.get("translation"), where=f"clip {name!r}, translation")
        )
        state.update(
            _requests={"cue": facts.get("cue"), "target": facts.get("target")},
            cue=None,
            target=None,
        )
        state.update(_meta=dict(facts.get("meta") or {}), words=None, alignment=None)
        state.update(_checked_seconds=None, _hashed=("", ""))
        words = facts.get("words")
        if words is not None:
            checked = self._checked(words)
            checked, roles = words_and_roles(checked, self._requests, where=f"clip {self.name!r}")
            state.update(roles, words=checked, alignment=facts.get("alignment") or "given")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(
            f"cannot set {name!r} of {self!r}: a clip does not change; clip.replace({name}=...) "
            "returns another"
        )

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r} of {self!r}: a clip does not change")

    @property
    def path(self) -> Path | None:
        """The audio file; None for samples in memory."""
        return self._recording.path

    @property
    def cue_words(self) -> tuple[int, ...]:
        """Indices of the cue's words, one or several; none without a cue, or while there are no
        words.

        Examples
        --------
        >>> words = [("le", 0.0, 0.1), ("club", 0.1, 0.4), ("gagne", 0.4, 0.9)]
        >>> clip = speechmix.Clip.from_array(np.zeros(16_000), 16_000, words=words, cue="le club", target="gagne")
        >>> clip.cue, clip.cue_words, clip.replace(cue="le").cue, clip.replace(cue="le").cue_words
        ((0, 1), (0, 1), 0, (0,))
        """
        return cue_words(self.cue)

    @property
    def meta(self) -> Mapping[str, str]:
        """Whatever else is known; cannot be written to."""
        return MappingProxyType(self._meta)

    @property
    def duration(self) -> Seconds:
        """Length of the audio in seconds (from the file's header)."""
        return self._recording.seconds

    @property
    def sound(self) -> str:
        """Hash of the recording: of its decoded samples (mono, at their own rate), not of its name
        or file format.

        Read from the file, if that has changed since it was read last.
        """
        return self._recording.sound

    @property
    def ingredients(self) -> JsonObject:
        """What decides a model's answer about this clip: its sound, and its `annotations`."""
        return {"sound": self.sound, **self.annotations}

    @property
    def annotations(self) -> JsonObject:
        """What is said of the sound: text, words, cue, target, foil, language, a translation."""
        roles = {
            role: request if (i := getattr(self, role)) is None else i
            for role, request in self._requests.items()
        }
        words = None if self.words is None else [word.as_list() for word in self.words]
        return {
            "text": self.text,
            "words": words,
            **roles,
            "foil": self.foil,
            "language": self.language,
            **({} if self.translation is None else {"translation": self.translation}),
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the clip's `ingredients`, 16 hexadecimal digits: what it is, whatever it is
        called and wherever it lies."""
        sound = self.sound
        if self._hashed[0] != sound:
            self.__dict__["_hashed"] = sound, digest({"sound": sound, **self.annotations})[:16]
        return self._hashed[1]

    def audio(self, sample_rate: int = 16_000) -> np.ndarray:
        """Samples, float32 mono [samples], channels averaged, resampled to `sample_rate` per
        second.

        Read from the file at each call, except that the few clips read last are kept.

        Raises
        ------
        InputError
            If the file cannot be decoded, or holds no samples, NaN or infinity.
        """
        return self._recording.samples(sample_rate)

    def validate(self) -> None:
        """Check audio and words together; done before scoring.

        Changes nothing. All-zero audio is legitimate. A cue or target that waits for words is no
        error here: whoever needs its index finds None.

        Raises
        ------
        InputError
            If the audio cannot be read, has no samples, NaN or infinity, is not the recording that
            the words are of, or a word lies past its end.
        """
        self._recording.check()
        self._check_recording()
        if self.words is not None and self.duration != self._checked_seconds:
            self._checked(self.words)

    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if self.path is None:
            parts.append(f"{self.duration:.2f} s")
        parts.append("no words yet" if self.words is None else f"{len(self.words)} words")
        for role, index in (("cue", self.cue), ("target", self.target)):
            if index is not None and self.words is not None:
                parts.append(f"{role}={index} {spelled_cue(self.words, index)!r}")
            elif self._requests[role] is not None:
                parts.append(f"{role}={self._requests[role]!r} (not looked up yet)")
        return f"Clip({', '.join(parts)})"

    def _checked(self, words: Iterable[WordLike]) -> tuple[Word, ...]:
        seconds = self.duration
        try:
            checked = check_words(words, duration=seconds, where=f"clip {self.name!r}")
        except InputError:
            self._check_recording()  # of another recording, which is then what is wrong
            raise
        self.__dict__["_checked_seconds"] = seconds
        return checked

    def _check_recording(self) -> None:
        if self._expected_sound not in (None, self.sound):
            raise InputError(
                f"clip {self.name!r}: {self.path} was replaced since its words were placed: align "
                "it again"
            )
