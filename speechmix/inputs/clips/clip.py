"""A clip: one recording, what is said in it, where each word is, and which two words the question
is about.

In: an audio file or array; optionally its text, its words with times, a cue and a target. Out: a
`Clip`, which reads its audio only when needed and does not change. Cue and target may be named
before the words are known (before forced alignment); they are looked up when the words come. Here
is how a clip is made; its fields and queries are in `immutable_clip`, its sound is in
`inputs.audio.audio_source`, cutting is in `segments`, and looking words up is in `inputs.words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Unpack

import numpy as np

from ..audio.audio_source import AudioFile, AudioInMemory
from ..audio.frame_grid import Seconds
from ..audio.loading import check_audio_path
from ..audio.samples import to_mono
from ..words.cue_and_target import CueRequest
from ..words.word_lookup import WordRequest
from .clip_annotations import TierSource, WordSource, annotation_fields, usable_tiers
from .clip_metadata import ClipFields, ClipMetadata
from .immutable_clip import ClipValue


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
