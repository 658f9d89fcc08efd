"""The page's section on probes: its sentence follows the test, its table the layers, and a damaged
file is said."""

from __future__ import annotations

import pandas as pd
import pytest

from speechmix.extensions.probing.probe import Probes
from speechmix.extensions.probing.section import PROBING
from speechmix.reporting.pages.page_sections import PageContent
from speechmix.reporting.pages.study_results import Study
from tests.evaluation.probing.synthetic_probes import synthetic_probes
from tests.reports.synthetic_runs import synthetic_run


@pytest.fixture
def folder(tmp_path):
    return synthetic_run(tmp_path / "run", clips=12, layers=5, mapped=0)


def write(folder, *tables):
    table, answers = (pd.concat(part, ignore_index=True) for part in zip(*tables, strict=True))
    Probes(table, answers, pd.DataFrame()).write(folder)


def test_sentence_table_figure_and_agreement(folder, undrawn):
    write(folder, synthetic_probes())
    ((title, items),) = PROBING.parts(PageContent(Study.open(folder)))
    assert title == "What can a probe predict from the hidden states?"
    assert "from layer 2 on" in items[1]
    tables = [item for item in items if isinstance(item, pd.DataFrame)]
    row = tables[0].iloc[0]
    assert row["model"] == "synthetic"
    assert [row[name][-1] == "+" for name in ("input", "0", "1", "2", "3", "4")] == [False] * 3 + [
        True
    ] * 3
    assert row["groups"] == 24
    assert set(tables[1]["against"]) == {"level", "gain"}
    assert (folder / "probes_number.png").is_file()
    assert not (folder / "probes_published.png").is_file()


def test_the_deciding_position_is_shown_and_the_published_one_beside_the_published_figure(
    folder, undrawn
):
    at_target = synthetic_probes((0.97,) * 6, (0.97,) * 6, stack="decoder")
    write(
        folder,
        synthetic_probes(),
        at_target,
        synthetic_probes(stack="decoder", position="deciding"),
    )
    ((_, items),) = PROBING.parts(PageContent(Study.open(folder), published=True))
    table = next(item for item in items if isinstance(item, pd.DataFrame))
    assert list(zip(table["stack"], table["position"], strict=True)) == [
        ("encoder", "target"),
        ("decoder", "deciding"),
    ]
    assert (folder / "probes_published.png").is_file()


def test_chance_has_numbers_and_no_sentence(folder, undrawn):
    write(folder, synthetic_probes((0.5,) * 6))
    ((_, items),) = PROBING.parts(PageContent(Study.open(folder)))
    assert items[0].startswith("A hidden state is the model's vector")


def test_no_probes_no_part_and_damaged_ones_are_said(folder, undrawn):
    study = Study.open(folder)
    assert PROBING.parts(PageContent(study)) == []
    write(folder, synthetic_probes())
    (folder / "probe_answers.csv").unlink()
    assert (
        "probe_answers.csv is missing in the folder of probes.csv"
        in PROBING.parts(PageContent(study))[0][1][0]
    )
    write(folder, synthetic_probes(), synthetic_probes())
    assert "a row is there twice" in PROBING.parts(PageContent(study))[0][1][0]
    (folder / "probe_answers.csv").unlink()
    (folder / "probes.csv").write_text("model,init\nm,trained\n", encoding="utf-8")
    assert "expected logistic probes" in PROBING.parts(PageContent(study))[0][1][0]
