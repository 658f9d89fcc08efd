"""Parse the text of a Praat TextGrid.

In: the text, in the long or the short form. Out: its interval tiers by name. As Praat does it: texts
in quotation marks, numbers and flags that stand free are the values, in a fixed order; everything else
(names, numbers in brackets, comments) is there for people. So a label may look like the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import InputError
from ..audio.frame_grid import Seconds
from ..words.labels_in_sentences import number_repeated

Intervals = dict[str, list[tuple[str, Seconds, Seconds]]]

_VALUE = re.compile(
    r"""
    "(?P<text>(?:[^"]|"")*)"
    | <(?P<flag>\w+)>
    | \[[^]["\n]*\]                                                  # the number of an item
    | !.*                                                            # a comment
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?=\s|$)
    | [^\s"\[<!=]+ | .
    """,
    re.VERBOSE,
)
# A label on a line of its own, in which praatio and others leave quotation marks as they are.
_LABEL_LINE = re.compile(r"^([ \t]*(?:text|mark|name) = \")(.*)(\"[ \t\r]*)$", re.MULTILINE)
_SAVE_AS_TEXT = "open it in Praat, select the TextGrid and choose Save as text file"


def parse_textgrid(text: str, *, where: str) -> Intervals:
    """Interval tiers by name, each a list of (label, start, end) in seconds.

    Tiers of one name are told apart by numbers: "words (1)", "words (2)". InputError if it is
    another object of Praat or none, ends too early, or has a time that is negative or no number.

    Examples
    --------
    >>> text = 'File type = "ooTextFile" Object class = "TextGrid" 0 1 <exists> 1 "IntervalTier" "mots" 0 1 1 0 1 "oui"'
    >>> parse_textgrid(text, where="a.TextGrid")
    {'mots': [('oui', 0.0, 1.0)]}
    """
    values = _Values(_LABEL_LINE.sub(_double_quotes, text), where)
    file_type = values.read_text()
    if "chronological" in file_type:
        raise InputError(f"{where}: is a chronological TextGrid: {_SAVE_AS_TEXT}")
    object_class = values.read_text()
    if not file_type.startswith("ooTextFile") or object_class != "TextGrid":
        raise InputError(
            f"{where}: expected a TextGrid, found Praat's {object_class[:40]!r}, which may hold one: "
            f"{_SAVE_AS_TEXT}"
            if file_type.startswith("ooTextFile")
            else f"{where}: not a readable TextGrid (it does not begin as one): {_SAVE_AS_TEXT}"
        )
    values.read_number(), values.read_number()
    tiers = []
    for _ in range(values.read_count() if values.read_flag() == "exists" else 0):
        tier_class, name = values.read_text(), values.read_text()
        values.read_number(), values.read_number()
        entries = []
        for _ in range(values.read_count()):
            start = values.read_number()
            end = values.read_number() if tier_class == "IntervalTier" else start
            entries.append((values.read_text(), start, end))
        if tier_class == "IntervalTier":
            tiers.append((name, entries))
    return dict(
        zip(
            number_repeated([name for name, _ in tiers], fold=str),
            (e for _, e in tiers),
            strict=True,
        )
    )


def _double_quotes(line: re.Match[str]) -> str:
    return line[1] + re.sub('(?<!")"(?!")', '""', line[2]) + line[3]


class _Values:
    """Values of a file of Praat, one after the other, each of the kind that comes next."""

    def __init__(self, text: str, where: str):
        self._text, self._where = text, where
        self._matches: Iterator[re.Match[str]] = _VALUE.finditer(text)

    def read_text(self) -> str:
        return self._next("text").replace('""', '"')

    def read_flag(self) -> str:
        return self._next("flag")

    def read_number(self) -> float:
        return float(self._next("number"))

    def read_count(self) -> int:
        """How many items follow: more than there are characters is a damaged number."""
        count = self.read_number()
        if not 0 <= count <= len(self._text):
            raise self._error(f"{count:g} items", len(self._text))
        return int(count)

    def _next(self, kind: str) -> str:
        for match in self._matches:
            if match.lastgroup == kind:
                return match[kind]
            if match.lastgroup is not None:
                raise self._error(f"{match[0][:30]!r}, expected a {kind}", match.start())
        raise self._error(f"its end, expected a {kind}", len(self._text))

    def _error(self, what: str, position: int) -> InputError:
        line = self._text.count("\n", 0, position) + 1
        return InputError(
            f"{self._where}: not a readable TextGrid (found {what} in line {line}): {_SAVE_AS_TEXT}"
        )
