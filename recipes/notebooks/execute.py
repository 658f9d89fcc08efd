"""Run the notebooks and keep their outputs: NAME.py is the source (jupytext, py:percent),
NAME.ipynb the same with outputs.

    python recipes/notebooks/execute.py                       # all of them
    python recipes/notebooks/execute.py context_mixing_tour   # one

Needs the extra `notebooks`. No network and no GPU: what the notebooks use comes with the package.
Written the same way each time (no time stamps, cells numbered), so that a notebook that did not
change gives a file that did not change.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = Path(__file__).parent
SECONDS = 1800  # of one cell: large models on a busy machine

# What a kernel sees: no hub, no GPU, one thread, so that numbers are the same everywhere; and no
# hint to install widgets.
SURROUNDINGS = {
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore:IProgress not found",
}


def names() -> list[str]:
    """Names of the notebooks: the Python files with jupytext's header."""
    return [
        path.stem
        for path in sorted(FOLDER.glob("*.py"))
        if path.read_text(encoding="utf-8").startswith("# ---\n")
    ]


def read_source(path: Path) -> NotebookNode:
    """Return the notebook that a py:percent file is, without outputs."""
    import jupytext

    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    notebook.metadata = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    return notebook


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run a notebook's cells in a new kernel whose working folder is `folder`; the outputs are put
    into it.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails; it shows the cell.
    """
    from nbclient import NotebookClient

    metadata = dict(notebook.metadata)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env={**os.environ, **SURROUNDINGS})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = join_texts(cell.outputs)
    notebook.metadata = (
        metadata  # the kernel reports its Python's version, which is no property of the notebook
    )
    return notebook


def join_texts(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join printed texts that follow each other: into how many pieces they come differs from run to
    run."""
    joined: list[NotebookNode] = []
    for output in outputs:
        is_text = output.output_type == "stream"
        if is_text and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def shrink(notebook: NotebookNode) -> NotebookNode:
    """Reduce the pictures among the outputs to 256 colours: a third of the size, and no difference
    one sees."""
    from PIL import Image

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                picture = Image.open(
                    io.BytesIO(base64.b64decode(output.data["image/png"]))
                ).convert("RGB")
                smaller = io.BytesIO()
                picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                    smaller, format="png", optimize=True
                )
                output.data["image/png"] = base64.b64encode(smaller.getvalue()).decode("ascii")
    return notebook


def main(arguments: list[str] | None = None) -> None:
    import tempfile

    import nbformat

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=names(), help="notebooks to run (default: all)")
    for name in parser.parse_args(arguments).names:
        with tempfile.TemporaryDirectory() as folder:
            notebook = shrink(execute(read_source(FOLDER / f"{name}.py"), Path(folder)))
        path = FOLDER / f"{name}.ipynb"
        path.write_text(nbformat.writes(notebook, indent=1) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
