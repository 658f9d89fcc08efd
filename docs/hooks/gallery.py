"""A MkDocs hook: the figures of the gallery, made by its own code when the site is built.

In: gallery.md, whose Python blocks run one after the other; a block that assigns `figure` gets it
as a picture (`gallery/NAME.png`) or, for coloured tokens, as HTML. Out: the page with a grid of thumbnails at its marker,
and each figure above its code.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import warnings
from html import escape
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "gallery.md"
_BLOCK = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<text>.*?)^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_ANY_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_pictures: dict[str, str] = {}  # HTML of a figure by its title


def entry_name(title: str) -> str:
    """Return the anchor of a heading: lower case, words joined by hyphens."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def run_blocks(text: str) -> dict[str, object]:
    """Run the page's blocks in an empty folder; return the figure of each heading."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    titles = {match["code"]: match["title"] for match in _BLOCK.finditer(text)}
    figures = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            for code in _ANY_BLOCK.findall(text):
                exec(compile(code, str(PAGE), "exec"), namespace)
                if "figure" in namespace:
                    figures[titles[code]] = namespace.pop("figure")
        finally:
            os.chdir(before)
    return figures


def png_bytes(figure) -> bytes:
    """Return a figure, or the figure of an Axes, as PNG."""
    from matplotlib import pyplot as plt

    figure = figure if hasattr(figure, "savefig") else figure.figure
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight", facecolor="white")
    plt.close("all")
    return buffer.getvalue()


def on_files(files, config):
    """Run the page and add its pictures to the site."""
    from mkdocs.structure.files import File

    for title, figure in run_blocks(PAGE.read_text(encoding="utf-8")).items():
        name = entry_name(title)
        if not hasattr(figure, "savefig") and not hasattr(figure, "figure"):
            # tokens, whose blank lines and indents Markdown would read
            html = "".join(line.strip() for line in figure._repr_html_().splitlines())
            _pictures[title] = f'<div class="gallery-html">{html}</div>'
            continue
        files.append(File.generated(config, f"gallery/{name}.png", content=png_bytes(figure)))
        _pictures[title] = f'<img src="{name}.png" alt="{escape(title)}" loading="lazy">'
    return files


def on_page_markdown(markdown, page, config, files):
    """Put the figures into the page."""
    if page.file.src_uri != PAGE.name:
        return markdown
    cards = "".join(
        f'<a href="#{entry_name(title)}">{picture}<span>{escape(title)}</span></a>'
        for title, picture in _pictures.items()
        if picture.startswith("<img")
    )
    markdown = markdown.replace("<!-- thumbnails -->", f'<div class="gallery">{cards}</div>')
    return _BLOCK.sub(_with_figure, markdown)


def _with_figure(match: re.Match[str]) -> str:
    """Return an entry with its figure above the code."""
    picture = _pictures.get(match["title"])
    if picture is None:
        return match[0]
    shown = f'<div class="gallery-figure">{picture}</div>'
    return match[0].replace("```python", f"{shown}\n\n```python", 1)
