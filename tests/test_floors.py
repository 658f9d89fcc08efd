"""The levels of the package: a package imports only packages below it. Imports for types alone
count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "speechmix"

# From the lowest level up.
LEVELS = (
    ("errors",),
    ("files",),
    ("inputs",),
    ("adapters",),
    ("mixing",),
    ("alignment", "interventions"),
    ("evaluation", "explanations"),
    ("runs",),
    ("reporting",),
    ("studies",),
    ("interfaces",),
    ("__main__",),
)
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}
# Results that plot themselves import the figures when their `plot()` is called.
UPWARD = {
    ("mixing/maps/mixing_map.py", "reporting"),
    ("mixing/maps/decision_map.py", "reporting"),
    ("explanations/explanation.py", "reporting"),
    # Still to be moved.
    ("files/names.py", "inputs"),
    ("runs/kinds/speech_ablation.py", "reporting"),
    ("runs/run_job.py", "reporting"),
    ("runs/speech_ablations.py", "reporting"),
}


def imported_packages() -> Iterator[tuple[str, int, str]]:
    """Every import of another package: file, line, name of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        location = path.relative_to(PACKAGE).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level or len(location) == 1:
                continue
            base = location[: len(location) - node.level]
            module = (*base, *(node.module or "").split(".")) if node.module else base
            packages = (
                {module[0]} if module else {alias.name for alias in node.names} & LEVEL_OF.keys()
            )
            for package in packages - {location[0]}:
                yield path.relative_to(PACKAGE).as_posix(), node.lineno, package


def test_every_package_has_a_level():
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert (packages | modules) - {"__init__"} == LEVEL_OF.keys()


def test_imports_go_down():
    upward = {
        (path, package): line
        for path, line, package in imported_packages()
        if LEVEL_OF[package] >= LEVEL_OF[path.split("/")[0]]
    }
    assert not {
        f"{path}:{upward[path, package]} -> {package}" for path, package in upward.keys() - UPWARD
    }
