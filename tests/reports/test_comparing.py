"""Runs side by side, on SYNTHETIC runs of known difference."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.statistics.claim_rule import DEFAULT_TWINS
from speechmix.interfaces.cli import main
from tests.reports.synthetic_runs import GAIN, WHOLE_STACK_GAIN, synthetic_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Models of 4 and 8 layers on the same 20 clips, 39 twins each; the second run's trained model
    has twice the gain."""
    folder, of_both = (
        tmp_path_factory.mktemp("compare"),
        {"clips": 32, "mapped": 0, "twins": DEFAULT_TWINS},
    )
    shallow = synthetic_run(folder / "shallow", layers=4, models=("small",), **of_both)
    deep = synthetic_run(
        folder / "deep", layers=8, models=("large",), stacks=("encoder", "cross"), **of_both
    )
    table = pd.read_parquet(deep / "cue_contribution.parquet")
    gained = (table["init"] == "trained") & (table.layer == 4)
    table.loc[gained, "contribution"] += GAIN
    table.to_parquet(deep / "cue_contribution.parquet")
    return shallow, deep


@pytest.fixture(scope="module")
def found(runs):
    return speechmix.compare(*runs)


def test_models_stand_side_by_side_by_stack_and_measure(found):
    rows = found.headline.set_index(["model", "stack", "measure"])
    assert set(rows.index.get_level_values("model")) == {"small", "large"}
    assert rows.difference["small", "encoder", "value_zeroing"] == pytest.approx(
        100 * WHOLE_STACK_GAIN, abs=2
    )
    assert rows.difference["large", "encoder", "value_zeroing"] == pytest.approx(
        200 * WHOLE_STACK_GAIN, abs=2
    )
    assert ("small", "cross", "value_zeroing") not in rows.index


def test_layers_of_models_of_other_depth_meet_at_their_relative_depth(found):
    rows = found.by_depth.query("stack == 'encoder' and measure == 'value_zeroing'").set_index(
        ["model", "quarter"]
    )
    assert rows.index.get_level_values("quarter").nunique() == 4
    assert rows.loc["small"].difference.idxmax() == "3rd quarter"  # layer 2 of 0 to 3
    assert rows.loc["large"].difference.idxmax() == "3rd quarter"  # layer 4 of 0 to 7
    figure = found.show()
    assert {ax.get_xlabel() for ax in figure.axes} >= {"relative depth (0 first layer, 1 last)"}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.long
def test_published_figures_have_a_part_of_their_own(found, tmp_path):
    text = found.write(tmp_path, published=True).read_text(encoding="utf-8")
    assert "Comparison with the published figures" in text
    assert "They were read off figures" in text
    assert {"by_depth.pdf", "published_contribution.pdf", "published_probing.pdf"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert len(found.table_as_published) == len(
        found.table
    )  # of encoders and without a foil they are the same


def test_models_are_paired_on_the_clips_that_both_have(found):
    row = found.pairs.query("measure == 'value_zeroing'").iloc[0]
    assert (row.model, row.other, row["stack"]) == ("small", "large", "encoder")
    assert row.difference == pytest.approx(-100 * WHOLE_STACK_GAIN, abs=2)
    assert row.low < row.difference < row.high < 0
    assert (row.groups, row.clips, row.twins) == (16, 32, DEFAULT_TWINS)
    assert row.claim == "less"


def test_claims_are_made_of_whole_stacks_by_value_zeroing_and_quarters_are_described(found):
    claims = found.headline.groupby("measure").claim.agg(set).to_dict()
    assert claims == {"value_zeroing": {"more"}, "attention": {""}}
    assert "claim" not in found.by_depth
    assert set(found.by_depth[found.by_depth.low > 0].quarter) == {"3rd quarter"}


def test_with_fewer_twins_nothing_is_claimed(runs):
    few = []
    for run in map(speechmix.open_run, runs):
        is_few = run.contributions["seed"].fillna(0) < 4
        few.append(dataclasses.replace(run, contributions=run.contributions[is_few]))
    found = speechmix.compare(*few)
    for table in (found.headline, found.pairs):
        assert set(table.claim) == {""}
        assert (table.twins == 4).all()
    assert found.headline.low.gt(0).any()


def test_agreement_between_measures_in_each_layer(found):
    assert set(found.agreement.measure) == {"value_zeroing"}
    assert set(found.agreement.other) == {"attention"}
    counts = found.agreement.groupby(["model", "init", "stack"]).layer.nunique()
    assert counts["large", "trained", "cross"] == 8
    assert found.curves.rho.max() <= 1


@pytest.mark.usefixtures("undrawn")
def test_page_and_tables(found, tmp_path):
    page = found.write(tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    for heading in (
        "Runs",
        "By stack and measure",
        "By depth",
        "Model against model",
        "Do the measures agree?",
    ):
        assert f"<h2>{heading}</h2>" in text
    for name in ("headline", "by_depth", "pairs", "agreement", "curves"):
        assert len(pd.read_csv(tmp_path / "out" / f"{name}.csv"))


def test_a_model_in_two_runs_is_told_apart_and_one_run_is_fine(runs, tmp_path):
    again = synthetic_run(tmp_path / "again", clips=20, layers=4, mapped=0, models=("small",))
    assert set(speechmix.compare(runs[0], again).table.model) == {
        "small (shallow)",
        "small (again)",
    }
    assert speechmix.compare(runs[0], measures=["attention"]).pairs.empty


def test_what_cannot_be_compared_is_said(runs, tmp_path):
    with pytest.raises(InputError, match="at least one"):
        speechmix.compare()
    with pytest.raises(InputError, match="holds no run"):
        speechmix.compare(tmp_path)
    with pytest.raises(InputError, match="no cue contribution"):
        speechmix.compare(synthetic_run(tmp_path / "none", cue=False, mapped=0))
    with pytest.raises(InputError, match="no cue contribution"):
        speechmix.compare(synthetic_run(tmp_path / "nan", value=np.nan, mapped=0))
    with pytest.raises(InputError, match="different texts"):
        speechmix.compare(runs[0], synthetic_run(tmp_path / "other", text="autre phrase", mapped=0))


@pytest.mark.long
def test_from_the_shell(runs, tmp_path, capsys):
    assert (
        main(
            [
                "compare",
                *map(str, runs),
                "--out",
                str(tmp_path / "out"),
                "--measure",
                "value_zeroing",
            ]
        )
        == 0
    )
    assert "differences between models, trained - random:" in capsys.readouterr().out
    assert (tmp_path / "out" / "comparison.html").is_file()
    assert main(["compare", str(tmp_path)]) == 1
