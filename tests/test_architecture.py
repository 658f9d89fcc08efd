"""The structure of the package: levels, import circles, names with one meaning, sizes of files."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from speechmix.extension import extensions

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "speechmix"

# From the lowest level up.
LEVELS = (
    ("errors", "extension"),
    ("files",),
    ("inputs",),
    ("adapters",),
    ("mixing",),
    ("alignment", "evaluation", "interventions"),
    ("runs",),
    ("reporting",),
    ("studies",),
    ("interfaces",),
    ("extensions",),
)
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}
LARGEST_CIRCLE = 3
LONGEST_FILE = 900

parse = functools.cache(ast.parse)  # each source once, for all tests


@functools.cache
def walk(tree: ast.AST) -> list[ast.AST]:
    """All nodes; going through a tree takes as long as parsing it."""
    return list(ast.walk(tree))


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("levels", ROOT / "docs" / "hooks" / "levels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ast = SimpleNamespace(**{**vars(ast), "parse": parse, "walk": walk})
    every_import = tuple(module.imports())  # each question would read all files again
    module.imports = lambda *_: every_import
    return module


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module, by its dotted name."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): parse(
            path.read_text(encoding="utf-8")
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_every_package_has_a_level(hook):
    assert hook.packages().keys() == LEVEL_OF.keys()


def test_imports_go_down(hook):
    upward = [
        f"{path}:{line} -> {package}"
        for path, line, package in hook.imports()
        if LEVEL_OF[package] >= LEVEL_OF[path.split("/")[0]] and path not in hook.FACES
    ]
    assert not upward


def test_the_core_names_no_extension(trees):
    """Only entry points lead from the core to an extension."""
    named = [
        (name, module)
        for name, tree in trees.items()
        if not name.startswith("extensions.")
        for module in imported_modules(tree, name, trees)
        if module.startswith("extensions.")
    ]
    assert not named


def test_extensions_say_which_others_they_need(trees):
    needed = defaultdict(set)
    for name, tree in trees.items():
        if name.startswith("extensions.") and name.count(".") == 2:
            for module in imported_modules(tree, name, trees):
                if module.startswith("extensions.") and module.split(".")[1] != name.split(".")[1]:
                    needed[name.split(".")[1]].add(module.split(".")[1])
    declared = {
        extension.name: {*extension.needs}
        for extension in extensions()
        if extension.package.startswith("speechmix.")
    }
    assert declared.keys() == {
        path.parent.name for path in PACKAGE.glob("extensions/*/__init__.py")
    }
    assert {name: others for name, others in declared.items() if others} == dict(needed)


def test_the_picture_shows_these_levels(hook):
    assert hook.levels() == [sorted(packages) for packages in LEVELS]
    picture = hook.picture()
    assert all(f">{package}</text>" in picture for package in LEVEL_OF)


def test_circles_of_imports_are_small(hook, trees):
    """Files that import each other, directly or not, imports for types alone included.

    What a result's own methods import when they are called (`plot`, `save`) does not count.
    """
    faces = {path.removesuffix(".py").replace("/", ".") for path in hook.FACES}
    imported = {
        name: set(imported_modules(_without_methods(tree) if name in faces else tree, name, trees))
        for name, tree in trees.items()
        if not name.endswith("__init__")
    }
    large = [circle for circle in circles(imported) if len(circle) > LARGEST_CIRCLE]
    assert not large


def _without_methods(tree: ast.Module) -> ast.Module:
    found = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return ast.Module(body=list(found), type_ignores=[])


def test_a_name_has_one_meaning(trees):
    """Classes and public functions have names of their own; a file of a command is found by
    its `add_commands`."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            is_named = isinstance(node, ast.ClassDef | ast.FunctionDef)
            if is_named and not node.name.startswith("_") and node.name != "add_commands":
                found[node.name].append(module)
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


def test_a_file_is_a_chapter():
    """Read in one go: median at most 250 lines, one in twenty over 600, none over `LONGEST_FILE`."""
    lengths = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for path in PACKAGE.rglob("*.py")
    }
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE}
    assert sorted(lengths.values())[len(lengths) // 2] <= 250
    assert sum(length > 600 for length in lengths.values()) <= len(lengths) / 20


def imported_modules(tree: ast.Module, name: str, trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the modules of the package that a module imports; packages' `__init__` are no module."""
    package = name.split(".")[:-1]
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = node.module.split(".") if node.module else []
            base = ".".join([*package[: len(package) - node.level + 1], *module])
            for alias in node.names:
                yield from {f"{base}.{alias.name}", base} & trees.keys()


def circles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    names = sorted(imported)
    index = {name: number for number, name in enumerate(names)}
    pairs = [(index[a], index[b]) for a in names for b in imported[a] if b in index]
    rows, columns = zip(*pairs, strict=True)
    graph = csr_array(([1] * len(pairs), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(graph, directed=True, connection="strong")
    members: dict[int, list[str]] = defaultdict(list)
    for name, label in zip(names, labels, strict=True):
        members[label].append(name)
    return [group for group in members.values() if len(group) > 1]


def test_files_that_the_text_names_are_there():
    names = {
        path.name
        for folder in ("speechmix", "tests", "recipes", "docs", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    elsewhere = {"utils.py"}  # of transformers
    named = [
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "speechmix").rglob("*.py")
        for name in re.findall(r"\b\w+\.py\b", path.read_text(encoding="utf-8"))
    ]
    assert [pair for pair in named if pair[1] not in names | elsewhere] == []


# Names in docstrings that are those of other software, or of files that users have.
FOREIGN_NAMES = {
    *("FlopCounterMode", "torch.nn.functional.pairwise_distance", "pairwise_distance", "GridSpec"),
    *("output_hidden_states", "librosa.feature.melspectrogram", "DatasetDict.save_to_disk", "Doc"),
    *("CutSet.to_shar", "cuts.000000.jsonl.gz", "recording.000000.tar", "CheckpointConfig"),
    "initial_prompt",
    *("a_2.0.flac", "a_2.1.flac", "a_2.ENDING"),
}


# Strings are passed over; `tokenize` takes ten times as long.
WORD_OR_COMMENT = re.compile(
    r"""(?:(?<!\w)[bfruBFRU]{1,2})?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(\#[^\n]*|(?<!\w)[^\W\d]\w*)""",
    re.DOTALL,
)


def test_names_in_docstrings_and_comments_exist():
    """Each name in backticks is a name of the code or a word of its strings; a dotted path of the
    package leads to a file and a name in it."""
    words, texts = {"speechmix"}, []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        docstrings = set()
        nodes = walk(parse(source))
        for node in nodes:
            has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if has_body and ast.get_docstring(node) is not None:
                docstrings.add(id(node.body[0].value))
                texts.append((path, node.body[0].value.value))
        for node in nodes:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in docstrings:
                words.update(re.findall(r"[A-Za-z_]\w*", node.value))
        for token in WORD_OR_COMMENT.findall(source):
            if token.startswith("#"):
                texts.append((path, token))
            else:
                words.add(token)
        words.update(path.relative_to(PACKAGE).with_suffix("").parts)
    backticked = re.compile(r"(?<![`\w])`([A-Za-z_][\w.]*)`(?!`)")
    roots = "|".join(package for package in LEVEL_OF if package not in ("errors", "extension"))
    dotted = re.compile(rf"(?<![\w./:])(?:speechmix\.)?((?:{roots})(?:\.[A-Za-z_]\w*)+)")
    unknown = [
        (path.relative_to(PACKAGE).as_posix(), name)
        for path, text in texts
        for name in backticked.findall(text)
        if name not in FOREIGN_NAMES and not words.issuperset(filter(None, name.split(".")))
    ]
    unknown += [
        (path.relative_to(PACKAGE).as_posix(), name)
        for path, text in texts
        for name in dotted.findall(text)
        if not _is_in_package(name)
    ]
    assert not unknown


def _is_in_package(name: str) -> bool:
    """Does a dotted path lead to a package, a file, or a name in a file?"""
    folder, parts = PACKAGE, name.split(".")
    while parts and (folder / parts[0]).is_dir():
        folder /= parts.pop(0)
    if not parts:
        return True
    path = folder / f"{parts[0]}.py"
    names = parts[1:] if path.exists() else parts
    source = (path if path.exists() else folder / "__init__.py").read_text(encoding="utf-8")
    return all(re.search(rf"\b{part}\b", source) for part in names)
