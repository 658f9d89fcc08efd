"""Bindings of the espeak-ng library by ctypes: synthesis, events and voices.

In: a text, the identifier of a voice, rate and pitch. Out: int16 samples and `Heard` events.
espeak-ng is GPL-3 and is only called here, at run time. Its synthesis depends on what it spoke
before (pitch flutter lives in static variables that neither a new voice nor espeak_Terminate
resets), so the library is loaded afresh for every call (about 4 ms): the same call gives the same
bits, in any order, in any process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import ModuleType

import numpy as np

from ..errors import InputError, MissingExtraError

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
