"""A MkDocs hook: the notebooks of recipes/notebooks as pages of the site, with the outputs that are
committed in them.

In: NAME.ipynb. Out: the page tutorials/NAME.md, its pictures beside it. Nothing is run: a notebook
is text, code and outputs that `recipes/notebooks/execute.py` made. Only what those notebooks hold
is drawn: Markdown, code, text, PNG, HTML (a player).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "notebooks"


def on_files(files, config):
    """Add a page, and the pictures on it, for each notebook."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        page, pictures = page_of(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=page))
        for name, data in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=data))
    return files


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(fenced(source, "python"))
        for number, output in enumerate(cell["outputs"]):
            parts += _shown(output, f"{name}-{cell['id']}-{number}.png", pictures)
    where = (
        f"*This page is the notebook `recipes/notebooks/{name}.ipynb` (text form: `{name}.py`).*"
    )
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n{where}\n{rest}\n", pictures


def fenced(text: str, language: str) -> str:
    """Return text as a block of code, with a fence that is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _shown(output: dict[str, Any], picture: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """What one output of a cell is in Markdown; a picture goes into `pictures`."""
    data = output.get("data", {})
    if "image/png" in data:
        pictures[picture] = base64.b64decode("".join(data["image/png"]))
        yield f"![output of the cell above]({picture})"
    elif "text/html" in data:
        lines = (line.strip() for line in "".join(data["text/html"]).splitlines())
        yield "<div>" + " ".join(line for line in lines if line) + "</div>"
    else:
        text = "".join(output.get("text") or data.get("text/plain", ""))
        if text.strip():
            yield fenced(text, "text")
