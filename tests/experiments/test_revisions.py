"""A corrected measure has another revision: former scores are made again; the page names every
version that computed some."""

from __future__ import annotations

import dataclasses

import pytest

from speechmix.extensions.faithfulness.kind import VERSION
from speechmix.inputs import bundled
from speechmix.mixing.maps.measure_registry import MEASURE_FACTS, measure_revision
from speechmix.mixing.measures.measure_functions import MEASURES
from speechmix.reporting.pages import result_sections
from speechmix.runs.kinds import map_results as store
from speechmix.runs.kinds.registry import KINDS
from speechmix.runs.kinds.result_kind import version_entry
from speechmix.runs.results import result_store as results
from speechmix.runs.results import run_folder as folders
from speechmix.runs.results.open_run import list_versions, open_run
from speechmix.runs.score_clips import score_clips
from tests.conftest import trained

QUIET = {"progress": False, "report": lambda line: None, "figures": 0}


@pytest.fixture
def computed(monkeypatch):
    """Measures that are computed, clip by clip."""
    names, keep = [], store._compute_batch

    def counted(model, clips, question):
        names.extend(question.measures * len(clips))
        return keep(model, clips, question)

    monkeypatch.setattr(store, "_compute_batch", counted)
    return names


def score(out, clips=1):
    score_clips(
        [trained("tiny-french-ctc")],
        bundled.clips()[:clips],
        out,
        measures=["attention", "attention_norm"],
        **QUIET,
    )
    return open_run(out)


def revise(monkeypatch, name):
    measure = dataclasses.replace(MEASURES[name], revision=2)
    monkeypatch.setitem(MEASURES, name, measure)
    monkeypatch.setitem(MEASURE_FACTS, name, measure)


def of_version(monkeypatch, text):
    for module in (results, folders):
        monkeypatch.setattr(module, "versions", lambda: text)


def test_scores_of_a_former_revision_are_made_again(tmp_path, computed, monkeypatch):
    score(tmp_path / "run")
    assert sorted(computed) == ["attention", "attention_norm"]
    computed.clear()
    score(tmp_path / "run")
    assert computed == []
    revise(monkeypatch, "attention_norm")
    score(tmp_path / "run")
    assert computed == ["attention_norm"]


@pytest.mark.parametrize("kind", ["contributions", "ablation"])
def test_a_revised_kind_of_result_is_made_again(tmp_path, computed, monkeypatch, kind):
    score(tmp_path / "run")
    before = len(computed)
    monkeypatch.setitem(KINDS, kind, dataclasses.replace(KINDS[kind], version=2))
    score(tmp_path / "run")
    assert (len(computed) > before) == (kind == "contributions")


def test_keys_of_a_first_revision_are_those_of_before():
    assert MEASURES["attention"].identity == "attention"
    assert dataclasses.replace(MEASURES["attention"], revision=3).identity == "attention revision 3"
    assert {measure_revision(name) for name in (*MEASURE_FACTS, "nobody's")} == {1}
    assert version_entry(1, MEASURE_FACTS) == {}
    assert version_entry(VERSION, MEASURE_FACTS) == {"revision": VERSION}


def test_a_revised_measure_is_in_what_is_made_with_it(monkeypatch):
    revise(monkeypatch, "attention")
    assert version_entry(1, ["attention", "alti"]) == {"measure_revisions": {"attention": 2}}
    assert version_entry(5) == {"revision": 5}


def test_the_page_names_every_version_that_computed_a_result(tmp_path, monkeypatch):
    of_version(monkeypatch, "speechmix 0")
    assert list_versions(score(tmp_path / "run")) == ["speechmix 0"]
    of_version(monkeypatch, "speechmix 1")
    run = score(tmp_path / "run")  # nothing is computed
    assert list_versions(run) == ["speechmix 0"]
    run = score(tmp_path / "run", clips=2)  # one clip by the new one
    assert list_versions(run) == ["speechmix 0", "speechmix 1"]
    page = result_sections._versions_text(run)
    assert "Scored with speechmix 0; and with speechmix 1; this page by" in page
