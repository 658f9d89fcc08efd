#!/bin/sh
# espeakng-loader 0.2.4 (espeak-ng 1.52), phoneme events of espeak_Synth: times of sounds for forced alignment by synthesis.
#
# One would guess: each phoneme event is a sound, and lasts until the next event.
# True: where a voice reads a word in another language ("le football" by the French voice), the events hold marks of the language
# too, "(en)" before the word and "(fr)" behind it. They have no sound of their own; the mark behind a word starts where the word's
# last sound starts. So the l of "football" lasts 0 ms, and the mark has its time. The l of "le bal" lasts 20 ms or more.
# Cost: the last sound of a foreign word is lost, or a mark is taken for a phone: tables of phones hold "(en)", and durations are wrong.
#
# Run: sh findings/espeak_language_marks.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet espeakng-loader==0.2.4
"$folder/env/bin/python" - <<'PYTHON'
import ctypes

import espeakng_loader

PHONEME_EVENT, LIST_END = 7, 0


class Id(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", Id),
    ]


library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
# Synchronous, with phoneme events in IPA.
rate = library.espeak_Initialize(2, 0, str(espeakng_loader.get_data_path()).encode(), 1 | 2 | 0x8000)
events = []


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))
def collect(samples, count, listed):
    index = 0
    while listed[index].type != LIST_END:
        if listed[index].type == PHONEME_EVENT:
            events.append((listed[index].id.string.decode(), listed[index].sample))
        index += 1
    return 0


def durations(text):
    """Phonemes and their milliseconds, without the pause at the end."""
    events.clear()
    data = text.encode()
    library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 1, 0, 1, None, None)
    return [(a, round(1000 * (end - start) / rate)) for (a, start), (_, end) in zip(events, events[1:]) if a]


library.espeak_SetSynthCallback(collect)
library.espeak_SetVoiceByName(b"fr")
french, foreign = durations("le bal"), durations("le football")
print(french)
print(foreign)
assert french[-1][0] == "l" and french[-1][1] >= 20, "the behaviour has changed"
assert [name for name, _ in foreign if name.startswith("(")] == ["(en)", "(fr)"], "the behaviour has changed"
assert foreign[-2][0] == "l" and foreign[-2][1] == 0, "the behaviour has changed"
PYTHON
