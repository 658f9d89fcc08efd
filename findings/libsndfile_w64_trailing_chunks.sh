#!/bin/sh
# soundfile 0.14.0 with libsndfile 1.2.2: Sony Wave64 (.w64), the format of long field recordings and digital audio workstations.
#
# One would guess: chunks behind the sound (markers, notes) are left out, as they are of WAV.
# True: the length of the data chunk is not used; all bytes up to the end of the file are read as samples.
# - A second of sound with a chunk of 3,200 bytes behind it is read as 17,612 samples instead of 16,000: the chunk, its name and
#   its length included, sounds as a burst of noise. The same content as WAV is read right.
# Cost: durations are wrong, and a recogniser hears noise at the end of each recording that was annotated in an editor.
# Remedy: read the lengths of the chunks, and cut the samples; or convert with a tool that does.
#
# Run: sh findings/libsndfile_w64_trailing_chunks.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet soundfile==0.14.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import io
import struct

import numpy as np
import soundfile

TAIL = bytes.fromhex("f3acd3118cd100c04f8edb8a")
RIFF = b"riff" + bytes.fromhex("2e91cf11a5d628db04c10000")
tone = (9000 * np.sin(np.arange(16_000) / 10)).astype("<i2").tobytes()
form = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)  # one channel, 16 kHz, 16 bits
note = b"x" * 3200


def w64(*chunks):
    """Chunks of 16 bytes of name and 8 of length, which counts these 24; multiples of 8 bytes."""
    body = b"".join(
        name + TAIL + struct.pack("<Q", 24 + len(data)) + data + b"\0" * (-len(data) % 8)
        for name, data in chunks
    )
    body = b"wave" + TAIL + body
    return RIFF + struct.pack("<Q", 24 + len(body)) + body


def wav(*chunks):
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(data)) + data for name, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def count(content):
    return len(soundfile.read(io.BytesIO(content))[0])


sound = ((b"fmt ", form), (b"data", tone))
found = {
    "w64": count(w64(*sound)),
    "w64 and a chunk": count(w64(*sound, (b"list", note))),
    "wav and a chunk": count(wav(*sound, (b"note", note))),
}
print(f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}")
print(found)
expected = {"w64": 16_000, "w64 and a chunk": 17_612, "wav and a chunk": 16_000}
assert found == expected, "the behaviour has changed"
PYTHON
