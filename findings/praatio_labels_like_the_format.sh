#!/bin/sh
# praatio 6.2.2, openTextgrid (TextGrids of Praat, aligners and corpora).
#
# One would guess: what stands in a label is text, whatever it is; Praat itself reads such files.
# True: the parser looks for the words of the format in the whole text, labels included.
# - A label that holds "intervals [3]:" or "item [2]:", as comments of annotators on other intervals do, ends in a ParsingError
#   ("Expected field in Textgrid missing"), which names neither the label nor its line;
# - "a = text" and doubled quotation marks are read right.
# Cost: a corpus with one such comment cannot be read, and the message points nowhere.
#
# Run: sh findings/praatio_labels_like_the_format.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet praatio==6.2.2
cd "$folder"
env/bin/python - <<'PYTHON'
from praatio import textgrid

LINES = r'''File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0 
xmax = 1 
tiers? <exists> 
size = 1 
item []: 
    item [1]:
        class = "IntervalTier" 
        name = "words" 
        xmin = 0 
        xmax = 1 
        intervals: size = 1 
        intervals [1]:
            xmin = 0 
            xmax = 1 
            text = "LABEL" 
'''
found = {}
for label in ("oui", "a = text", 'he said ""no""', "see intervals [3]:", "see item [2]:"):
    with open("a.TextGrid", "w", encoding="utf-8") as file:
        file.write(LINES.replace("LABEL", label))
    try:
        tier = textgrid.openTextgrid("a.TextGrid", includeEmptyIntervals=False).getTier("words")
        found[label] = tier.entries[0].label
    except Exception as error:
        found[label] = f"{type(error).__name__}: {error}"
for label, result in found.items():
    print(f"{label!r} -> {result!r}")
assert list(found.values())[:3] == ["oui", "a = text", 'he said "no"'], "the behaviour has changed"
assert all(result.startswith("ParsingError") for result in list(found.values())[3:]), "the behaviour has changed"
PYTHON
