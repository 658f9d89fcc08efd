"""What a benchmark replaces by a stand-in is still there to be replaced."""

import re
from pathlib import Path

import pytest

from speechmix.runs.kinds import map_results

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", ["run_at_scale", "ray_efficiency"])
def test_the_functions_that_compute_maps(name):
    replaced = re.findall(r"\bstore\.(\w+) = ", (BENCHMARKS / f"{name}.py").read_text())
    assert replaced
    assert all(hasattr(map_results, function) for function in replaced)
