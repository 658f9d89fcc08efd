"""A MkDocs hook: the picture of the package's levels, drawn from its imports when the site is built.

    python docs/hooks/levels.py levels.svg       # the picture alone

In: the package's source. Out: `images/levels.svg`. A package stands one level above the highest
package that it imports; imports for types alone and inside functions count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "speechmix"

# Results that draw themselves import the figures when they do: `plot()` of maps and explanations,
# and runs, whose folder has figures of its results.
FACES = {
    "mixing/maps/map_set.py",
    "mixing/maps/mixing_map.py",
    "mixing/maps/decision_map.py",
    "runs/job_execution.py",
}

_STYLE = """
  text { font-family: system-ui, sans-serif; fill: #1d2733 }
  .box { fill: #eef2fa; stroke: #5c73a8 } .name { font-size: 15px; font-weight: 600 }
  .text { font-size: 12px } .imports { font-size: 11px; fill: #5a6675 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e9f0 } .box { fill: #232c3d; stroke: #8aa0d0 } .imports { fill: #a3afbf }
  }
"""
_WIDTH, _HEIGHT, _GAP, _CHARACTERS = 760, 62, 10, 108


def imports(package: Path = PACKAGE) -> Iterator[tuple[str, int, str]]:
    """Yield every import of another package of speechmix: file, line, name of the package."""
    names = packages(package)
    for path in sorted(package.rglob("*.py")):
        location = path.relative_to(package).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level or len(location) == 1:
                continue
            base = location[: len(location) - node.level]
            module = (*base, *(node.module or "").split(".")) if node.module else base
            found = {module[0]} if module else {alias.name for alias in node.names} & names.keys()
            for name in found - {location[0]}:
                yield "/".join(location), node.lineno, name


def packages(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the packages and loose modules of speechmix, with the file that has their docstring."""
    modules = {path.stem: path for path in package.glob("*.py") if not path.stem.startswith("__")}
    return modules | {path.parent.name: path for path in package.glob("*/__init__.py")}


def levels(package: Path = PACKAGE) -> list[list[str]]:
    """Return the names of packages, level by level, from the lowest up."""
    below: dict[str, set[str]] = {name: set() for name in packages(package)}
    for path, _, name in imports(package):
        if path not in FACES:
            below[path.split("/")[0]].add(name)
    rows: list[list[str]] = []
    while below:
        row = sorted(name for name, names in below.items() if not names & below.keys())
        if not row:
            raise ValueError(f"packages that import each other: {', '.join(sorted(below))}")
        rows.append(row)
        for name in row:
            del below[name]
    return rows


def picture(package: Path = PACKAGE) -> str:
    """Return the levels as SVG, the highest on top, each package with what it is and imports."""
    rows, files = levels(package)[::-1], packages(package)
    below: dict[str, set[str]] = {name: set() for name in files}
    for path, _, name in imports(package):
        below[path.split("/")[0]].add(name)
    height = len(rows) * (_HEIGHT + _GAP) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="The packages of speechmix by level"><style>{_STYLE}</style>'
    ]
    for number, row in enumerate(rows):
        width = (_WIDTH - _GAP * (len(row) + 1)) / len(row)
        for column, name in enumerate(row):
            x, y = _GAP + column * (width + _GAP), _GAP + number * (_HEIGHT + _GAP)
            summary = _summary(files[name], _CHARACTERS // len(row))
            further = f"imports {', '.join(sorted(below[name]))}" if below[name] else "imports none"
            parts.append(
                f'<rect class="box" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" rx="6"/>'
                f'<text class="name" x="{x + 12:.0f}" y="{y + 21}">{name}</text>'
                f'<text class="text" x="{x + 12:.0f}" y="{y + 38}">{escape(summary)}</text>'
                f'<text class="imports" x="{x + 12:.0f}" y="{y + 54}">{escape(further)}</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


def _summary(path: Path, characters: int) -> str:
    """Return the first sentence of a package's docstring, cut at a word if it is too long."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    sentence = text.split(". ")[0].rstrip(".")
    if len(sentence) <= characters:
        return sentence
    return sentence[:characters].rsplit(" ", 1)[0].rstrip(",:;") + " …"


def on_files(files, config):
    """Add the picture to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "images/levels.svg", content=picture()))
    return files


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
