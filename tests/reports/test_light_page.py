"""The page of a run whose sound is not at hand loads no PyTorch, the import of which takes over 2 s."""

from __future__ import annotations

import subprocess
import sys

from tests.reports.synthetic_runs import synthetic_run

_WRITE_PAGE = """
import sys
from matplotlib.figure import Figure
saved = Figure.savefig  # figures are saved empty, as drawing them is most of a page's time
Figure.savefig = lambda figure, *files, **how: saved(Figure(figsize=(1, 1)), *files, **how)
from speechmix.interfaces.cli import main
assert main(["report", sys.argv[1]]) == 0
print("loaded:", *sorted({"torch", "transformers", "scipy.stats"} & set(sys.modules)))
"""


def test_a_page_loads_no_model_code(tmp_path):
    folder = synthetic_run(
        tmp_path / "run", clips=16, layers=2, measures=("value_zeroing",), sound=False, mapped=1
    )
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_PAGE, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "index.html").is_file()
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
