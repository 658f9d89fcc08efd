"""Speech from text with known word times, by espeak-ng (through the `espeakng-loader` package and
ctypes).

In: a text and a voice. Out: a `Speech`: audio, the written words with their times, the phonemes
with theirs. The same call gives the same bits, in any order, in any process.

Letters that an espeak-ng voice cannot read.

In: the words of a text, and a voice. Out: the words whose letters it names instead of reading them:
*Chinese letter* for each Japanese kanji, *Cyrillic es* in a French text. espeak-ng itself does not say
so. Letters of a script that it does not read have names that begin alike, and it says these names in
the word. Words of a foreign script that it reads in another language (Greek in a French text) are no
such case.

Bindings of the espeak-ng library by ctypes: synthesis, events and voices.

In: a text, the identifier of a voice, rate and pitch. Out: int16 samples and `Heard` events.
espeak-ng is GPL-3 and is only called here, at run time. Its synthesis depends on what it spoke
before (pitch flutter lives in static variables that neither a new voice nor espeak_Terminate
resets), so the library is loaded afresh for every call (about 4 ms): the same call gives the same
bits, in any order, in any process.
"""

from __future__ import annotations

import ctypes
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from types import ModuleType

import numpy as np

from ..errors import InputError, MissingExtraError
from ..inputs.audio.spectrograms import resample
from ..inputs.words.timed_words import Word
from .alignment_result import aligned_words

# From espeak-ng's speak_lib.h.
_SYNCHRONOUS, _PHONEME_EVENTS, _IPA, _DO_NOT_EXIT = 2, 1, 2, 0x8000
_RATE_PARAMETER, _PITCH_PARAMETER = 1, 3
_BY_CHARACTER, _UTF8 = 1, 1
_LIST_END, WORD, PHONEME = 0, 1, 7

Heard = tuple[int, int, int, str]  # an event: type, character position, sample, phoneme
_lock = Lock()  # one espeak-ng per process


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("unused", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


def run_synthesis(
    text: str, voice: str, rate: int, pitch: int
) -> tuple[np.ndarray, list[Heard], int]:
    """Return int16 samples, events (type, character position, sample, phoneme) and the sample
    rate."""
    chunks: list[np.ndarray] = []
    events: list[Heard] = []

    @_Callback  # type: ignore[untyped-decorator]  # of ctypes, known when this runs
    def collect(
        samples: ctypes._Pointer[ctypes.c_short], count: int, listed: ctypes._Pointer[_Event]
    ) -> int:
        if samples and count > 0:
            chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        index = 0
        while listed[index].type != _LIST_END:
            event = listed[index]
            phoneme = event.id.string.decode("utf-8", "ignore") if event.type == PHONEME else ""
            events.append((event.type, event.text_position - 1, event.sample, phoneme))
            index += 1
        return 0

    with _open_library_copy() as (library, native_rate):
        library.espeak_SetSynthCallback(collect)
        status = library.espeak_SetVoiceByName(voice.encode())
        library.espeak_SetParameter(_RATE_PARAMETER, rate, 0)
        library.espeak_SetParameter(_PITCH_PARAMETER, pitch, 0)
        encoded = text.encode()
        size = ctypes.c_size_t(len(encoded) + 1)
        status = status or library.espeak_Synth(
            encoded, size, 0, _BY_CHARACTER, 0, _UTF8, None, None
        )
    if status != 0 or not chunks:
        raise InputError(
            f"espeak-ng voice {voice!r} could not speak {text!r} (status {status}): try another "
            "voice"
        )
    return np.concatenate(chunks), events, native_rate


@lru_cache(maxsize=1)
def voice_table() -> dict[str, tuple[str, str]]:
    """Language code -> (name, identifier); where several voices speak a language, the one espeak-ng
    prefers."""
    preferred: dict[str, tuple[int, str, str]] = {}
    with _open_library_copy() as (library, _):
        library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        listed = library.espeak_ListVoices(None)
        index = 0
        while listed[index]:
            voice = listed[index].contents
            index += 1
            name, identifier = voice.name.decode(), voice.identifier.decode()
            for priority, code in _parse_languages(voice.languages):
                if code not in preferred or priority < preferred[code][0]:
                    preferred[code] = (priority, name, identifier)
    return {code: (name, identifier) for code, (_, name, identifier) in sorted(preferred.items())}


def _parse_languages(address: int) -> Iterator[tuple[int, str]]:
    """Read espeak-ng's list of a voice's languages: (priority byte, code, NUL) repeated, then a
    NUL."""
    while priority := ctypes.string_at(address, 1)[0]:
        code = ctypes.string_at(address + 1)
        yield priority, code.decode()
        address += len(code) + 2


def _loader() -> ModuleType:
    try:
        import espeakng_loader
    except ImportError as error:
        raise MissingExtraError(
            "espeakng-loader", "synthesis", "speech synthesis with word times"
        ) from error
    loader: ModuleType = espeakng_loader
    return loader


def data_path() -> Path:
    """Return the folder of espeak-ng's voices and dictionaries."""
    return Path(_loader().get_data_path())


@contextmanager
def _open_library_copy() -> Iterator[tuple[ctypes.CDLL, int]]:
    """Load espeak-ng with untouched static variables; yield it and its sample rate; unload it."""
    loader = _loader()
    with _lock:
        library = ctypes.CDLL(str(loader.get_library_path()))
        try:
            options = _PHONEME_EVENTS | _IPA | _DO_NOT_EXIT
            native_rate = library.espeak_Initialize(
                _SYNCHRONOUS, 0, str(data_path()).encode(), options
            )
            if native_rate <= 0:
                raise InputError(
                    f"espeak-ng found no voices in {data_path()}: reinstall espeakng-loader in a "
                    "shorter path"
                )
            library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # else the seed is the time of day
            yield library, native_rate
        finally:
            library.espeak_Terminate()
            _close_library(library)


def _close_library(library: ctypes.CDLL) -> None:
    import _ctypes

    close = getattr(
        _ctypes, "dlclose" if hasattr(_ctypes, "dlclose") else "FreeLibrary"
    )  # the latter on Windows
    close(library._handle)


_LAST_LATIN = "\u024f"
_RATE, _PITCH = 300, 50
# Phonemes that the names of all letters of a script share, at least; native letters share 0 or 1.
_MIN_NAME_PHONEMES = 4
_MIN_SPELLED_LETTERS = 3  # of a Latin word that is spelled; "pc" may be an abbreviation
_STRESS_MARKS = str.maketrans("", "", "ˈˌ-")


def find_unread_words(tokens: Sequence[str], voice: str, *, switches: bool) -> list[str]:
    """Return the words that a voice, an espeak-ng identifier, would spell by the names of their
    letters.

    `switches` says that the voice speaks some of them in another language: else no Latin word is
    spelled.

    Examples
    --------
    >>> from speechmix.alignment.espeak import voice_name
    >>> find_unread_words(["わたし", "日本", "λόγος"], voice_name("ja"), switches=True)
    ['日本']
    """
    return [
        token
        for token in dict.fromkeys(tokens)
        if (switches or not token.isascii()) and _is_spelled(token, voice)
    ]


def is_language_mark(name: str) -> bool:
    """Whether a phoneme event says that another language begins: "(en)", or cut to "(en-gb-x".

    Examples
    --------
    >>> is_language_mark("(en)"), is_language_mark("l")
    (True, False)
    """
    return name.startswith("(")


def _is_spelled(token: str, voice: str) -> bool:
    letters = [letter for letter in token if letter.isalpha()]
    foreign = [letter for letter in letters if letter > _LAST_LATIN]
    if any(
        _shared_name_length(_script_letters(letter), voice) >= _MIN_NAME_PHONEMES
        for letter in foreign
    ):
        spoken = _letter_phonemes(token, voice)[0]
        return any(_contains(spoken, _letter_phonemes(letter, voice)[0]) for letter in foreign)
    # A voice of another script may spell a Latin word, letter by letter, in English.
    if foreign or len(letters) < _MIN_SPELLED_LETTERS or token.isupper():
        return False
    spoken, switches = _letter_phonemes(token, voice)
    return switches and spoken == tuple(
        name for letter in letters for name in _letter_phonemes(letter, voice)[0]
    )


@lru_cache(maxsize=4096)
def _letter_phonemes(text: str, voice: str) -> tuple[tuple[str, ...], bool]:
    """Phonemes of a text, without stress, and whether the voice speaks another language in it."""
    try:
        _, events, _ = run_synthesis(text, voice, _RATE, _PITCH)
    except InputError:  # it says nothing
        return (), False
    names = [name for kind, _, _, name in events if kind == PHONEME and name]
    phonemes = tuple(name.translate(_STRESS_MARKS) for name in names if not is_language_mark(name))
    return phonemes, any(map(is_language_mark, names))


@lru_cache(maxsize=256)
def _script_letters(letter: str) -> tuple[str, ...]:
    """Five letters of the same script, far apart in its part of Unicode."""
    first = ord(letter) // 256 * 256
    letters = [
        other
        for other in map(chr, range(first, first + 256))
        if unicodedata.category(other) in ("Lo", "Ll") and _script(other) == _script(letter)
    ]
    return tuple(letters[index * (len(letters) - 1) // 4] for index in range(5)) if letters else ()


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").replace("-", " ").partition(" ")[0]


@lru_cache(maxsize=256)
def _shared_name_length(letters: tuple[str, ...], voice: str) -> int:
    """Number of phonemes that a voice's names of these letters have in common at the start."""
    readings = [_letter_phonemes(letter, voice)[0] for letter in letters]
    count = 0
    for phonemes in zip(*readings, strict=False):
        if len(set(phonemes)) > 1:
            break
        count += 1
    return count


def _contains(spoken: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return any(
        spoken[start : start + len(name)] == name for start in range(len(spoken) - len(name) + 1)
    )


RATES = (80, 450)  # words per minute that espeak-ng accepts without its own speed-up
PITCHES = (0, 99)


@dataclass(frozen=True, eq=False)
class Speech:
    """A synthetic utterance: float32 audio [S], mono, in [-1, 1].

    There is one of `words` for each item of ``aligned_words(text)``, in seconds. A word ends where
    the next begins, or where the pause before the next begins. Words that espeak-ng speaks as one
    ("parce que") share its time by number of letters. `phonemes` are in IPA, with stress marks; a
    pause has an empty text.
    """

    audio: np.ndarray
    sample_rate: int
    words: tuple[Word, ...]
    phonemes: tuple[Word, ...]


def speak(
    text: str, *, voice: str = "fr-fr", rate: int = 175, pitch: int = 50, sample_rate: int = 16_000
) -> Speech:
    """Synthesise a text.

    `voice` is a language code of `espeak_voices` ("fr", "fr-be", "en-us"), optionally with a speaker
    variant ("fr+f2"); `rate` is in words per minute, 80 to 450; `pitch` is 0 to 99. The audio is
    resampled to `sample_rate` from the 22,050 Hz of espeak-ng. An InputError says that the text has
    no words, that voice, variant, rate or pitch cannot be, or that the voice cannot read some
    letters; a MissingExtraError, that espeakng-loader is not installed.

    Examples
    --------
    >>> speech = speak("L'enfant mange 80% des petits-pois : bravo !")
    >>> [word.text for word in speech.words]
    ["L'enfant", 'mange', '80%', 'des', 'petits-pois', 'bravo']
    """
    for name, value, (low, high) in (("rate", rate, RATES), ("pitch", pitch, PITCHES)):
        if not low <= value <= high:
            raise InputError(f"{name} must be between {low} and {high}, found {value}")
    if not aligned_words(text):
        raise InputError(f"expected a text with words to speak, found {text!r}")
    # One blank between tokens and one code point per accented letter, so that espeak-ng's positions
    # are ours.
    tokens = [unicodedata.normalize("NFC", token.replace("\0", "")) for token in text.split()]
    samples, events, native_rate = run_synthesis(" ".join(tokens), voice_name(voice), rate, pitch)
    switches = any(kind == PHONEME and is_language_mark(name) for kind, _, _, name in events)
    base_voice = voice_name(voice.partition("+")[0])
    if unread := find_unread_words(tokens, base_voice, switches=switches):
        raise InputError(
            f"the espeak-ng voice {voice!r} cannot read {', '.join(map(repr, unread[:5]))}: it would say "
            "the names of the letters: write these words in letters that the voice reads (Japanese in "
            "kana), or align with a CTC model of the language (model=)"
        )
    phonemes = _phonemes(events, len(samples))
    original_tokens = text.split()
    spoken = [index for index, token in enumerate(original_tokens) if aligned_words(token)]
    edges = _token_starts(events, tokens, spoken, last=_speech_end(phonemes, len(samples)))
    ranges = [_remove_pauses(phonemes, start, end) for start, end in pairwise(edges)]
    words = tuple(
        Word(original_tokens[i], a / native_rate, b / native_rate)
        for i, (a, b) in zip(spoken, ranges, strict=True)
    )
    return Speech(
        audio=_resample(samples, native_rate, sample_rate),
        sample_rate=sample_rate,
        words=words,
        phonemes=tuple(
            Word(name, start / native_rate, end / native_rate) for name, start, end in phonemes
        ),
    )


def espeak_voices() -> dict[str, str]:
    """Return the language codes that `speak` takes, with the name of each voice.

    Any of them can be followed by a speaker variant, as in ``"fr+f2"``; see `list_variants`.
    """
    return {code: name for code, (name, _) in voice_table().items()}


def list_variants() -> list[str]:
    """Return the speaker variants that can follow a language code: ``f1``, ``m3``, ...

    Examples
    --------
    >>> "f2" in list_variants()
    True
    """
    return sorted(path.name for path in (data_path() / "voices" / "!v").iterdir())


def voice_name(voice: str) -> str:
    code, plus, variant = voice.partition("+")
    table = voice_table()
    code = code.lower().replace("_", "-")
    if code not in table:
        near = [language for language in table if language[:2] == code[:2]] or list(table)[:8]
        raise InputError(
            f"no espeak-ng voice for {voice!r}: expected a language code such as "
            f"{', '.join(near)}; "
            "speechmix.alignment.espeak.espeak_voices() lists them all"
        )
    if plus and variant not in list_variants():
        raise InputError(
            f"no espeak-ng speaker variant {variant!r}: expected one of "
            "speechmix.alignment.espeak.list_variants()"
        )
    return table[code][1] + plus + variant


def _phonemes(events: list[Heard], n_samples: int) -> list[tuple[str, int, int]]:
    """Phonemes and pauses (without a name) as (name, start, end) in samples.

    Marks of another language, such as "(en)", are none. The time of one belongs to the phoneme before
    it if that has no other, which is how espeak-ng ends a foreign word, else to the one behind it.
    """
    marks: list[tuple[str, int]] = []
    switch_start: int | None = None
    for kind, _, sample, name in events:
        if kind != PHONEME:
            continue
        if is_language_mark(name):
            ends_word = bool(marks) and marks[-1][0] != "" and marks[-1][1] == sample
            switch_start = None if ends_word else sample
            continue
        marks.append((name, sample if switch_start is None else switch_start))
        switch_start = None
    ends = [sample for _, sample in marks[1:]] + [n_samples]
    return [
        (name, start, end) for (name, start), end in zip(marks, ends, strict=True) if end > start
    ]


def _remove_pauses(phonemes: list[tuple[str, int, int]], start: int, end: int) -> tuple[int, int]:
    """Cut the pauses off both ends of a word. A closure before a word's first phoneme stays part of
    the word."""
    pauses = [
        (begin, stop) for name, begin, stop in phonemes if not name and begin < end and stop > start
    ]
    for begin, stop in pauses:
        if begin <= start < stop < end:
            start = stop
    for begin, stop in reversed(pauses):
        if start < begin < end <= stop:
            end = begin
    return start, end


def _speech_end(phonemes: list[tuple[str, int, int]], n_samples: int) -> int:
    return max((end for name, _, end in phonemes if name), default=n_samples)


def _token_starts(
    events: list[Heard], tokens: list[str], spoken: list[int], *, last: int
) -> list[int]:
    """Sample at which each spoken token starts, and behind them the end of the last one."""
    first_characters = np.concatenate(
        [[0], np.cumsum([len(token) + 1 for token in tokens])]
    ).tolist()
    token_samples: dict[int, int] = {}
    for kind, position, sample, _ in events:
        if kind == WORD:
            token = bisect_right(first_characters, position) - 1
            # A mark that is spoken after all ("- 5") is part of the word behind it.
            token = next((index for index in spoken if index >= token), spoken[-1])
            token_samples.setdefault(token, sample)
    token_samples.setdefault(spoken[0], 0)
    # Words without an event of their own are spoken together with the last one that has: share its
    # time by letters.
    timed = [index for index in spoken if index in token_samples]
    letters = np.concatenate([[0], np.cumsum([len(tokens[index]) for index in spoken])])
    timed_positions = [spoken.index(index) for index in timed] + [len(spoken)]
    times = np.maximum.accumulate([token_samples[index] for index in timed] + [last])
    edges: list[int] = (
        np.interp(letters, letters[timed_positions], times).round().astype(int).tolist()
    )
    return edges


def _resample(samples: np.ndarray, native_rate: int, sample_rate: int) -> np.ndarray:
    audio = resample(samples.astype(np.float32) / 32768, native_rate, sample_rate)
    limited: np.ndarray = np.clip(audio, -1, 1).astype(np.float32)
    return limited
