"""Power of a comparison with twins: what it promises is what simulated studies find."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.statistics.intervals import one_more_twin_intervals
from speechmix.evaluation.statistics.random_twin_comparison import (
    detectable_difference,
    groups_for_difference,
)
from speechmix.extensions.estimate.estimate import groups_needed
from speechmix.interfaces.cli import main
from tests.reports.synthetic_runs import synthetic_run


@pytest.mark.parametrize(
    ("group_sd", "twin_sd", "groups", "rows"),
    [(15.0, 0.6, 15, 3), (15.0, 0.6, 60, 1), (5.0, 3.0, 30, 3), (5.0, 0.6, 15, 8)],
)
def test_the_difference_is_found_in_the_promised_share_of_studies(group_sd, twin_sd, groups, rows):
    difference = detectable_difference(group_sd, twin_sd, groups=groups, rows=rows)
    rng, studies = np.random.default_rng(0), 2000
    twins = twin_sd * rng.normal(size=(studies, 9))
    clips = difference + group_sd * rng.normal(size=(studies, groups))
    low, _ = one_more_twin_intervals(clips - twins.mean(axis=1, keepdims=True), twins, rows=rows)
    assert (low > 0).mean() == pytest.approx(0.8, abs=0.08)


def test_more_groups_find_less_and_rules_are_kept():
    needed = [groups_for_difference(points, 15.0, 0.6) for points in (20, 10, 5)]
    assert needed == sorted(needed)
    assert needed[0] == 15  # never fewer than a claim needs
    for points, groups in zip((10, 5), needed[1:], strict=True):
        assert detectable_difference(15.0, 0.6, groups=groups) <= points
        assert detectable_difference(15.0, 0.6, groups=groups - 1) > points
    assert groups_for_difference(5, 15.0, 0.6, twins=4) is None
    assert groups_for_difference(1, 15.0, 3.0) is None  # untrained models differ more


def test_a_pilot_run_says_how_many_groups_a_study_needs(tmp_path, capsys):
    pilot = synthetic_run(tmp_path / "pilot", clips=20, mapped=0, twins=2)
    table = groups_needed(pilot, differences=(5, 10))
    assert table["measure"].tolist() == ["value_zeroing"]
    assert (table["10 points"] <= table["5 points"]).all()
    assert main(["estimate", "--pilot", str(pilot)]) == 0
    assert "15 points" in capsys.readouterr().out
    alone = synthetic_run(tmp_path / "alone", clips=4, mapped=0, twins=0)
    with pytest.raises(InputError, match="two untrained twins"):
        groups_needed(alone)
    assert main(["estimate"]) == 1
    assert "--pilot RUN" in capsys.readouterr().err
