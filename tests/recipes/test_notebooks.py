"""The notebooks: they run without a network, give the outputs that are committed, and are small
enough for a code host."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from tests.test_docs import examples, module_at

ROOT = Path(__file__).resolve().parents[2]
execute = module_at(ROOT / "recipes" / "notebooks" / "execute.py")
NAMES = execute.names()


def committed(name: str) -> dict:
    return json.loads((execute.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def printed(cell) -> str:
    """Text of a cell's outputs; of figures their size."""
    parts = []
    for output in cell.get("outputs", ()):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        parts.append("".join(text))
    return "\n".join(parts)


def pictures(cell) -> list[tuple[int, int]]:
    """Width and height of each picture among a cell's outputs."""
    found = []
    for output in cell.get("outputs", ()):
        if "image/png" in output.get("data", {}):
            header = base64.b64decode("".join(output["data"]["image/png"]))[16:24]
            found.append((int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")))
    return found


def test_the_notebooks_are_there():
    assert {
        "context_mixing_tour",
        "score_your_own_clip",
        "compare_whisper_sizes",
        "paper_figure",
    } <= set(NAMES)
    assert sorted(path.stem for path in execute.FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_committed_form_is_small_whole_and_names_no_machine(name):
    path = execute.FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 500_000
    notebook = committed(name)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(
        output.get("name") != "stderr" and output["output_type"] != "error" for output in outputs
    )
    text = "\n".join(printed(cell) + "".join(cell["source"]) for cell in notebook["cells"])
    assert not re.search(r"/(home|work|tmp|Users)/|0x[0-9a-f]{8}", text)
    introduction = "".join(notebook["cells"][0]["source"])
    assert "synthetic" in introduction
    assert re.search(r"nothing\W+about", introduction)


@pytest.mark.parametrize(
    "name",
    [
        "context_mixing_tour",
        "interventions_and_patching",
        "lenses",
        "probing_the_states",
        "why_this_label",
    ],
)  # the topics of the Interspeech 2025 tutorial
def test_a_topic_takes_at_most_40_lines_of_code(name):
    code = [
        line
        for cell in committed(name)["cells"]
        if cell["cell_type"] == "code" and "SPEECHMIX" not in "".join(cell["source"])
        for line in "".join(cell["source"]).splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    assert len(code) <= 40


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_runs_and_gives_what_is_committed(name, tmp_path):
    for package in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(package, reason="the extra `notebooks` is not installed")
    source = execute.read_source(execute.FOLDER / f"{name}.py")
    kept = committed(name)["cells"]
    again = f"run: python recipes/notebooks/execute.py {name}"
    assert [cell["source"] for cell in source.cells] == [
        "".join(cell["source"]) for cell in kept
    ], again
    ran = execute.execute(source, tmp_path).cells
    for cell, before in zip(ran, kept, strict=True):
        assert examples.same_text(printed(before), printed(cell)), (
            f"{cell['id']} gives\n{printed(cell)}\nand kept is\n{printed(before)}\n{again}"
        )
        sizes = [pictures(before), pictures(cell)]
        assert len(sizes[0]) == len(sizes[1]), f"{cell['id']}: {again}"
        for (width, height), (wide, high) in zip(*sizes, strict=True):
            assert abs(width - wide) <= 5, f"{cell['id']}: {again}"
            assert abs(height - high) <= 5, f"{cell['id']}: {again}"
    assert not list(tmp_path.iterdir())  # notebooks leave nothing behind where they run


def test_the_text_about_turbo_agrees_with_the_table_above_it():
    text = "\n".join(
        printed(cell) + "".join(cell["source"])
        for cell in committed("compare_whisper_sizes")["cells"]
    )
    rows = {
        name: text.split(f"\n{name:>8} ")[1].split("\n")[0].split()
        for name in ("turbo", "large-v3")
    }
    memory, operations = (float(rows["turbo"][i]) / float(rows["large-v3"][i]) for i in (4, 5))
    assert f"{100 * memory:.0f} % of the memory" in text
    assert f"{100 * (1 - operations):.0f} % fewer operations" in text
