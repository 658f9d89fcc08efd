"""Without torchaudio everything works; one that cannot be imported is named, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import speechmix
from speechmix.adapters.loading.checkpoints import torchaudio_problem
from speechmix.inputs.bundled import models

BROKEN = 'raise OSError("libcudart.so.13: cannot open shared object file")\n'

# As if it were not installed, to import and to importlib's metadata, which transformers asks too.
MISSING = """
import sys, importlib.metadata as metadata

sys.modules["torchaudio"] = None
installed = metadata.version

def version(name):
    if name == "torchaudio":
        raise metadata.PackageNotFoundError(name)
    return installed(name)

metadata.version = version
"""


def run(code, *arguments, path=()):
    here = os.path.dirname(os.path.dirname(speechmix.__file__))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, path), here]),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.fixture
def broken(tmp_path):
    """A folder with a torchaudio that cannot be imported."""
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text(BROKEN)
    return tmp_path


@pytest.mark.long
def test_what_does_without_it_works_and_load_names_one_that_cannot_be_imported(broken):
    code = (
        "import sys, speechmix\n"
        "from speechmix.inputs.words.transcript_accuracy import character_error_rate as rate\n"
        "from speechmix.files.cache_keys import versions\n"
        "print(versions(), rate('livres', 'livre'), sep='\\n')\n"
        "try:\n    speechmix.load(sys.argv[1], device='cpu')\n"
        "except speechmix.errors.ModelError as error:\n    print(error)"
    )
    ran = run(code, models()["tiny-french-whisper"], path=[broken])
    assert ran.returncode == 0, ran.stderr
    versions, rate, error = ran.stdout.split("\n", 2)
    assert "torchaudio" in versions
    assert rate.startswith("0.1666")
    for word in (
        "torchaudio",
        "cannot be imported",
        "libcudart",
        "pip uninstall torchaudio",
        "docs/start.md",
    ):
        assert word in error


@pytest.mark.long
def test_everything_works_where_it_is_not_installed():
    code = (
        MISSING + "\nimport speechmix\n"
        "from speechmix.inputs.bundled import clips, models\n"
        "from speechmix.files.cache_keys import versions\n"
        "print(versions())\n"
        "model, clip = speechmix.load(models()['tiny-french-ctc'], device='cpu'), clips()[1]\n"
        "print(speechmix.mix(model, clip)['value_zeroing', 'encoder'].scores.shape)\n"
        "from speechmix.alignment import place_words\n"
        "print(*place_words(clip, clip.text, model=model, method='ctc').words)"
    )
    completed = run(code)
    assert completed.returncode == 0, completed.stderr
    versions, shape, words = completed.stdout.strip().splitlines()
    assert "torchaudio none" in versions
    assert shape.startswith("(")
    assert "nos" in words
    assert "maisons" in words


def test_one_for_cuda_beside_a_torch_for_the_cpu_is_said(broken, monkeypatch):
    forget_torchaudio(monkeypatch)
    monkeypatch.syspath_prepend(broken)
    monkeypatch.setattr(torch.version, "cuda", None)
    problem = torchaudio_problem()
    assert "it is built for CUDA and needs libcudart" in problem
    assert f"torch {torch.__version__} is built for the CPU alone" in problem
    assert "pip uninstall torchaudio" in problem


def test_one_for_another_cuda_says_so_itself(broken, monkeypatch):
    forget_torchaudio(monkeypatch)
    (broken / "torchaudio" / "__init__.py").write_text(
        "raise RuntimeError('PyTorch has CUDA version 13.2 whereas TorchAudio has 13.0.')"
    )
    monkeypatch.syspath_prepend(broken)
    assert "PyTorch has CUDA version 13.2 whereas TorchAudio has 13.0" in torchaudio_problem()


def forget_torchaudio(monkeypatch):
    """As if it had not been imported yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        monkeypatch.delitem(sys.modules, name)
