"""The package as a whole: examples in docstrings run, importing it is quick and changes nothing."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import speechmix

MODULES = sorted(m.name for m in pkgutil.walk_packages(speechmix.__path__, "speechmix."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in ("speechmix.alignment.espeak", "speechmix.alignment.synthesis"):
        pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    module = importlib.import_module(name)
    globs = {**vars(module), "speechmix": speechmix}
    results = doctest.testmod(module, extraglobs=globs, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_importing_is_quick_and_has_no_side_effects():
    code = (
        "import sys, logging, os; before = dict(os.environ); import speechmix; "
        "heavy = {'torch', 'transformers', 'matplotlib', 'librosa', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy; assert before == dict(os.environ); assert not logging.getLogger().handlers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist():
    for name in speechmix.__all__:
        assert getattr(speechmix, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        speechmix.nothing_here  # noqa: B018


def test_no_module_loads_pickles_or_remote_code():
    for path in Path(speechmix.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for word in ("import pickle", "torch.load(", "trust_remote_code"):
            assert word not in source, f"{path}: {word}"
