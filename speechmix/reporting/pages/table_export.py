"""Export a table as Markdown or LaTeX, for a paper or an issue.

In: a table as it is shown. Out: text; whatever is special in Markdown (HTML, links, code, emphasis)
or LaTeX is escaped.
"""

from __future__ import annotations

import re

import pandas as pd


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table as a Markdown pipe table; numbers are aligned right.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"model": ["a|b"], "trained": [22.68]})))
    | model | trained |
    | :--- | ---: |
    | a\\|b | 22.7 |
    """
    is_number = [dtype.kind in "iuf" for dtype in table.dtypes]
    lines = [
        [escape_markdown(str(name)) for name in table],
        ["---:" if is_number else ":---" for is_number in is_number],
    ]
    lines += [
        [escape_markdown(_format_cell(value)) for value in row]
        for row in table.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape_markdown(text: str) -> str:
    """Escape text so that Markdown shows it as it is, on one line.

    Examples
    --------
    >>> print(escape_markdown("<img src=x> [a](http://b) value_zeroing"))
    &lt;img src=x&gt; \\[a\\](http&#58;//b) value_zeroing
    """
    line = " ".join(text.split())
    line = re.sub(r"[\\`*\[\]|~]|\$(?=\S)|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)
    line = re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"(?i)\b(https?|ftp|mailto|xmpp|javascript|data):", r"\1&#58;", line)
    return re.sub(r"(?i)\b(www)\.", r"\1&#46;", line).replace("@", "&#64;")


def latex_table(table: pd.DataFrame, *, caption: str, label: str = "tab:headline") -> str:
    """Return a table as a LaTeX booktabs table; special characters are escaped."""
    alignment = "".join("r" if dtype.kind in "iuf" else "l" for dtype in table.dtypes)
    formatted = table.map(_format_cell)
    return formatted.to_latex(
        index=False,
        escape=True,
        column_format=alignment,
        caption=_escape_latex(caption),
        label=label,
        position="t",
    )


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.1f}"
    return str(value)


def _escape_latex(text: str) -> str:
    words = {"\\": r"\textbackslash ", "~": r"\textasciitilde ", "^": r"\textasciicircum "}
    return "".join(
        words.get(letter) or ("\\" + letter if letter in "&%$#_{}" else letter) for letter in text
    )
