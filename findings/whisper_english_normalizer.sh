#!/bin/sh
# transformers 5.23.0, EnglishTextNormalizer (what most English word error rates of Whisper are computed with).
#
# One would guess: it expands contractions, spells numbers as digits, and keeps what is not a spelling.
# True:
# - every 's becomes " is", possessives too: "the king's house" and "the king is house" are equal;
# - "four and a half" becomes 4.5, but "4 and a half" stays as it is, so the two differ;
# - "50%" stays, and "50 %" loses its sign, so the two differ;
# - "uh", "um" and "hmm" are deleted.
# Cost: an error rate counts a wrong possessive as right, and two spellings of one number as an error.
#
# Run: sh findings/whisper_english_normalizer.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet transformers==5.23.0
"$folder/env/bin/python" - <<'PYTHON'
import transformers
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

normalize = EnglishTextNormalizer({})
expected = {
    "the king's house": "the king is house",
    "four and a half hours": "4.5 hours",
    "4 and a half hours": "4 and a half hours",
    "50%": "50%",
    "50 %": "50",
    "um two": "2",
}
found = {text: normalize(text).strip() for text in expected}
print(f"transformers {transformers.__version__}")
for text, result in found.items():
    print(f"{text!r} -> {result!r}")
assert found == expected, "the behaviour has changed"
PYTHON
