"""The package as a whole: examples in docstrings run, importing it is quick and changes nothing."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import speechmix

MODULES = sorted(m.name for m in pkgutil.walk_packages(speechmix.__path__, "speechmix."))


@pytest.fixture(scope="module")
def calls_and_imports():
    """All calls, with their keywords, and imports in a file, found once for all tests."""
    kinds = ast.Call | ast.keyword | ast.Import | ast.ImportFrom

    @functools.cache
    def find(path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return [node for node in ast.walk(tree) if isinstance(node, kinds)]

    return find


# Nearly a second or more each. Calibration is tested in tests/cli/test_ground.py, the others in
# tests/scoring (estimate, operations), tests/evaluation (alignment_heads, encoding, mixed_models,
# unit_features) and tests/inputs/test_phone_classes.py.
_LONG = {
    "speechmix.extensions.alignment_heads.alignment_heads",
    "speechmix.extensions.encoding.encoding",
    "speechmix.extensions.encoding.unit_features",
    "speechmix.extensions.estimate.estimate",
    "speechmix.extensions.estimate.operation_count",
    "speechmix.extensions.mixed_models.mixed_models",
    "speechmix.inputs.words.phone_labels",
    "speechmix.extensions.grounding.calibrate",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in _LONG else ()) for name in MODULES],
)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in ("speechmix.alignment.espeak", "speechmix.alignment.synthesis_aligner"):
        pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    module = importlib.import_module(name)
    if ">>>" not in Path(module.__file__).read_text(encoding="utf-8"):
        return  # looking for examples takes longer than importing
    globs = {**vars(module), "speechmix": speechmix}
    results = doctest.testmod(module, extraglobs=globs, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_importing_is_quick_and_has_no_side_effects():
    code = (
        "import sys, logging, os; before = dict(os.environ); import speechmix; "
        "heavy = {'torch', 'transformers', 'matplotlib', 'librosa', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy; assert before == dict(os.environ); assert not "
        "logging.getLogger().handlers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_importing_every_module_changes_nothing_around_it(tmp_path):
    """No environment variable, folder, logging handler, warning filter, seed or thread count is set
    by an import."""
    code = """
import importlib, logging, os, random, sys, warnings
import numpy, scipy.stats, torch  # scipy filters warnings of its own, as it is imported

def surroundings():
    return {
        "environment": dict(os.environ),
        "logging": (list(logging.getLogger().handlers), logging.getLogger().level),
        "warnings": list(warnings.filters),
        "seeds": (torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(), random.getstate()),
        "torch": (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()),
        "temporary files": os.listdir(os.environ["TMPDIR"]),
    }

before = surroundings()
for name in sys.argv[1:]:
    importlib.import_module(name)
    after = surroundings()
    for what, value in after.items():
        assert value == before[what], f"{name} changes {what}: {before[what]} -> {value}"
"""
    names = ["speechmix", *MODULES]
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    surroundings.pop("TORCHINDUCTOR_CACHE_DIR", None)
    ran = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, env=surroundings
    )
    assert ran.returncode == 0, ran.stderr[-1500:]


def test_public_names_exist():
    for name in speechmix.__all__:
        assert getattr(speechmix, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        speechmix.nothing_here  # noqa: B018


def test_every_extra_that_an_error_names_exists(calls_and_imports):
    """`MissingExtraError(package, extra, purpose)` and "pip install '.[extra]'" in messages, docs
    and recipes."""
    root = Path(speechmix.__file__).resolve().parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    named = {}
    sources = [
        path for folder in ("speechmix", "recipes") for path in (root / folder).rglob("*.py")
    ]
    for path in sources:
        for node in calls_and_imports(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MissingExtraError":
                named[path.name, node.lineno] = ast.literal_eval(node.args[1])
    for path in [*sources, root / "README.md", *(root / "docs").rglob("*.md")]:
        for found in re.findall(r"(?:\.|speechmix)\[([a-z,]+)\]", path.read_text(encoding="utf-8")):
            named |= {(path.name, extra): extra for extra in found.split(",")}
    assert len(named) >= 7
    assert {place: extra for place, extra in named.items() if extra not in extras} == {}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'speechmix-toolkit[peft]'"),
        (
            {"url": "file:///lab/my%20speechmix", "dir_info": {"editable": True}},
            "pip install --editable '/lab/my speechmix[peft]'",
        ),
        ({"url": "file:///lab/speechmix", "dir_info": {}}, "pip install '/lab/speechmix[peft]'"),
        (
            {"url": "https://git.example/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'speechmix-toolkit[peft] @ git+https://git.example/s.git@abc'",
        ),
        (
            {"url": "file:///lab/s-py3-none-any.whl", "archive_info": {}},
            "pip install 'speechmix-toolkit[peft] @ file:///lab/s-py3-none-any.whl'",
        ),
    ],
)
def test_the_error_names_the_command_for_where_the_package_came_from(origin, command, monkeypatch):
    class Installed:
        def read_text(self, name):
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    error = speechmix.errors.MissingExtraError("peft", "peft", "an adapter")
    assert str(error) == f"an adapter needs peft: {command}"


# They hand tasks to processes that they start themselves, through pipes; no file is read so.
_HANDS_TASKS_OVER = {"local_workers.py", "ray_executor.py"}


def test_no_module_loads_pickles_or_remote_code(calls_and_imports):
    for path in Path(speechmix.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for word in ("import pickle", "pickle.load("):
            if word == "import pickle" and path.name in _HANDS_TASKS_OVER:
                continue
            found = word in source  # not in the assertion, which would print the whole module
            assert not found, f"{path}: {word}"
        for node in calls_and_imports(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert keywords.get("weights_only") == "True", f"{path}: torch.load"
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
                "from_pretrained",
                "from_config",
            ):
                peft = ast.unparse(node.func).startswith(
                    "peft."
                )  # has no such option, and runs no code of a folder
                spread = {
                    ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg is None
                }
                assert peft or "NO_CUSTOM_CODE" in spread, (
                    f"{path}, line {node.lineno}: pass **NO_CUSTOM_CODE"
                )
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert ast.unparse(node.value) == "False", f"{path}, line {node.lineno}"


def test_every_package_that_is_imported_is_declared(calls_and_imports):
    """A dependency of a dependency may go away."""
    root = Path(speechmix.__file__).resolve().parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    declared = {re.match(r"[A-Za-z0-9_\-]+", line)[0].lower().replace("-", "_") for line in wanted}
    pinned = {
        line.split("==")[0].lower().replace("-", "_")
        for line in (root / "constraints.txt").read_text().split()
    }
    names = {
        "sklearn": "scikit_learn",
        "PIL": "matplotlib",  # matplotlib writes no PNG without it
        "_pywhispercpp": "pywhispercpp",
    }
    for path in (root / "speechmix").rglob("*.py"):
        for node in calls_and_imports(path):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            for module in (
                {module.split(".")[0] for module in modules}
                - sys.stdlib_module_names
                - {"speechmix"}
            ):
                name = names.get(module, module).lower()
                assert name in declared, f"{path.relative_to(root)} imports {module}"
                assert name in pinned, f"constraints.txt lacks {name}"
