"""Try every measure on planted truth, and write what comes out into docs/planted_truth.md.

    python docs/hooks/planted.py        # all tables: about a quarter of an hour on one core

In: the page, with places for tables between `<!-- table: NAME -->` and `<!-- end -->`. Out: the
page with the tables made anew; what is written between them stays. `tests/planted/test_page.py`
computes some of the numbers again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from speechmix.extensions.planted.case_table import cases
from speechmix.extensions.planted.recovery import measure_recovery

PAGE = Path(__file__).resolve().parents[1] / "planted_truth.md"
SEEDS = range(3)
CONSTANTS = (10.0, 30.0, 100.0)

_TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES = {case.name: None for case in cases()}


def main() -> None:
    """Compute everything and rewrite the page."""
    table, of_alti = measure_recovery(seeds=SEEDS), alti_by_constant()
    PAGE.write_text(
        rewritten(PAGE.read_text(encoding="utf-8"), tables_of(table, of_alti)), encoding="utf-8"
    )


def alti_by_constant() -> pd.DataFrame:
    """ALTI on what is plainly copied, with a weaker and a stronger constant, along the axes and
    turned."""
    options = {
        "cases": ["copy", "relay"],
        "families": ["bert", "gpt2", "wav2vec2"],
        "seeds": range(6),
        "aggregations": (),
    }
    parts = [
        measure_recovery(
            measures=["alti", "alti_l2"], constant=constant, rotated=rotated, **options
        ).assign(constant=constant, basis="turned" if rotated else "along the axes")
        for constant in CONSTANTS
        for rotated in (False, True)
    ]
    return pd.concat(parts)


def rewritten(text: str, tables: dict[str, str]) -> str:
    """The page with its tables exchanged."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n\n{match[3]}", text)


def printed(text: str, name: str) -> pd.DataFrame:
    """A table of the page as text: first column as index."""
    body = next(match[0] for match in _TABLE.finditer(text) if match[2] == name)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in body.splitlines()
        if line.startswith("|")
    ]
    return pd.DataFrame(
        [row[1:] for row in rows[2:]], index=[row[0] for row in rows[2:]], columns=rows[0][1:]
    )


def tables_of(table: pd.DataFrame, of_alti: pd.DataFrame) -> dict[str, str]:
    """All tables by name, as Markdown."""
    layer, paths = table[table.level == "layer"], table[table.level == "input to output"]
    decision = table[table.level == "decision"]
    places = {
        f"layer {family} {stack}": precisions(part)
        for (family, stack), part in layer.groupby(["family", "stack"])
    }
    return {
        "cases": markdown(cases_table()),
        "layer": precisions(layer),
        **places,
        "reported": markdown(reported(layer)),
        "false alarms": markdown(false_alarms(layer)),
        "paths": precisions(paths[paths.aggregation != "composed"], "aggregation"),
        "decision": precisions(decision[decision.family != "whisper"], "aggregation"),
        "decision whisper": precisions(decision[decision.family == "whisper"], "aggregation"),
        "alti": markdown(alti_table(of_alti)),
    }


def cases_table() -> pd.DataFrame:
    """What is planted."""
    rows = [
        {"case": case.name, "kind": case.number, "what is planted": case.question}
        for case in cases()
    ]
    return pd.DataFrame(rows).set_index("case")


def precisions(table: pd.DataFrame, *by: str) -> str:
    """Mean average precision by measure (and more) and case, as Markdown."""
    judged = table[table.n_edges > 0]
    pivot = judged.pivot_table(
        index=["measure", *by],
        columns="case",
        values="average_precision",
        aggfunc="mean",
        sort=False,
    )
    pivot = pivot[[name for name in _NAMES if name in pivot]]
    return markdown(
        _named(pivot.sort_index(key=_order(table), level=0, sort_remaining=False, kind="stable"))
    )


def reported(layer: pd.DataFrame) -> pd.DataFrame:
    """Precision / recall of the pairs with more than an even share of their row; a dash where none
    is reported."""
    judged = layer[layer.n_edges > 0]
    means = judged.pivot_table(
        index="measure",
        columns="case",
        values=["precision", "recall"],
        aggfunc="mean",
        sort=False,
        dropna=False,
    )
    text = means["precision"].map(_number) + " / " + means["recall"].map(_number)
    return _named(text[[name for name in _NAMES if name in text]])


def false_alarms(layer: pd.DataFrame) -> pd.DataFrame:
    """Of the pairs of models without an edge, the percentage that is reported: in self-attention
    and in cross-attention."""
    without = layer[layer.n_edges == 0]
    where = without["stack"] == "cross"
    share = 100 * without.n_reported / without.n_pairs
    columns = without["case"] + where.map({True: ", cross", False: ", self"})
    pivot = (
        share.to_frame("share")
        .assign(measure=without["measure"], column=columns)
        .pivot_table(index="measure", columns="column", values="share", aggfunc="mean", sort=False)
    )
    return _named(
        pivot[sorted(pivot)].map(lambda percent: "" if pd.isna(percent) else f"{percent:.0f} %")
    )


def alti_table(of_alti: pd.DataFrame) -> pd.DataFrame:
    """Mean average precision by measure, basis and constant."""
    layer = of_alti[of_alti.level == "layer"]
    pivot = layer.pivot_table(
        index=["measure", "basis"], columns="constant", values="average_precision", sort=False
    )
    return _named(pivot.rename(columns=lambda constant: f"C = {constant:g}"))


def _order(table: pd.DataFrame):
    places = {name: place for place, name in enumerate(dict.fromkeys(table["measure"]))}
    return lambda index: index.map(lambda name: places.get(name, -1))


def _named(pivot: pd.DataFrame) -> pd.DataFrame:
    """One column of row names, of all levels of the index."""
    names = [key if isinstance(key, tuple) else (key,) for key in pivot.index]
    return pivot.set_axis([", ".join([f"`{first}`", *rest]) for first, *rest in names], axis=0)


def _number(value: object) -> str:
    return (
        value
        if isinstance(value, str)
        else "–"
        if pd.isna(value)
        else f"{value:.2f}"
        if isinstance(value, float)
        else f"{value}"
    )


def markdown(table: pd.DataFrame) -> str:
    """A table as Markdown, its index first."""
    head = ["", *map(str, table.columns)]
    rows = [
        [str(name), *map(_number, row)]
        for name, row in zip(table.index, table.to_numpy(object), strict=True)
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
