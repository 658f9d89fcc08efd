"""Explanations of a run: kept beside its scores, found again, the same in shards, shown on the
page."""

from __future__ import annotations

import json
import shutil

import pytest

from speechmix.errors import InputError
from speechmix.extensions.explain import explain as explaining
from speechmix.extensions.explain.explain import explain
from speechmix.extensions.explain.kind import (
    EXPLANATIONS_KIND,
    ToExplain,
    find_first_shown,
    stored_explanations,
)
from speechmix.extensions.explain.section import EXPLANATIONS
from speechmix.files.shard_assignment import Shard
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import create_parser
from speechmix.interfaces.cli.score_options import collect_score_arguments
from speechmix.reporting.pages.html_page import render_page
from speechmix.reporting.pages.page_sections import PageContent
from speechmix.reporting.pages.study_results import Study
from speechmix.runs.results.open_run import open_run
from speechmix.runs.score_clips import compute_kinds, score_clips
from tests.conftest import trained
from tests.models.audio_classifiers import classifier, clip
from tests.reports.chromium import EXECUTABLE, Browser


def clips():
    """Two clips that are transcribed right, and one whose target the transcript lacks: it is said
    to be another word."""
    named = {clip.name: clip for clip in bundled.clips()}
    first, second = named["left_00_sg"], named["left_00_pl"]
    words = [(*word.to_list()[:1], word.start, word.end) for word in second.words]
    other = second.replace(
        name="missed", words=[*words[:-1], ("chats", *words[-1][1:])], text="nos chats", target=1
    )
    return [first, second, other]


def by_one_measure(patch):
    """Explanations by one measure, and of which clips they were asked."""
    asked = []

    def one(model, clip, **options):
        asked.append(clip.name)
        return explain(model, clip, measures="gradient_input", top=1, **options)

    patch.setattr(explaining, "explain", one)
    return asked


@pytest.fixture
def quick(monkeypatch):
    return by_one_measure(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of one process in which one clip was asked for."""
    folder = tmp_path_factory.mktemp("explained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        by_one_measure(patch)
        scored(folder)
    return folder


def scored(folder, count=1, models=None, of_clips=None, **options):
    quiet = {"progress": False, "report": lambda line: None, "figures": 0, "layers": 0}
    models, of_clips = models or [trained("tiny-french-ctc")], of_clips or clips()
    return score_clips(models, of_clips, folder, explain=count, **quiet, **options)


def contents(folder):
    return {clip: content for _, clip, content in stored_explanations(open_run(folder).parts)}


def test_the_first_clips_and_those_that_are_missed_are_explained(whole):
    kept = contents(whole)
    assert list(kept) == ["left_00_sg", "missed"]
    view = kept["left_00_sg"]["view"]
    assert view["sound"]["wav"] is None
    assert view["choices"][view["start"]]["against"] == "foil"
    error = kept["missed"]["view"]["choices"][kept["missed"]["view"]["start"]]
    assert (error["error"], "chats" in error["name"]) == ("substitution", True)


def test_they_are_explained_once(whole, tmp_path, quick):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    scored(folder, count=2)
    assert quick == ["left_00_pl"]  # only what was not asked before
    assert list(contents(folder)) == ["left_00_sg", "left_00_pl", "missed"]
    scored(folder, count=2)
    assert quick == ["left_00_pl"]


def test_shards_keep_the_same(tmp_path, quick, whole):
    for index in (1, 2):
        scored(tmp_path, shard=Shard(index, 2))
    assert contents(tmp_path) == contents(whole)


def test_without_the_option_nothing_is_kept_and_nothing_is_shown(tmp_path, quick):
    scored(tmp_path, count=0)
    assert quick == []
    assert contents(tmp_path) == {}
    assert EXPLANATIONS.parts(PageContent(Study.open(tmp_path))) == []


def test_what_cannot_be_explained_is_said_and_the_clip_is_done(tmp_path, monkeypatch):
    def refuse(model, clip, **options):
        raise InputError("it writes nothing")

    monkeypatch.setattr(explaining, "explain", refuse)
    run = scored(tmp_path)
    assert (run.done, run.skipped) == (3, [])
    ((_, items),) = EXPLANATIONS.parts(PageContent(Study.open(tmp_path)))
    assert "left_00_sg, tiny-french-ctc: it writes nothing" in items


def test_the_page_has_a_card_a_clip_and_says_all_as_text(whole):
    part = EXPLANATIONS.parts(PageContent(Study.open(whole), clips=clips()))
    html = render_page("a run", part)
    assert html.count('class="clip why-card"') == 2
    assert "gradient_input (size)" in html  # where no script runs
    data = json.loads(html.split('<script type="application/json">')[1].split("</script>")[0])
    assert data["sound"].startswith("UklGR")
    assert [view["model"] for view in data["views"]] == ["tiny-french-ctc"]
    assert "explanationView" in html
    assert "globalThis.explanationView" not in render_page("a run", [("None", ["nothing"])])


def test_which_clips_are_asked():
    some = clips()
    asked = ToExplain.of(some, 1)
    assert (asked.always, asked.if_missed) == ({"left_00_sg"}, {"left_00_pl", "missed"})
    assert all(clip in asked for clip in some)
    assert not any(clip in ToExplain.of(some, 0) for clip in some)
    with pytest.raises(InputError, match="0 for none"):
        ToExplain.of(some, -1)


def test_the_target_against_its_foil_comes_first():
    why = explain(
        trained("tiny-french-ctc"),
        clips()[0],
        measures="gradient_input",
        top=0,
        against=("foil", "runner_up"),
    )
    assert why.choices[find_first_shown(why)].against == "foil"


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 420])
def test_in_chromium_a_card_is_drawn_when_it_is_opened(tmp_path, whole, width):
    path = tmp_path / "page.html"
    path.write_text(
        render_page("a run", EXPLANATIONS.parts(PageContent(Study.open(whole), clips=clips()))),
        encoding="utf-8",
    )
    words = "document.querySelectorAll('.w-words .w-word')"
    with Browser(width, 900) as browser:
        browser.open(path)
        assert browser.evaluate(f"{words}.length") == 0
        browser.evaluate("document.querySelector('summary').focus()")
        browser.press("Enter")
        browser.until(f"{words}.length > 0")
        assert "why “n” and not “s”?" in browser.evaluate(
            "document.querySelector('.w-heading').innerText"
        )
        assert browser.evaluate(
            "document.querySelector('.why-card audio').src.startsWith('data:audio/wav')"
        )
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert not browser.messages


def test_the_option_reaches_the_run(tmp_path):
    options = create_parser().parse_args(
        ["score", "a.wav", "--model", "m", "--out", str(tmp_path), "--explain", "3"]
    )
    assert collect_score_arguments(options)["explain"] == 3


def test_a_label_is_explained_again_once_the_true_label_is_another(tmp_path, quick):
    model, request = classifier("wav2vec2"), {EXPLANATIONS_KIND.name: {}}
    scored(tmp_path, 0, models=[model], of_clips=[clip()])
    for label in ("happy", "happy", "calm"):
        labelled = clip(meta={"label": label})
        compute_kinds([model], [labelled], tmp_path, request, progress=False)
        assert f"not “{label}”" in contents(tmp_path)["clip"]["text"]
    assert quick == ["clip", "clip"]
