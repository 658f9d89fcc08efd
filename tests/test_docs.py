"""The documentation: its code runs and prints what a page says, its commands parse, its table of
measures is true."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import speechmix
from speechmix.extensions.faithfulness.perturbations import PERTURBATIONS, forget_perturbation
from speechmix.interfaces.cli.command_line import create_parser
from speechmix.mixing.measures.measure_functions import (
    MEASURES,
    OUTPUT_MEASURES,
    forget_measure,
    list_measures,
)
from tests.conftest import inputs_of, tiny

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def module_at(path: Path):
    """Import a Python file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


examples = module_at(DOCS / "hooks" / "examples.py")
PAGES = [str(path.relative_to(DOCS)) for path in examples.pages()]


def test_the_page_of_families_names_every_model_type():
    from speechmix.adapters import families

    page = (DOCS / "families.md").read_text(encoding="utf-8")
    missing = [
        kind
        for family in families()
        for kind in family.model_types
        if f"`{kind}`" not in page and kind != "mine"  # the example of `register`
    ]
    assert not missing, "make it again: python -m tests.families_measured > docs/families.md"


_LONG = {
    "gallery.md",
    "howto/many_clips.md",
    "howto/faithfulness.md",
    "howto/speech_ablation.md",
    "howto/probing.md",
    "howto/lenses.md",
    "howto/listening.md",
    "howto/similarity.md",
    "howto/look_ahead.md",
    "howto/continua.md",
    "howto/states.md",
    "howto/model_card.md",
    "howto/faster_whisper.md",
    "howto/alignment_heads.md",
    "howto/find_hallucinations.md",
    "howto/phones.md",
    "howto/reports.md",
    "howto/logit_contributions.md",
    "howto/quantisation.md",
    "howto/sound_classifiers.md",
    "howto/translation.md",
    "howto/interventions.md",
    "howto/common_voice.md",
    "howto/result_kind.md",
    "howto/results_elsewhere.md",
    "coming_from.md",
    "howto/frequency.md",
    "howto/new_measure.md",  # test_registered_from_outside.py
    "howto/statistics.md",
}  # seconds each; what they call is tested in the folders of these chapters, and with a real model in tests/real


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.long if page in _LONG else ()) for page in PAGES]
)
def test_python_blocks_run_and_print_what_the_page_says(page, tmp_path):
    from speechmix.adapters.families import registry
    from speechmix.reporting.pages.run_page import SECTIONS

    known, sections = dict(registry._FAMILIES), list(SECTIONS)
    try:
        ran = examples.run(DOCS / page, tmp_path)
        for name in [*MEASURES, *OUTPUT_MEASURES]:
            forget_measure(name)
        for name in [*PERTURBATIONS]:
            forget_perturbation(name)
    except (speechmix.errors.MissingExtraError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != "moonshine_voice":
            raise
        pytest.skip(str(error))
    finally:
        registry._FAMILIES.clear()
        registry._FAMILIES.update(known)
        SECTIONS[:] = sections
    for example in ran:
        if example.expected is not None:
            assert examples.same_text(example.expected, example.printed), (
                f"{page}, line {example.line}: the page says\n{example.expected}\nand the code "
                f"prints\n{example.printed}\n"
                f"If the code is right: python docs/hooks/examples.py {page}"
            )


def test_few_python_blocks_are_left_out_and_each_says_why():
    texts = {page: (DOCS / page).read_text(encoding="utf-8") for page in PAGES}
    reasons = [
        reason
        for text in texts.values()
        for reason in re.findall(r"<!-- skip: (.*) -->\n+```python", text)
    ]
    assert len(reasons) <= 4
    assert all(len(reason) > 10 for reason in reasons)
    blocks = sum(text.count("```python\n") for text in texts.values())
    assert sum(len(list(examples.examples(text))) for text in texts.values()) == blocks - len(
        reasons
    )
    assert blocks > 20


def test_numbers_are_compared_up_to_rounding():
    same = examples.same_text
    assert same("a 0.49\n b", "a 0.50 b")
    assert not same("a 0.49", "a 0.55")
    assert not same("a 0.49", "b 0.49")
    assert same("12 clips", "13 clips") != same("12 clips", "18 clips")
    assert not same("1e-06", "1e-03")


def commands() -> list[tuple[str, list[str]]]:
    """Every command of the package in the pages' shell blocks: page, words."""
    found = []
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        for block in re.findall(
            r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] in ("speechmix", "python"):
                    found.append((f"{path.relative_to(ROOT)}: {' '.join(words)}", words))
    return found


@pytest.mark.parametrize(("where", "words"), commands(), ids=[where for where, _ in commands()])
def test_commands_are_ones_that_there_are(where, words):
    from speechmix.interfaces.cli.command_line import create_parser

    if words[0] == "speechmix":
        assert callable(create_parser().parse_args(words[1:]).command)
    elif words[1] == "-c":
        compile(words[2], where, "exec")
    elif words[1] != "-m":
        options = [word for word in words[2:] if word.startswith("--")]
        assert (ROOT / words[1]).is_file()
        if options:
            assert all(option in help_of(words[1]) for option in options)


# Options of other programs that a page names.
OTHER_OPTIONS = {
    "--constraint",  # pip
    "--dependency",  # sbatch
    "--requeue",  # SLURM
    "--output_format",  # whisperX
    "--sort",  # tar
}


def test_options_named_in_prose_are_ones_that_there_are():
    from speechmix.interfaces.cli.command_line import create_parser

    (commands,) = create_parser()._subparsers._group_actions
    known = {
        option for parser in commands.choices.values() for option in parser._option_string_actions
    }
    known |= create_parser()._option_string_actions.keys() | OTHER_OPTIONS
    scripts = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("recipes", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    missing = []
    for path in (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *DOCS.rglob("*.md"),
        *(ROOT / "data_templates").rglob("*.md"),
    ):
        prose = re.sub(
            r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        if path.name == "CHANGELOG.md":  # without the column of old names
            prose = re.sub(r"^\| .*? \|", "|", prose, flags=re.MULTILINE)
        for code in re.findall(r"`([^`\n]+)`", prose):
            options = re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
            missing += [
                f"{path.relative_to(ROOT)}: {option}"
                for option in options
                if option not in known and f'"{option}"' not in scripts
            ]
    assert missing == []


@functools.cache
def help_of(recipe: str) -> str:
    """What a script says of its options; run in this process, which has imported all that takes
    long."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", [recipe, "--help"])
        patch.syspath_prepend((ROOT / recipe).parent)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / recipe), run_name="__main__")
    assert not ended.value.code
    return said.getvalue()


def table_of_measures() -> dict[str, list[str]]:
    """Rows of the page's first table, by measure: what it counts, stacks, a word counts, cost."""
    text = (DOCS / "choosing_a_measure.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \|(.*)\|$", text.partition("## Options of a measure")[0], re.MULTILINE
    )
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_table_of_measures_has_every_measure_with_its_description_and_source():
    table = table_of_measures()
    assert list(table) == list(list_measures())
    assert {name: row[0] for name, row in table.items()} == {
        name: m.description for name, m in list_measures().items()
    }
    text = (DOCS / "choosing_a_measure.md").read_text(encoding="utf-8")
    sources = dict(
        re.findall(r"^\| (`.*`) \| (.*) \|$", text.partition("## Sources")[2], re.MULTILINE)
    )
    assert {
        name: source for names, source in sources.items() for name in re.findall(r"`(\w+)`", names)
    } == {name: measure.citation for name, measure in list_measures().items()}


def test_every_option_of_the_command_line_is_named_on_some_page():
    folders = (DOCS, DOCS.parent / "recipes", DOCS.parent / "data_templates")
    paths = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py")
    ]
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in (*paths, DOCS.parent / "README.md")
    )
    named = set(re.findall(r"--[a-z][a-z-]*[a-z]", text))
    commands = next(
        action
        for action in create_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for name, command in commands.choices.items():
        for action in command._actions:
            if action.option_strings and action.dest not in ("help", "help_all"):
                assert not named.isdisjoint(action.option_strings), (name, action.option_strings)


def test_options_of_measures_are_in_their_table():
    text = (DOCS / "choosing_a_measure.md").read_text(encoding="utf-8")
    section = text.partition("## Options of a measure")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    documented = {
        (measure, option)
        for names, options in rows
        for measure in re.findall(r"`(\w+)`", names)
        for option in re.findall(r"`(\w+)`", options)
    }
    assert documented == {
        (name, option)
        for name, measure in list_measures().items()
        if measure.is_builtin
        for option in measure.own_options
    }


@pytest.mark.filterwarnings(
    "ignore:integrated gradients"
)  # two steps are too few, and enough to see that there is a map
@pytest.mark.parametrize(("model_name", "norm_order"), [("bart", "post"), ("whisper-80", "pre")])
def test_measures_are_defined_where_the_table_says(model_name, norm_order):
    pytest.importorskip("captum", reason="the extra `gradients` is not installed")
    model = tiny(model_name)
    inputs = inputs_of(model)
    for name, (_, stacks, *_) in table_of_measures().items():
        where, _, only = stacks.partition("; ")
        for stack in model.stacks:
            options = {"stacks": stack, "layers": [1], "objective": (2, 3)}
            if name == "integrated_gradients":
                name = f"{name}:steps=2"
            options |= {"targets": [1]} if name.startswith("hta") else {}
            if stack in where.split(", ") and only in ("", f"{norm_order}-norm"):
                assert speechmix.mix(model, inputs, measures=name, **options)[
                    name, stack
                ].scores.size
            else:
                with pytest.raises(speechmix.SpeechmixError, match=name):
                    speechmix.mix(model, inputs, measures=name, **options)


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    for name in set(speechmix.__all__) - {"__version__"}:
        assert re.search(rf"(heading: |::: )speechmix\.{name}\b|members: \[.*\b{name}\b", text), (
            name
        )


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads from one to something it has."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ".".join(parts[:count])
        try:
            spec = importlib.util.find_spec(path)
        except ModuleNotFoundError:
            continue
        if spec is None or spec.origin is None:  # a folder of data, perhaps of a function's name
            continue
        found = importlib.import_module(path)
        for attribute in parts[count:]:
            found = getattr(found, attribute, None)
            if found is None:
                return False
        return True
    return False


def members_in_reference(text: str) -> list[str]:
    """Names that a page of the reference describes: modules with their members, functions, classes."""
    entry = r"^::: ([\w.]+)(?:\n    options: .*?members: \[(.*?)\])?"
    names = []
    for name, members in re.findall(entry, text, re.MULTILINE):
        names.append(name)
        if importlib.util.find_spec(name.rpartition(".")[0]) and name.rpartition(".")[2].islower():
            names += [f"{name}.{member}" for member in members.split(", ") if member]
    return names


def test_errors_of_the_page_of_problems_are_those_of_the_package():
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "speechmix").rglob("*.py")
    )
    messages = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len(messages) > 8
    assert [message for message in messages if message.strip(" :'") not in source] == []


def test_every_command_is_in_the_reference():
    from speechmix.interfaces.cli.command_line import create_parser

    (commands,) = create_parser()._subparsers._group_actions
    text = (DOCS / "reference" / "command_line.md").read_text(encoding="utf-8")
    assert [name for name in commands.choices if f"| `speechmix {name}" not in text] == []


def test_every_dotted_name_on_a_page_is_one_that_there_is():
    missing = []
    for path in (ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "data_templates").rglob("*.md")):
        names = re.findall(r"`(speechmix(?:\.\w+)+)[`(]", path.read_text(encoding="utf-8"))
        names += members_in_reference(path.read_text(encoding="utf-8"))
        missing += [f"{path.relative_to(ROOT)}: {name}" for name in names if not exists(name)]
    assert not missing
    assert exists("speechmix.Clip.from_file")
    assert not exists("speechmix.evaluation.no_such_function")


def test_new_names_in_the_changelog_exist():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = text.partition("## Unreleased")[2].partition("\n## ")[0]
    changes = unreleased.partition("### Renamed")[0]
    assert len(changes.encode()) < 8000, "say what a user notices, in a line"
    text = re.sub(r"^\| .*? \|", "|", text, flags=re.MULTILINE)  # the column of old names
    names = re.findall(r"`(speechmix(?:\.\w+)+)[`(]", text)
    assert [name for name in names if not exists(name)] == []


def test_every_figure_is_in_the_gallery():
    from speechmix.reporting import plots

    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert [name for name in plots.__all__ if f"plots.{name}(" not in text] == []


# What users type into a search box, and a page that should be found with it.
SEARCH_TERMS = {
    "interpretability": "index.md",
    "saliency": "choosing_a_measure.md",
    "feature importance": "choosing_a_measure.md",
    "faithfulness": "howto/faithfulness.md",
    "perturbation": "howto/faithfulness.md",
    "confidence": "howto/own_clips.md",
    "word timestamps": "howto/own_clips.md",
    "forced alignment": "howto/own_clips.md",
    "logit lens": "howto/lenses.md",
    "phonetics": "index.md",
    "attention heads": "choosing_a_measure.md",
}


@pytest.mark.parametrize(("term", "page"), SEARCH_TERMS.items())
def test_terms_that_users_search_for_are_on_the_page_that_answers(term, page):
    for name in (page, "glossary.md"):
        text = (DOCS / name).read_text(encoding="utf-8").lower()
        assert term.rstrip("s") in " ".join(text.split()), name


def test_nobody_is_told_to_install_another_project():
    """The package index has another project of the same name: extras are installed in a
    checkout."""
    wrong = []
    for folder in (
        "docs",
        "speechmix",
        "recipes",
        "data_templates",
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
    ):
        path = ROOT / folder
        for file in [path] if path.is_file() else path.rglob("*"):
            if (
                file.suffix in (".py", ".md", ".ipynb", ".html", ".js", ".toml", "")
                and file.is_file()
            ):
                text = file.read_text(encoding="utf-8", errors="replace")
                wrong += [
                    str(file.relative_to(ROOT))
                    for _ in re.findall(r"pip install[^\n`]*[ '\"]speechmix\b", text)
                ]
    assert not wrong, "write: pip install '.[extra]' in a checkout"


def test_pages_name_no_machine():
    for path in (ROOT / "mkdocs.yml", *DOCS.rglob("*.md")):
        assert not re.search(
            r"/(home|work|tmp|Users)/|localhost|127\.0\.0\.1", path.read_text(encoding="utf-8")
        ), path


@pytest.mark.long
def test_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    nowhere = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    )
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path for path in tmp_path.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 20
    for path in pages:
        elsewhere = r'<(?:script|img|audio|source|iframe)[^>]*\ssrc="?(?:https?:)?//|<link[^>]*\shref="?(?:https?:)?//'
        assert not re.search(elsewhere, path.read_text(encoding="utf-8")), path
    tutorial = (tmp_path / "tutorials" / "score_your_own_clip" / "index.html").read_text(
        encoding="utf-8"
    )
    assert tutorial.count("<img ") >= 4
    assert "<audio" in tutorial
    assert not (tmp_path / "hooks").exists()
