"""A page of many clips: tables as categories, lists that end, and the same numbers as of texts."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from benchmarks import large_run
from speechmix.errors import InputError
from speechmix.reporting.pages import result_sections, run_page, study_clips, study_tables
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.plots import distributions
from speechmix.runs.results.open_run import open_run
from tests.reports.synthetic_runs import synthetic_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic_run(tmp_path_factory.mktemp("large") / "run", clips=24, layers=3, mapped=2)


def of_texts(study: Study) -> Study:
    """The same study of a table without categories."""
    contributions = study.run.contributions
    texts = {
        name: object
        for name in contributions
        if isinstance(contributions[name].dtype, pd.CategoricalDtype)
    }
    return Study(dataclasses.replace(study.run, contributions=contributions.astype(texts)))


def test_texts_of_contributions_are_categories_in_alphabetical_order(folder):
    contributions = open_run(folder).contributions
    for name in ("clip", "model", "init", "stack", "measure", "rows"):
        assert list(contributions[name].cat.categories) == sorted(set(contributions[name]))


def test_numbers_are_those_of_texts(folder):
    study = Study.open(folder)
    texts = of_texts(study)
    for first, second in ((study.layers, texts.layers), (study.headline, texts.headline)):
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    for side, values in study.clip_values.items():
        pd.testing.assert_frame_equal(values, texts.clip_values[side], check_exact=True)
    assert study.ranked_clips == texts.ranked_clips


def test_whole_stacks_alone_are_those_beside_their_layers(folder):
    table = Study.open(folder).table
    shuffled = table["contribution"].sample(frac=1, random_state=0).to_numpy()
    for rows in (table, table[table["layer"] > 0], table.assign(contribution=shuffled)):
        together = study_tables.stack_rows(study_tables.contribution_cells(rows))
        pd.testing.assert_frame_equal(study_tables.stack_cells(rows), together, check_exact=True)


def test_the_run_of_the_benchmark_can_be_opened(tmp_path):
    study = Study.open(large_run.simulated_run(tmp_path / "run", 8, layers=2, twins=2))
    assert {step: getattr(study, step) is None for step in large_run.STEPS} == {
        step: step == "control" for step in large_run.STEPS
    }


@pytest.mark.long
def test_lists_of_the_page_end_and_say_where_the_rest_is(folder, monkeypatch):
    monkeypatch.setattr(study_clips, "MAX_LISTED_CLIPS", 4)
    monkeypatch.setattr(result_sections, "_MAX_SKIPPED", 3)
    monkeypatch.setattr(distributions, "_MAX_DOTS", 5)
    study = Study.open(folder)
    reasons = [
        {"clip": f"broken_{number}", "model": "", "reason": "no such file"} for number in range(9)
    ]
    study = Study(dataclasses.replace(study.run, skipped=reasons))
    html = run_page.write_page(study, title="SYNTHETIC", notes=[]).read_text(encoding="utf-8")
    listed = html[html.index("<h2>All clips</h2>") : html.index("<h2>Skipped clips</h2>")]
    shown = {name for name in study.run.clips["clip"] if name in listed}
    linked = {
        name
        for ranked in study.ranked_clips.values()
        for name in (ranked[0], ranked[len(ranked) // 2], ranked[-1])
    }
    assert shown == set(study.run.clips["clip"][:4]) | linked
    assert "the first 4 of 24 clips" in listed
    assert "The first 3 of 9 skipped items. All are in skipped.csv." in html
    assert ("broken_2" in html, "broken_3" in html) == (True, False)


def test_other_things_than_texts_in_a_column_are_an_error_that_names_the_table(folder, tmp_path):
    contributions = open_run(folder).contributions
    for cell in (3, None):
        damaged = synthetic_run(tmp_path / str(cell), clips=2, layers=1, mapped=0)
        contributions.head(2).assign(model=cell).to_parquet(damaged / "cue_contribution.parquet")
        with pytest.raises(InputError, match="cue_contribution"):
            open_run(damaged)
