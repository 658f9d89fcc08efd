"""Extensions: found by entry points; one from outside, as the docs build it, works like the package's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import speechmix
from speechmix import extension
from speechmix.adapters.loading.foreign_checkpoint import CheckpointReader
from speechmix.errors import ExtensionError, InputError, SpeechmixError
from speechmix.extension import Extension, exported_names, extensions, find_export, find_hook
from speechmix.interfaces.cli import command_line
from speechmix.reporting.pages.page_sections import PageParts
from speechmix.runs.executors.executor import Engine
from speechmix.runs.kinds.result_kind import ResultKind

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "howto" / "new_extension.md"


def test_every_reference_of_an_extension_is_there():
    for found in extensions():
        references = [*found.exports.values(), *found.figures.values(), *found.hooks.values()]
        references += [*found.checkpoint_readers.values(), *found.engines.values()]
        references += [*found.kinds, *found.sections, *found.measures, *found.corpora]
        references += [f"{module}:add_commands" for module, _, _ in found.commands.values()]
        assert all(found.load(reference) is not None for reference in references)
        assert all(found.read_text(path) for pair in found.page_assets.values() for path in pair)


def test_exports_are_names_of_the_package():
    assert {"explain", "ground", "probe"} < set(exported_names()) < set(speechmix.__all__)
    assert "explained_text" in exported_names("figures")
    assert speechmix.explain is find_export("explain")
    assert find_hook("nothing asks for this") is None
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        speechmix.explian  # noqa: B018


class Point:
    """An entry point of somebody else."""

    name, value = "other", "other_package:EXTENSION"

    def __init__(self, result):
        self.result = result

    def load(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def find_with(monkeypatch):
    """Find the extensions of these entry points alone."""

    def find(*results):
        monkeypatch.setattr(extension, "entry_points", lambda group: [*map(Point, results)])
        return extension.extensions.__wrapped__()

    return find


def test_a_broken_extension_is_left_out_and_named(find_with):
    with pytest.warns(UserWarning, match=r"other \(other_package:EXTENSION\) is left out: no x"):
        assert find_with(ImportError("no x")) == ()
    with pytest.warns(UserWarning, match="other_package:EXTENSION is no Extension"):
        assert find_with("a text") == ()


def test_two_extensions_of_one_name_are_an_error(find_with):
    one, other = (Extension(name, "", exports={"loud": "module:loud"}) for name in ("a", "b"))
    with pytest.raises(SpeechmixError, match="two extensions add 'loud' to exports: a and b"):
        find_with(one, other)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kinds": "module:KIND"}, "kinds should be mapping of str to int, found 'module:KIND'"),
        ({"kinds": {"module:KIND": "1000"}}, "kinds should be mapping of str to int"),
        ({"exports": ["loud"]}, "exports should be mapping of str to str"),
        ({"measures": "rank"}, "measures should be tuple of str, found 'rank'"),
        (
            {"commands": {"loud": "module"}},
            r"commands should be mapping of str to tuple \(str, str, int\)",
        ),
        ({"page_assets": {"x": ("a",)}}, r"page_assets should be mapping of str to tuple"),
        ({"summary": None}, "summary should be str, found None"),
    ],
)
def test_a_field_of_another_type_is_named(fields, message):
    with pytest.raises(InputError, match=f"^mine: {message}"):
        Extension(**{"package": "mine", "summary": "", **fields})


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The one extension, of a module `parts` with the number `NUMBER`."""
    package = tmp_path / "outside_ext"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text("NUMBER = 1\n")
    (package / "broken.py").write_text("{}['x']\n")
    monkeypatch.syspath_prepend(tmp_path)

    def declare(**fields):
        found = (Extension("outside_ext", "", **fields),)
        monkeypatch.setattr(extension, "extensions", lambda: found)
        return found

    yield declare
    for name in [name for name in sys.modules if name.startswith("outside_ext")]:
        del sys.modules[name]


WRONG = {
    "parts:NOTHING": "cannot be loaded .AttributeError: .*has no attribute 'NOTHING'",
    "nowhere:KIND": "cannot be loaded .No module named 'outside_ext.nowhere'",
    "broken:KIND": "cannot be loaded .KeyError: 'x'",
    "parts:NUMBER": "is of type int, not ",
}


@pytest.mark.parametrize("reference", WRONG)
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("kinds", ResultKind),
        ("sections", PageParts),
        ("corpora", Callable),
        ("hooks", Callable),
        ("engines", Engine),
        ("checkpoint_readers", CheckpointReader),
    ],
)
def test_a_wrong_reference_is_left_out_and_named(outside, part, expected, reference):
    by_reference = part in ("kinds", "sections", "corpora")
    outside(**{part: {reference: 1000} if by_reference else {"mine": reference}})
    line = f"left out: {part} of the extension outside_ext: '{reference}' {WRONG[reference]}"
    with pytest.warns(UserWarning, match=line):
        assert [*extension.load_all(part, expected)] == []


def test_a_wrong_reference_of_a_name_is_an_error_that_names_it(outside):
    outside(exports={"loud": "parts:NOTHING"}, measures=("nowhere",))
    with pytest.raises(ExtensionError, match=r"^exports of the extension outside_ext: 'parts:NOTH"):
        find_export("loud")
    with pytest.warns(UserWarning, match="left out: measures of the extension outside_ext"):
        extension.import_measures()


def test_a_name_of_the_core_is_named_with_the_extension(find_with):
    with pytest.warns(UserWarning, match="extension mine adds 'mix' to exports, but speechmix has"):
        find_with(Extension("mine", "", exports={"mix": "module:mix", "other": "module:other"}))
    with pytest.warns(UserWarning, match="extension mine adds 'heat_map' to figures"):
        extension.warn_of_core_names(
            [Extension("mine", "", figures={"heat_map": "module:x"})], "figures", ["heat_map"]
        )


def test_a_command_of_the_core_is_left_out(outside, monkeypatch, tmp_path):
    found = outside(commands={"score": ("twice", "further commands", 1000)})
    (tmp_path / "outside_ext" / "twice.py").write_text(
        "def add_commands(commands):\n    commands.add_parser('score')\n"
    )
    monkeypatch.setattr(command_line, "extensions", lambda: found)
    with pytest.warns(UserWarning, match="commands of the extension outside_ext: .*score"):
        command_line.create_parser()


RANK_EXTENSION = """from speechmix.extension import Extension
EXTENSION = Extension(
    package=__name__, summary="Ranks.", measures=("rank",),
    commands={"rank": ("broken", "further commands", 1000)},
)
"""
RANK_MEASURE = """import speechmix

@speechmix.register_measure(
    "attention_rank", description="x", citation="this test", residual="out", no_heads="x"
)
def attention_rank(block, units):
    lengths = block.values.norm(dim=-1).mean(dim=0)
    rows = lengths[None].expand(len(units.rows), -1)
    return units.pool_targets(units.pool_sources(rows))
"""
USE_OF_BOTH = """
import speechmix
from matplotlib.figure import Figure
from speechmix.files.parquet_files import read_parquet
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.reporting.pages.run_page import report
from speechmix.runs.score_clips import score_clips

model = speechmix.load(bundled.models()["tiny-french-ctc"])
# Without cues, whose figures take most of a page's time.
clips = [clip.replace(cue=None, target=None, foil=None) for clip in bundled.clips()[:2]]
score_clips(model, clips, "run", figures=0, kinds=["loudness"], progress=False)
table = read_parquet("run/loudness.parquet")
assert len(table) == 4 and -60 < table.db.min() < 0, table
assert speechmix.plots.loudness_panel(table, Figure().subplots()).get_xlabel()
assert "The 4 words have a mean loudness of" in report("run").read_text()
assert len(speechmix.word_loudness(clips[0])) == 2
assert main(["loudness", "run"]) == 0
print(list(speechmix.mix(model, clips[0], measures="attention_rank")))
assert main(["status", "run"]) == 0
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """What one process said that used the extension of the docs, installed, and another one, whose
    command is broken."""
    folder = tmp_path_factory.mktemp("extensions")
    text = PAGE.read_text(encoding="utf-8")
    declaration, module = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    project = re.search(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    assert len(module.splitlines()) <= 60
    source, site = folder / "project", folder / "site"
    package = source / "speechmix_loudness"
    package.mkdir(parents=True)
    (source / "pyproject.toml").write_text(project)
    (package / "__init__.py").write_text(declaration)
    (package / "loudness.py").write_text(module)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "install", *options, str(source)]
    subprocess.run(pip, check=True)
    other = folder / "other"
    package, metadata = other / "rank_ext", other / "rank_ext-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rank-ext\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[speechmix.extensions]\nrank = rank_ext:EXTENSION\n"
    )
    (package / "__init__.py").write_text(RANK_EXTENSION)
    (package / "broken.py").write_text("import nothing_of_this_name\n")
    (package / "rank.py").write_text(RANK_MEASURE)
    paths = os.pathsep.join([str(site), str(other), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", USE_OF_BOTH],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_an_extension_of_the_docs_is_installed_and_used(used):
    assert re.search(r"left_00_sg +maison +-\d+\.\d dB", used.stdout)


def test_a_measure_of_an_extension_is_found_and_its_broken_command_stops_no_other(used):
    assert "('attention_rank', 'encoder')" in used.stdout
    assert "left out: commands of the extension rank_ext: 'broken:add_commands'" in used.stderr


def test_the_docs_list_all_extensions():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    own = [found for found in extensions() if found.package.startswith("speechmix.")]
    assert all(f"| `{found.name}` | {found.summary} |" in text for found in own)
