"""A clip: one recording, what is said in it, where each word is, and which two words the question
is about.

In: an audio file or array; optionally its text, its words with times, a cue and a target. Out: a
`Clip`, which reads its audio only when needed and does not change. Cue and target may be named
before the words are known (before forced alignment); they are looked up when the words come. Its fields and
queries are those of `ClipValue`, whose words are in order and within the audio; its sound is in
`inputs.audio.audio_source`, cutting is in `segments`, and looking words up is in `inputs.words`.

A word without a length stays in the text: it was said, but nobody knows where. A label that is no
word leaves the text too, which a decoder is fed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.names import safe_name
from ..audio.audio_source import AudioFile, AudioInMemory, Recording, check_audio_path, to_mono
from ..audio.decoding import parse_location
from ..audio.frame_grid import Seconds
from ..words.cue_and_target import (
    Cue,
    CueRequest,
    RoleRequests,
    Roles,
    WordRequest,
    cue_text,
    cue_words,
    describe_word,
)
from ..words.multipart_words import (
    join_words,
    list_parts,
    make_word_request,
    resolve_words_and_roles,
)
from ..words.phone_labels import check_alphabet, convert_to_ipa
from ..words.timed_words import Word
from ..words.transcript_accuracy import normalize_text
from ..words.unit_tiers import (
    PHONE,
    Tiers,
    UnitRole,
    check_tiers,
    find_unit_role,
    tiers_to_json,
    word_requests,
)
from ..words.word_checks import (
    WORD,
    WordLike,
    check_words,
    is_non_unit,
    unit_indices,
    warn_left_out,
)
from ..words.words_in_text import WORDS_IN_TEXT_REVISION, locate_words

SEGMENTS = "segments"  # how words came to be that are segments of the sound (`segment_clip`)
TASKS = ("transcribe", "translate")  # what a Whisper can be told to write of a clip


class ClipMetadata(TypedDict, total=False):
    """Keyword arguments of `Clip.from_array`; what they mean is said there and in
    `Clip.from_file`."""

    text: str | None
    cue: CueRequest | None
    target: WordRequest | None
    foil: str | None
    language: str | None
    translation: str | None
    alignment: str | None
    doubts: Iterable[str]
    meta: Mapping[str, str] | None


class ClipFields(ClipMetadata, total=False):
    """Keyword arguments of `Clip.replace`."""

    name: str
    words: Iterable[WordLike] | None
    tiers: Mapping[str, Iterable[WordLike]] | None


def refuse_unknown_fields(fields: Mapping[str, object], *, where: str) -> None:
    """Raise if something is said that a clip does not hold: a misspelt keyword."""
    unknown_names = sorted(fields.keys() - ClipFields.__annotations__.keys())
    if unknown_names:
        known_names = ", ".join(ClipFields.__annotations__)
        raise InputError(
            f"{where}: expected facts of a clip ({known_names}), found {', '.join(unknown_names)}"
        )


def check_text(text: str | None, *, where: str) -> str | None:
    """Return a text in NFC, without invisible marks and the spaces at its ends; None stays None.

    InputError if nothing is left of it.
    """
    if text is not None and not isinstance(text, str):
        raise InputError(
            f"{where}: expected a text, found {text!r}: leave `text` out if it is unknown"
        )
    text = None if text is None else normalize_text(text).strip()
    if text == "":
        raise InputError(
            f"{where}: expected a text, found an empty one: leave `text` out if it is unknown"
        )
    return text


class PlacedWords(NamedTuple):
    """Words that lie in the sound.

    `roles` are indices of "cue" and "target" among them, and `requests` find the same words again.
    `text` is all that is said, where the words alone do not tell; else None.
    """

    words: tuple[Word, ...]
    roles: Roles
    requests: RoleRequests
    text: str | None


def place_in_sound(
    words: Sequence[Word], roles: Roles, requests: RoleRequests, *, text: str | None, where: str
) -> PlacedWords:
    """Leave out what is no word, also from the text, and what has no length, with a warning.

    InputError if the cue or the target is left out, or no word remains.
    """
    indices = unit_indices(words, WORD)
    text = _without_labels(text, where=where) if text else None
    if len(indices) == len(words):
        return PlacedWords(tuple(words), roles, requests, text)
    for role, role_indices in (
        ("cue", cue_words(roles["cue"])),
        ("target", cue_words(roles["target"])),
    ):
        for index in role_indices:
            if index not in indices:
                word = describe_word(words[index], index)
                if is_non_unit(words[index].text, WORD):
                    raise InputError(f"{where}: the {role} {word} is no word: name another {role}")
                raise InputError(
                    f"{where}: the {role} {word} has no length, so that no sound is its own: correct its "
                    "times, or align the text"
                )
    warn_left_out(words, indices, WORD, where=where)
    if not indices:
        raise InputError(
            f"{where}: expected at least one word with a length, found none: leave `words` out"
        )
    kept = tuple(words[index] for index in indices)
    cue = tuple(indices.index(index) for index in cue_words(roles["cue"]))
    kept_roles = Roles(
        cue=(cue if len(cue) > 1 else cue[0]) if cue else None,
        target=None if roles["target"] is None else indices.index(roles["target"]),
    )
    spoken_words = [word for word in words if not is_non_unit(word.text, WORD)]
    if text is None and len(spoken_words) > len(kept):
        text = join_words(spoken_words)
    return PlacedWords(kept, kept_roles, _requests_for(kept, kept_roles, requests, where), text)


def _without_labels(text: str, *, where: str) -> str:
    """A text without labels in brackets that are no words, with a warning."""
    parts = text.split()
    labels = {part for part in parts if not part.isalnum() and is_non_unit(part, WORD)}
    if not labels:
        return text
    warnings.warn(
        f"{where}: left out of the text, because they are no words: "
        f"{', '.join(map(repr, sorted(labels)))}. Write a word that is said without brackets",
        stacklevel=3,
    )
    return " ".join(part for part in parts if part not in labels)


def _requests_for(
    words: tuple[Word, ...], roles: Roles, requests: RoleRequests, where: str
) -> RoleRequests:
    """The requests, if they find the same words where some are left out; else others that do."""
    try:
        if resolve_words_and_roles(words, requests, where=where)[1] == roles:
            return requests
    except InputError:
        pass
    return {
        role: requests.get(role) if indices is None else make_word_request(words, indices)
        for role, indices in (("cue", roles["cue"]), ("target", roles["target"]))
    }


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
        cue, target = self.cue_request, self.target_request
        words = None if self.words is None else [word.to_list() for word in self.words]
        return {
            "text": self.text,
            "words": words,
            "cue": self._requests["cue"] if cue is None else cue,
            "target": self._requests["target"] if target is None else target,
            "foil": self.foil,
            "language": self.language,
            **({} if self.translation is None else {"translation": self.translation}),
            **({"words_in_text": WORDS_IN_TEXT_REVISION} if self._has_words_alone else {}),
            **({SEGMENTS: True} if self.has_segments else {}),
            **({"tiers": tiers_to_json(self._tiers)} if self._tiers else {}),
        }

    @property
    def _has_words_alone(self) -> bool:
        """Whether some of its words are not in the text that a decoder is fed."""
        # That all are there is seen at once where they are the words of the text, as of most clips.
        if self.text is not None and self.text.split() == [word.text for word in self.spoken_words]:
            return False
        return self._text_lacks_words

    @cached_property
    def _text_lacks_words(self) -> bool:
        """The same, looked up word by word."""
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


# A path of a word file, or the words themselves.
WordSource = str | PathLike[str] | Iterable[WordLike]
# By unit, the name of a tier of the word file, or its intervals.
TierSource = Mapping[str, str | Iterable[WordLike]]


def annotation_fields(
    clip: ClipValue,
    words: WordSource | None,
    *,
    alignment: str | None = None,
    tier: str | None = None,
    tiers: TierSource | None = None,
    alphabet: str | None = None,
) -> ClipFields:
    """Fields of a clip with these words and tiers; the parameters are those of `Clip.with_words`.

    InputError if a file cannot be used, or has no tier of the given name.
    """
    where = f"clip {clip.name!r}"
    check_alphabet(alphabet, where)
    names = {unit: source for unit, source in (tiers or {}).items() if isinstance(source, str)}
    intervals = {
        unit: given_units(source, unit, alphabet=alphabet, where=f"{where}, tier {unit!r}")
        for unit, source in (tiers or {}).items()
        if not isinstance(source, str)
    }
    fields = ClipFields() if tiers is None else ClipFields(tiers=intervals)
    if not isinstance(words, (str, PathLike)):
        if names:
            raise InputError(
                f"{where}: the tiers {', '.join(map(repr, names.values()))} are named, expected a file "
                "that has them as words=, or their intervals"
            )
        if words is not None:
            fields |= ClipFields(words=words, alignment=alignment)
        return fields
    from ..formats.word_files import read_word_file, word_file_kind  # only for a file

    is_whole_file = clip.path is not None and parse_location(clip.path) is None
    timed_words, file_tiers, text = read_word_file(
        words,
        tier=tier,
        tiers=None if tiers is None else names,
        utterance=clip.path.stem if is_whole_file and clip.path is not None else clip.name,
        alphabet=alphabet,
    )
    if timed_words:
        fields |= ClipFields(words=timed_words, alignment=alignment or word_file_kind(words))
    if text is not None and clip.text is None:
        fields["text"] = text
    if tiers is not None:
        fields["tiers"] = {**file_tiers, **intervals}
        return fields
    if file_tiers:
        fields["tiers"] = usable_tiers(file_tiers, timed_words, clip.duration, where=str(words))
    return fields


def given_units(
    units: Iterable[WordLike], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Checked units of a tier that a caller gives, phones in IPA.

    InputError if they cannot be right, or are phones in no known alphabet.
    """
    checked = check_words(units, where=where, unit=unit)
    return convert_to_ipa(checked, alphabet=alphabet, where=where) if unit == PHONE else checked


def usable_tiers(
    tiers: Tiers, words: Sequence[Word], duration: Seconds | None = None, *, where: str
) -> Tiers:
    """Return tiers that nobody requested by name; none, with a warning, if they cannot be right."""
    try:
        return check_tiers(tiers, words, duration=duration, where=where)
    except InputError as error:
        warnings.warn(f"the tiers below the words are left out: {error}", stacklevel=2)
        return {}


class Clip(ClipValue):
    """One recording with its words. Make one with `from_file` or `from_array`, and another from it
    with `replace`.

    A clip is checked when it is made and does not change: words are in order and within the audio
    (whose header is read if there are words), and cue and target are looked up among them.

    Attributes
    ----------
    name : str
        Names the clip in results and is safe in a file name; `fingerprint` says whether it is still
        the same clip.
    path : Path or None
    text : str or None
        What is said.
    words : tuple of Word, or None
        With times in seconds; None until they are known.
    cue : int, tuple of int, or None
        Index into `words`, or indices where several words are one cue ("le club" for its verb);
        None if not requested, or while there are no words. `cue_words` is a tuple in all cases.
    target : int or None
        Likewise, one word.
    foil : str or None
        The other spelling of the target ("livre" for "livres"): what a model that misses the cue
        would write.
    language : str or None
        Language code, as the model wants it ("fr").
    translation : str or None
        What a Whisper that translates is fed (`Model.with_prefix`); None if it writes that itself.
    alignment : str or None
        How the words came to be: "textgrid", "ctm", "json", "table", "given", "ctc", "synthesis",
        ...; "segments" if they are segments of the sound (`segment_clip`).
    tiers : mapping of str to tuple of Word
        "phone" and "syllable", as far as they are known; labels in IPA, with the file's own label as
        `source_label`.
    doubts : tuple of str
        Why the word times cannot be trusted, if the aligner said so.
    meta : mapping of str to str
        Whatever else is known (further columns of a manifest).

    Raises
    ------
    FrozenInstanceError
        If an attribute is assigned to.

    Examples
    --------
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="demo", cue="les", target="livres")
    >>> clip.cue is None
    True
    >>> clip = clip.with_words([("les", 0.1, 0.3), ("livres", 0.3, 0.9)], alignment="given")
    >>> clip
    Clip('demo', 1.00 s, 2 words, cue=0 'les', target=1 'livres')
    """

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        text: str | None = None,
        words: WordSource | None = None,
        cue: CueRequest | None = None,
        target: WordRequest | None = None,
        foil: str | None = None,
        language: str | None = None,
        translation: str | None = None,
        tier: str | None = None,
        tiers: TierSource | None = None,
        alphabet: str | None = None,
        name: str | None = None,
        meta: Mapping[str, str] | None = None,
        audio_hash: str | None = None,
    ) -> Clip:
        """Clip of an audio file; the audio is not read yet.

        Parameters
        ----------
        path : path of a WAV, FLAC, OGG or MP3 file
        text : str, optional
        words : path or sequence, optional
            A .TextGrid, .ctm, .json, .tsv or .csv file, or `Word`s or (text, start, end) with times
            in seconds.
        cue, target : int, str or (str, int); of the cue also a list, optional
            An index into the words, a word, or a word and its occurrence: ``"les:2"`` or ``("les",
            2)``. A cue of several words is a list of these, or ``"le club"``
            (`speechmix.inputs.words.cue_and_target.find_cue`).
        foil : str, optional
            The other spelling of the target.
        language : str, optional
            What a multilingual Whisper's decoder is told is spoken, and synthesis places words by;
            other models are told none.
        translation : str, optional
            What a Whisper that translates should write.
        tier : str, optional
            Which tier of a TextGrid holds the words.
        tiers : mapping of "phone" and "syllable" to str or sequence, optional
            Names of tiers in the file of the words, or intervals as `words` takes them. Default:
            tiers of the file whose names say what they are ("phones", "MAU", "syllables", ...); one
            that cannot be right is left out with a warning. ``tiers={}``: none.
        alphabet : {"ipa", "arpabet", "x-sampa", "praat"}, optional
            Of the phones. Default: the one that all labels fit, with a warning if it is not IPA.
        name : str, optional
            Default: the file's name without its ending.
        audio_hash : str, optional
            `audio_hash` of the recording that the words are of: `validate` refuses another.

        Raises
        ------
        InputError
            If a file is missing or unusable, the words cannot be right, or cue or target is none or
            several of them.
        """
        path = check_audio_path(path)
        clip = cls(
            AudioFile(path),
            name=name or path.stem,
            text=text,
            cue=cue,
            target=target,
            foil=foil,
            language=language,
            translation=translation,
            meta=meta,
            audio_hash=audio_hash,
        )
        return clip.with_words(words, tier=tier, tiers=tiers, alphabet=alphabet)

    @classmethod
    def from_array(
        cls,
        audio: np.ndarray,
        sample_rate: int,
        *,
        name: str | None = None,
        words: WordSource | None = None,
        tier: str | None = None,
        tiers: TierSource | None = None,
        alphabet: str | None = None,
        **details: Unpack[ClipMetadata],
    ) -> Clip:
        """Clip of samples in memory; the other options (text, cue, target, ...) are those of
        `from_file`.

        Parameters
        ----------
        audio : array, [samples] or [samples, channels]
            Floats, or integers at full scale.
        sample_rate : int
            Samples per second.
        name : str, optional
            Default: "clip-" and the beginning of `audio_hash`, so that no two recordings share a name.
        """
        samples = to_mono(
            audio, sample_rate, sample_rate=sample_rate, where=f"clip {name!r}" if name else "clip"
        )
        samples.flags.writeable = False
        recording = AudioInMemory(samples, int(sample_rate))
        clip = cls(recording, name=name or f"clip-{recording.audio_hash[:8]}", **details)
        return clip.with_words(words, tier=tier, tiers=tiers, alphabet=alphabet)

    def replace(self, **changes: Unpack[ClipFields]) -> Clip:
        """Return another clip of the same recording, with these changes, checked as if it had been
        made so.

        Parameters
        ----------
        name, text, words, tiers, cue, target, foil, language, translation, alignment, doubts, meta
            As in `from_file`, but words and tiers as sequences. New words are "given" if `alignment`
            does not say how they came to be; if phones cross
            their boundaries, the clip loses its tiers, with a warning. Cue and
            target are looked up anew as they were asked for: "les" may be another word of other
            words.

        Raises
        ------
        InputError
            If there is nothing of such a name to change, or the changed clip cannot be right.

        Examples
        --------
        >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="demo", cue="les", words=[("les", 0.1, 0.3)])
        >>> clip.replace(words=[("tous", 0.1, 0.3), ("les", 0.3, 0.5)]).cue
        1
        """
        fields = ClipFields(
            name=self.name,
            text=self.text,
            words=self.words,
            cue=self._requests["cue"],
            target=self._requests["target"],
            foil=self.foil,
            language=self.language,
            translation=self.translation,
            alignment=None if "words" in changes else self.alignment,
            doubts=self.doubts,
            meta=self.meta,
            tiers=self.tiers,
        )
        fields.update(changes)
        if must_nest := bool(self.tiers) and "words" in changes and "tiers" not in changes:
            fields["tiers"] = {}
        changed = type(self)(self._recording, audio_hash=self._expected_audio_hash, **fields)
        if must_nest:
            tiers = usable_tiers(self.tiers, changed.spoken_words, where=f"clip {self.name!r}")
            changed = changed.replace(tiers=tiers)
        return changed

    def with_name(self, name: str) -> Clip:
        """Return a copy of another name."""
        return self.replace(name=name)

    def with_doubts(self, doubts: Iterable[str]) -> Clip:
        """Return a copy with reasons why its word times cannot be trusted."""
        return self.replace(doubts=doubts)

    def with_words(
        self,
        words: WordSource | None,
        *,
        alignment: str | None = None,
        tier: str | None = None,
        tiers: TierSource | None = None,
        alphabet: str | None = None,
    ) -> Clip:
        """Return a copy that has these words, with cue and target looked up among them.

        Parameters
        ----------
        words : path or sequence
            As in `from_file`; None to give only tiers.
        alignment : str, optional
            How the words came to be; default: the kind of file, or "given".
        tier : str, optional
            Which tier of a TextGrid holds the words.
        tiers, alphabet : optional
            As in `from_file`.
        """
        fields = annotation_fields(
            self, words, alignment=alignment, tier=tier, tiers=tiers, alphabet=alphabet
        )
        return self.replace(**fields)

    def cut(self, start: Seconds, end: Seconds) -> Clip:
        """Return the part of the clip between two times, with the words that lie wholly in it.

        Parameters
        ----------
        start, end : float
            Seconds. Best in pauses: a word that is cut through is left out. The text is the part with
            the words that remain, its capitals and punctuation too; without words it is no longer
            known.

        Raises
        ------
        InputError
            If the part is empty, or the cue or target is not in it.
        """
        from .segments import cut_clip

        return cut_clip(self, self._recording, self._requests, start, end)

    def _repr_html_(self) -> str:
        """Shown in a notebook: what is said, cue and target marked, and a player."""
        from .player import render_player

        return render_player(self)
