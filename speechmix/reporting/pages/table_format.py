"""Format the tables of a study: rounded, an interval in one column, headings in words.

Export a table as Markdown or LaTeX, for a paper or an issue.

In: a table as it is shown. Out: text; whatever is special in Markdown (HTML, links, code, emphasis)
or LaTeX is escaped.
"""

from __future__ import annotations

import re

import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.random_twin_comparison import STRENGTH
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...mixing.maps.numerics import STRENGTH_FLOOR

# What the page calls the columns of the tables that it writes.
_COLUMN_NAMES = {
    "random": "untrained",
    "init": "weights",
    "length_matched": "length-matched",
    "share_of_length": "share of length",
    "twin_sd": "sd of twins",
    "group_sd": "sd over groups",
    "mixing_strength": "mixing strength (%)",
    "claim": "conclusion",
}
PART_PHRASES = {  # column of the clip table: what its values are
    "template": "sentence pattern (column “template” of the clips)",
    "number": "number (singular or plural)",
    "cue": "cue word",
}
_ROUNDED_COLUMNS = (
    "trained",
    "untrained",
    "difference",
    "share of length",
    "length-matched",
    "sd of twins",
    "sd over groups",
    "smallest",
    "largest",
)


def format_contribution_table(table: pd.DataFrame) -> pd.DataFrame:
    """Format a table for readers: rounded, an interval in one column, no empty column."""
    table = drop_single_side(table).copy()
    if "claim" in table:
        leading = leading_measure(table["measure"].unique()) if "measure" in table else ""
        table["claim"] = [_format_claim(row, leading) for row in table.to_dict("records")]
    for name, labels in (("measure", measure_label), ("stack", stack_name)):
        if name in table:
            table[name] = table[name].astype(object).map(labels)
    if "init" in table:
        table["init"] = table["init"].astype(object).replace("random", "untrained")
    if STRENGTH in table:
        table[STRENGTH] = [format_strength(value) for value in table[STRENGTH]]
    table = table.drop(columns=["twin_low", "twin_high", "rows"], errors="ignore")
    if "low" in table:
        intervals = list(map(format_interval, table["low"], table["high"]))
        table.insert(list(table).index("low"), "95 % interval", intervals)
        table = table.drop(columns=["low", "high"])
    table = table.rename(columns=_COLUMN_NAMES)
    table = table.drop(columns=[name for name in table if _is_uninformative(table[name])])
    return table.round({name: 1 for name in table if name in _ROUNDED_COLUMNS})


def _format_claim(row: TableRow, leading: str) -> str:
    """Say what is concluded from a row, or why nothing is; "" for what is only described."""
    if row["difference"] != row["difference"] or row.get("measure", leading) != leading:
        return ""
    if row.get(STRENGTH, 1.0) < STRENGTH_FLOOR:
        return "mixes too little"
    if row["groups"] < FEWEST_CLAIM_GROUPS:
        return f"needs {FEWEST_CLAIM_GROUPS} groups"
    if row["twins"] < FEWEST_TWINS:
        return f"needs {FEWEST_TWINS} twins"
    return str(row["claim"]) or "inconclusive"


def stack_name(stack: str) -> str:
    """Name a stack in a table or title."""
    return "cross-attention" if stack == "cross" else stack


def stack_phrase(stack: object, *, start: bool = False) -> str:
    """Name a stack within a sentence.

    Examples
    --------
    >>> stack_phrase("cross"), stack_phrase("encoder"), stack_phrase("encoder", start=True)
    ('cross-attention', 'the encoder', 'The encoder')
    """
    name = stack_name("cross") if stack == "cross" else f"the {stack}"
    return name[0].upper() + name[1:] if start else name


def _is_uninformative(column: pd.Series) -> bool:
    """Whether a column is empty, or counts nothing (no twins; a single clip or group)."""
    if column.name in ("twins", "groups", "clips"):
        return bool((column <= (0 if column.name == "twins" else 1)).all())
    return bool((column.isna() | (column == "")).all())


def format_strength(value: float) -> str:
    """Format a mixing strength in percent, with as many digits as tell it from zero.

    Examples
    --------
    >>> format_strength(0.312), format_strength(0.0123), format_strength(2.4e-6), format_strength(float("nan"))
    ('31', '1.2', '0.0002', '')
    """
    return (
        ""
        if value != value
        else f"{100 * value:.{0 if value >= 0.1 else 1 if value >= 0.001 else 4}f}"
    )


def format_interval(low: float, high: float, *, share: bool = False) -> str:
    """Format an interval in words; a share is cut to 0 to 100 %.

    Examples
    --------
    >>> format_interval(-4.26, 19.5), format_interval(-4.26, 19.5, share=True), format_interval(float("nan"), float("nan"))
    ('-4.3 to 19.5', '0.0 to 19.5', '')
    """
    if low != low:
        return ""
    low, high = (max(low, 0.0), min(high, 100.0)) if share else (low, high)
    return f"{round(low, 1) + 0.0} to {round(high, 1) + 0.0}"


def format_p(p: float) -> str:
    """Format a p value with three digits.

    Examples
    --------
    >>> format_p(0.0002), format_p(0.0312), format_p(float("nan"))
    ('< 0.001', '0.031', '')
    """
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def drop_single_side(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the column "side" where it is "all" in every row."""
    return table.drop(columns="side") if "side" in table and set(table.side) == {"all"} else table


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
