"""Immutable, checked value behind a clip, with its queries.

In: a recording, and what is known of it (`ClipFields`). Out: a `ClipValue`, whose words are in
order and within the audio, with cue and target looked up among them; the audio is read only when
needed. How a clip is made is in `clip`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

import numpy as np

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.names import safe_name
from ..audio.audio_source import Recording
from ..audio.frame_grid import Seconds
from ..words.cue_and_target import Cue, Roles, cue_text, cue_words
from ..words.multipart_words import join_words, list_parts, resolve_words_and_roles
from ..words.text_normalization import normalize_text
from ..words.timed_words import Word
from ..words.unit_roles import UnitRole, find_unit_role, word_requests
from ..words.unit_tiers import Tiers, check_tiers, tiers_to_json
from ..words.word_checks import WordLike, check_words
from ..words.words_in_text import WORDS_IN_TEXT_REVISION, locate_words
from .clip_metadata import SEGMENTS, ClipFields, check_text, refuse_unknown_fields
from .left_out_words import place_in_sound


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
    _expected_audio_hash: str | None
    _checked_duration: Seconds | None  # of the audio that the words were last held against
    _cached_fingerprint: tuple[str, str]  # a sound, and the fingerprint that the clip has with it
    _requests: dict[str, Any]
    _meta: dict[str, str]
    _tiers: dict[str, tuple[Word, ...]]
    _unit_roles: dict[str, UnitRole]

    def __init__(
        self, recording: Recording, *, audio_hash: str | None = None, **fields: Unpack[ClipFields]
    ):
        name = fields.get("name", "clip")
        where = f"clip {name!r}"
        refuse_unknown_fields(fields, where=where)
        self.__dict__.update(  # written here; elsewhere only what is cached of the same clip
            name=safe_name(name),
            text=check_text(fields.get("text"), where=where),
            words=None,
            cue=None,
            target=None,
            foil=normalize_text(foil) if isinstance(foil := fields.get("foil"), str) else foil,
            language=fields.get("language"),
            translation=check_text(fields.get("translation"), where=f"{where}, translation"),
            alignment=None,
            doubts=tuple(fields.get("doubts", ())),
            _recording=recording,
            _expected_audio_hash=audio_hash,
            _checked_duration=None,
            _cached_fingerprint=("", ""),
            _requests={"cue": fields.get("cue"), "target": fields.get("target")},
            _meta=dict(fields.get("meta") or {}),
            _tiers={},
            _unit_roles={},
        )
        words = fields.get("words")
        if words is not None:
            checked_words = self._check_words(words)
            checked_words, roles = resolve_words_and_roles(
                checked_words, word_requests(self._requests), where=f"clip {self.name!r}"
            )
            if fields.get("alignment") != SEGMENTS:
                checked_words, roles = self._place_in_sound(checked_words, roles)
            self.__dict__.update(
                roles, words=checked_words, alignment=fields.get("alignment") or "given"
            )
        if tiers := fields.get("tiers"):
            where = f"clip {self.name!r}"
            self.__dict__["_tiers"] = check_tiers(
                tiers, self.spoken_words, duration=self.duration, where=where
            )
            for role, request in self._requests.items():
                unit_role = find_unit_role(
                    self._tiers, self.spoken_words, request, role=role, where=where
                )
                if unit_role is not None:
                    self._unit_roles[role] = unit_role

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
    def unit_roles(self) -> Mapping[str, UnitRole]:
        """Cue and target that are phones or syllables, by "cue" and "target"; `cue` and `target` are
        then None."""
        return MappingProxyType(self._unit_roles)

    @property
    def cue_request(self) -> Cue | str | list[str] | None:
        """Its cue as functions of maps take it: `cue`, or "phone:m:2"."""
        return self._unit_roles["cue"].request if "cue" in self._unit_roles else self.cue

    @property
    def target_request(self) -> int | str | None:
        """Its target as functions of maps take it: `target`, or "phone:m:2"."""
        role = self._unit_roles.get("target")
        return self.target if role is None else str(role.request)

    @property
    def has_segments(self) -> bool:
        """Whether its words are segments of the sound (`segment_clip`), whose labels nobody says."""
        return self.alignment == SEGMENTS

    @property
    def spoken_words(self) -> tuple[Word, ...]:
        """Its words as what is said; none while there are none, or segments in their place."""
        return () if self.words is None or self.has_segments else self.words

    @property
    def tiers(self) -> Tiers:
        """Its phones and syllables: "phone" and "syllable" to tuples of `Word`, seconds, as far as
        they are known; cannot be written to."""
        return MappingProxyType(self._tiers)

    @property
    def meta(self) -> Mapping[str, str]:
        """Whatever else is known; cannot be written to."""
        return MappingProxyType(self._meta)

    @property
    def duration(self) -> Seconds:
        """Length of the audio in seconds (from the file's header)."""
        return self._recording.seconds

    @property
    def audio_hash(self) -> str:
        """Hash of the recording: of its decoded samples (mono, at their own rate), not of its name
        or file format.

        Read from the file, if that has changed since it was read last.
        """
        return self._recording.audio_hash

    @property
    def fingerprint_fields(self) -> JsonObject:
        """What decides a model's answer about this clip: its sound, and its `annotations`."""
        return {"sound": self.audio_hash, **self.annotations}

    @property
    def annotations(self) -> JsonObject:
        """What is said of the sound: text, words, tiers, cue, target, foil, language, a
        translation."""
        roles = {
            role: request if (resolved := getattr(self, f"{role}_request")) is None else resolved
            for role, request in self._requests.items()
        }
        words = None if self.words is None else [word.to_list() for word in self.words]
        return {
            "text": self.text,
            "words": words,
            **roles,
            "foil": self.foil,
            "language": self.language,
            **({} if self.translation is None else {"translation": self.translation}),
            **({"words_in_text": WORDS_IN_TEXT_REVISION} if self._has_words_alone else {}),
            **({SEGMENTS: True} if self.has_segments else {}),
            **({"tiers": tiers_to_json(self._tiers)} if self._tiers else {}),
        }

    @cached_property
    def _has_words_alone(self) -> bool:
        """Whether some of its words are not in the text that a decoder is fed."""
        labels = [part.text for _, part in list_parts(self.spoken_words)]
        if self.text is None:
            return join_words(self.spoken_words) != " ".join(labels)
        return None in locate_words(labels, self.text)

    @property
    def fingerprint(self) -> str:
        """Hash of the clip's `fingerprint_fields`, 16 hexadecimal digits: what it is, whatever it is
        called and wherever it lies."""
        audio_hash = self.audio_hash
        if self._cached_fingerprint[0] != audio_hash:
            self.__dict__["_cached_fingerprint"] = (
                audio_hash,
                digest({"sound": audio_hash, **self.annotations})[:16],
            )
        return self._cached_fingerprint[1]

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
        """Check audio and words together, before scoring; change nothing.

        All-zero audio is legitimate, and so is a cue or target that waits for words: its index is
        None.

        Raises
        ------
        InputError
            If the audio cannot be read, has no samples, NaN or infinity, is not the recording that
            the words are of, or ends before a word.
        """
        self._recording.validate()
        self._check_recording()
        if self.words is not None and self.duration != self._checked_duration:
            self._check_words(self.words)

    def __repr__(self) -> str:
        descriptions = [repr(self.name)]
        if self.path is None:
            descriptions.append(f"{self.duration:.2f} s")
        descriptions.append("no words yet" if self.words is None else f"{len(self.words)} words")
        for role, index in (("cue", self.cue), ("target", self.target)):
            if index is not None and self.words is not None:
                descriptions.append(f"{role}={index} {cue_text(self.words, index)!r}")
            elif role in self._unit_roles:
                descriptions.append(f"{role}={self._unit_roles[role].request!r}")
            elif self._requests[role] is not None:
                descriptions.append(f"{role}={self._requests[role]!r} (not looked up yet)")
        return f"Clip({', '.join(descriptions)})"

    def _check_words(self, words: Iterable[WordLike]) -> tuple[Word, ...]:
        duration = self.duration
        try:
            words_in_order = check_words(words, duration=duration, where=f"clip {self.name!r}")
        except InputError:
            self._check_recording()  # of another recording, which is then what is wrong
            raise
        self.__dict__["_checked_duration"] = duration
        return words_in_order

    def _place_in_sound(
        self, words: tuple[Word, ...], roles: Roles
    ) -> tuple[tuple[Word, ...], Roles]:
        """Leave out what is no word or has no length; what was said of it stays in the text."""
        requests = word_requests(self._requests)
        placed = place_in_sound(words, roles, requests, text=self.text, where=f"clip {self.name!r}")
        self._requests.update(
            {role: request for role, request in placed.requests.items() if request is not None}
        )
        self.__dict__["text"] = placed.text
        return placed.words, placed.roles

    def _check_recording(self) -> None:
        if self._expected_audio_hash not in (None, self.audio_hash):
            raise InputError(
                f"clip {self.name!r}: {self.path} was replaced since its words were placed: align "
                "it again"
            )
