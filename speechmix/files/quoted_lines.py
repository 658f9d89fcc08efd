"""Rows of a .csv whose quoted cells run over several lines, put together line by line.

In: the lines of a table. Out: its rows, and what is wrong with one whose quotation mark stays open.
As RFC 4180 has it, a quotation mark opens a cell only as its first character; within an unquoted
cell it is a character like any other. An open one costs its own row alone: the lines behind it are
read as rows again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

NumberedLine = tuple[int, str]

_MAX_QUOTED_CHARACTERS = 65_536  # of lines put together because a quotation mark is open
_OPENING = re.compile(r'(?:^|,)"')
_CLOSING = re.compile(r'(?:[^"]|"")*+"')  # a doubled quotation mark stands for one


def join_quoted_lines(
    lines: Iterator[NumberedLine], column_count: int
) -> Iterator[tuple[int, str, str]]:
    """Join the lines of quoted cells.

    The lines come with their numbers and without their ends. Yields the number of the row's first
    line, the row, and a problem, "" for a row that can be split. A line within quotation marks that
    has `column_count` cells is most likely a row by itself, which an open quotation mark would
    swallow.

    Examples
    --------
    >>> list(join_quoted_lines(iter([(2, 'a.wav,"les'), (3, 'livres"'), (4, 'b.wav,un "ami')]), 2))
    [(2, 'a.wav,"les\\nlivres"', ''), (4, 'b.wav,un "ami', '')]
    """
    waiting: deque[NumberedLine] = deque()  # lines that were read behind an open quotation mark

    def next_line() -> NumberedLine | None:
        return waiting.popleft() if waiting else next(lines, None)

    while (numbered := next_line()) is not None:
        row, line = numbered
        following: list[NumberedLine] = []
        length, is_open, swallowed_row = len(line), _ends_in_quotes(line, False), None
        while is_open and length <= _MAX_QUOTED_CHARACTERS and swallowed_row is None:
            if (continuation := next_line()) is None:
                break
            following.append(continuation)
            length += len(continuation[1])
            is_open = _ends_in_quotes(continuation[1], True)
            if continuation[1].count(",") + 1 >= column_count:
                swallowed_row = continuation[0]
        if is_open or swallowed_row is not None:
            waiting.extendleft(reversed(following))
            yield row, line, _describe_open_quotation(swallowed_row)
        else:
            yield row, "\n".join([line, *(text for _, text in following)]), ""


def _ends_in_quotes(line: str, in_quotes: bool) -> bool:
    """Whether a line ends within a quoted cell."""
    position = 0
    while match := (_CLOSING.match if in_quotes else _OPENING.search)(line, position):
        in_quotes, position = not in_quotes, match.end()
    return in_quotes


def _describe_open_quotation(swallowed_row: int | None) -> str:
    end = (
        f"is still open in row {swallowed_row}, which looks like a row of its own"
        if swallowed_row is not None
        else "is not closed"
    )
    return (
        f"not a readable row: a quotation mark that opens a cell {end}. Close it; if it belongs to the "
        "text, put the cell into quotation marks and double those within it, or save the table as "
        ".tsv, which knows no quoting"
    )
