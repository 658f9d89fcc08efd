"""A table as Markdown and as LaTeX, to be pasted into a paper or an issue.

In: a table as it is shown. Out: text; whatever is special in Markdown or LaTeX is escaped.
"""

from __future__ import annotations

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """Pipe table; numbers to the right.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"model": ["a|b"], "trained": [22.68]})))
    | model | trained |
    | :--- | ---: |
    | a\\|b | 22.7 |
    """
    right = [dtype.kind in "iuf" for dtype in table.dtypes]
    lines = [[str(name) for name in table], ["---:" if number else ":---" for number in right]]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    shown = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown)


def latex(table: pd.DataFrame, *, caption: str, label: str = "tab:headline") -> str:
    """A booktabs table (`\\\\usepackage{booktabs}`), special characters escaped."""
    right = "".join("r" if dtype.kind in "iuf" else "l" for dtype in table.dtypes)
    shown = table.map(_cell)
    return shown.to_latex(
        index=False, escape=True, column_format=right, caption=_escaped(caption), label=label, position="t"
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.1f}"
    return str(value)


def _escaped(text: str) -> str:
    return "".join("\\" + letter if letter in "&%$#_{}" else letter for letter in text)
