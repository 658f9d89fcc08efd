#!/bin/sh
# PanPhon 0.22.2, XSampa.convert (X-SAMPA to IPA; phone labels of pronunciation dictionaries and of aligned corpora).
#
# One would guess: signs of X-SAMPA that its table lacks raise an error, or stay as they are.
# True: they are dropped, or read as other letters, and nothing says so.
# - The rising and the falling tone, _R and _F, lose their underscore: "a_R" becomes "aʁ" and "a_F" becomes "aɱ", a vowel
#   and a consonant;
# - x\ (ɧ, as in Swedish) becomes "x"; the linking mark -\ and the downstep ! are dropped;
# - the lowest tone, _B, has a backspace (U+0008) before its letter.
# Cost: transcripts of tone languages get consonants that nobody said, and phone classes and distances are wrong.
#
# Run: sh findings/panphon_xsampa_tones.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet panphon==0.22.2
"$folder/env/bin/python" - <<'PYTHON'
from panphon.xsampa import XSampa

convert = XSampa().convert
expected = {
    "a_H": "a˦",  # a tone that the table has
    "a_R": "aʁ",
    "a_F": "aɱ",
    "x\\": "x",
    "-\\": "",
    "!a": "a",
    "a_B": "a\b˩",
}
found = {label: convert(label) for label in expected}
for label, ipa in found.items():
    print(f"{label!r} -> {ipa!r}")
assert found == expected, "the behaviour has changed"
PYTHON
