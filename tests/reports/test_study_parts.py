"""Parts of the page on a run that was really made, by tiny models of random weights: what is read
off stored results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.cue_contribution import length_exponent
from speechmix.reporting.pages import run_page, study_figures
from speechmix.reporting.pages.page_sections import PageContent, PageSection
from speechmix.reporting.pages.result_sections import LENGTH_ALONE, model_items
from speechmix.reporting.pages.run_page import SECTIONS, report
from speechmix.reporting.pages.study_results import Study
from speechmix.runs.score_clips import score_clips
from tests.conftest import build
from tests.experiments.test_run import clip

WORDS = [("les", 0.1, 0.2), ("livres", 0.2, 0.5), ("verts", 0.5, 0.9)]  # of different lengths


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import transformers

    extractor, trained = transformers.Wav2Vec2FeatureExtractor(), build("wav2vec2-post")
    models = [speechmix.load(trained, processor=extractor)]
    models += [
        speechmix.load(trained, processor=extractor, init="random", seed=seed) for seed in (3, 5)
    ]
    clips = [clip(name, words=WORDS, text="les livres verts") for name in ("a", "bb", "ccc")]
    out = tmp_path_factory.mktemp("run")
    score_clips(
        models, clips, out, twin_clips=2, figures=0, progress=False, report=lambda line: None
    )
    return out, models


def test_the_table_of_models_has_each_with_its_weights_and_clips(run):
    out, models = run
    table = model_items(speechmix.open_run(out))[0]
    expected = [
        (model.name, model.init, "" if model.seed is None else str(model.seed), model.fingerprint)
        for model in models
    ]
    assert (
        list(table[["model", "weights", "seed", "fingerprint"]].itertuples(index=False, name=None))
        == expected
    )
    assert table["clips"].tolist() == [3, 3, 2]


def test_what_length_alone_does_is_read_off_the_maps_of_the_twin(run):
    out, models = run
    [(_, [_, table])] = LENGTH_ALONE.parts(PageContent(Study.open(out)))
    clips = [clip(name, words=WORDS, text="les livres verts") for name in ("a", "bb", "ccc")]
    maps = [speechmix.mix(models[1], one)["value_zeroing", "encoder"] for one in clips]
    assert table[["measure", "stack", "clips"]].values.tolist() == [["value_zeroing", "encoder", 3]]
    assert float(table["exponent"][0]) == pytest.approx(length_exponent(maps), abs=0.005)
    assert np.isfinite(length_exponent(maps))


def test_a_section_is_left_out_without_items_and_shows_why_its_file_cannot_be_read():
    def damaged(content):
        raise InputError("means.csv: found no column p")

    content = PageContent(study=None)
    assert PageSection("A", lambda content: []).parts(content) == []
    assert PageSection("A", lambda content: ["text"], lambda content: False).parts(content) == []
    assert PageSection("A", damaged).parts(content) == [("A", ["means.csv: found no column p"])]


@pytest.mark.usefixtures("undrawn", "no_study_figures")
def test_a_page_has_a_section_from_outside_the_package(run, monkeypatch):
    def count_clips(content):
        return [f"Counted: {len(content.run.clips)} clips.", content.run.clips[["clip", "seconds"]]]

    monkeypatch.setattr(run_page, "SECTIONS", [*SECTIONS])
    run_page.SECTIONS.append(PageSection("Counted <clips>", count_clips))
    run_page.SECTIONS.append(PageSection("Nothing to say", lambda content: []))
    page = report(run[0]).read_text()
    assert "<h2>Counted &lt;clips&gt;</h2>\n<p>Counted: 3 clips.</p>" in page
    assert "Nothing to say" not in page


def test_captions_name_twins_and_bands_only_where_there_are_some():
    rows = {
        "init": ["trained"] * 8 + ["random"] * 2,
        "seed": [None] * 8 + [0, 1],
        "group": [*"abcdefghab"],
        "mixing_strength": [0.5] * 8 + [np.nan] * 2,
    }
    table = pd.DataFrame(rows)
    note = study_figures._curves_note(table)
    assert note.startswith(
        " Solid: trained models, with a confidence interval of the mean over groups. Dashed: untrained "
        "twins; a band shows where one more untrained model is expected. Each band holds in 95 %"
    )
    assert "Strips" in note
    one_clip = study_figures._curves_note(table.iloc[[0, 8]])
    assert one_clip.startswith(" Solid: trained models. Dashed: untrained twins. Strips")
    alone = study_figures._curves_note(table[:8])
    assert "untrained" not in alone
    assert "Each band" in alone
    assert "Strips" not in study_figures._curves_note(table[8:])
