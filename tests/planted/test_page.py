"""docs/planted_truth.md has the numbers that `python docs/hooks/planted.py` gives, and leaves out
no measure and no case."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from speechmix.extensions.planted.case_table import cases
from speechmix.extensions.planted.recovery import DECISION_MAPS, measure_recovery
from speechmix.mixing.maps.measure_registry import MEASURE_FACTS, measure_names

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("planted_hook", DOCS / "hooks" / "planted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(hook) -> str:
    return hook.PAGE.read_text(encoding="utf-8")


def test_the_cases_are_those_of_the_package(hook, page):
    assert hook.markdown(hook.cases_table()) in page
    assert list(hook.printed(page, "cases").index) == [f"{case.name}" for case in cases()]


def test_no_measure_is_left_out(hook, page):
    of_edges = [name for name, facts in MEASURE_FACTS.items() if facts.scope == "layer"]
    assert set(hook.printed(page, "layer").index) == {f"`{name}`" for name in of_edges}
    said = {row.split(",")[0] for row in hook.printed(page, "decision").index}
    assert said == {
        f"`{name}`" for name in (*measure_names("layer", "model", "logit"), *DECISION_MAPS)
    }


@pytest.mark.parametrize(
    ("family", "stack"),
    [("gpt2", "decoder"), pytest.param("bert", "encoder", marks=pytest.mark.long)],
)
def test_numbers_of_two_cases_are_those_of_the_page(hook, page, family, stack):
    measures = ["value_zeroing", "attention", "attention_norm", "alti_l2"]
    table = measure_recovery(
        measures=measures,
        cases=["redundant", "attention decoy"],
        families=[family],
        seeds=hook.SEEDS,
        aggregations=(),
    )
    means = table[table.level == "layer"].groupby(["measure", "case"]).average_precision.mean()
    written = hook.printed(page, f"layer {family} {stack}")
    for (measure, case), mean in means.items():
        assert float(written.loc[f"`{measure}`", case]) == pytest.approx(mean, abs=0.011)


def test_tables_are_exchanged_and_nothing_else(hook, page):
    names = [match[2] for match in hook._TABLE.finditer(page)]
    assert len(names) == len(set(names))
    rewritten = hook.rewritten(page, dict.fromkeys(names, "| |"))
    assert hook._TABLE.sub("", rewritten) == hook._TABLE.sub("", page)
