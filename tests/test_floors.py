"""The house has floors: a room knows only rooms below it, also inside functions. What is for types alone does not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "speechmix"

# From the ground up.
FLOORS = (
    ("errors",),
    ("versions", "timing"),
    ("files",),
    ("inputs",),
    ("maps", "bundled"),
    ("adapters",),
    ("measures",),
    ("scoring",),
    ("interventions",),
    ("evaluation",),
    ("plots", "alignment", "planted"),
    ("corpora", "explanations"),
    ("storage", "stages"),
    ("experiments",),
    ("engines",),
    ("reports",),
    ("app",),
    ("homophony",),
    ("cli",),
    ("__main__",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Maps show themselves: they open the room of figures when they are asked to.
EXCEPTIONS = (("mixing/maps/mixing_map.py", "plots"), ("mixing/maps/decision_map.py", "plots"))


def imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            yield node
        yield from imports(node)


def rooms_known() -> Iterator[tuple[Path, int, str]]:
    """Each import of another room: file, line, room."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).parts
        for node in imports(ast.parse(path.read_text(encoding="utf-8"))):
            base = place[: len(place) - node.level] if node.level else ()
            module = (*base, *(node.module or "").split(".")) if node.module else base
            for room in {module[0]} if module else {alias.name for alias in node.names} & FLOOR_OF.keys():
                if node.level and len(place) > 1 and room != place[0]:
                    yield path.relative_to(PACKAGE), node.lineno, room


def test_every_room_has_a_floor_and_the_hall_is_small():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").is_file()}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert (rooms | files) - {"__init__"} == FLOOR_OF.keys()
    assert len(files) <= 6


def test_rooms_know_only_rooms_below():
    up = [
        f"{path}:{line} -> {room}"
        for path, line, room in rooms_known()
        if FLOOR_OF[room] >= FLOOR_OF[path.parts[0]] and (path.as_posix(), room) not in EXCEPTIONS
    ]
    assert not up
