"""Tables of a run: each column is in the dictionary, CSV and Parquet hold the same, and the
headline pastes into a paper."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.inputs import bundled
from speechmix.reporting.pages.run_page import report
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.study_tables import ablation_table
from speechmix.reporting.pages.table_format import latex_table, markdown_table
from speechmix.runs.boundary_shifts import score_moved_words
from speechmix.runs.results.open_run import open_run
from speechmix.runs.score_clips import score_clips
from tests.conftest import study_figures_left_out, trained

DICTIONARY = Path(__file__).resolve().parents[2] / "data_templates" / "tables.md"


def documented(section):
    """Columns that the dictionary names for a table, with those it takes from cue_contribution."""
    text = DICTIONARY.read_text(encoding="utf-8")
    part = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {
        name
        for row in re.findall(r"^\|(.*?)\|", part, flags=re.M)
        for name in re.findall(r"`(\w+)`", row)
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory, figures_saved_empty):
    """Four bundled clips (two pairs) through the tiny Whisper-style model and its twins, boundaries
    moved in one pair."""
    folder = bundled.models()["tiny-french-whisper"]
    twins = [speechmix.load(folder, init="random", seed=seed, device="cpu") for seed in (0, 1)]
    models = [trained("tiny-french-whisper"), *twins]
    clips = [clip for clip in bundled.clips() if clip.foil and clip.meta["side"] == "left"][:4]
    done = score_clips(
        models,
        clips,
        tmp_path_factory.mktemp("tables") / "run",
        measures=["value_zeroing", "attention"],
        ablation=True,
        figures=0,
        progress=False,
        report=lambda line: None,
        skipped=[("row 3", "no such file")],
    )
    assert score_moved_words(done, models, most=2) == 2
    with figures_saved_empty(), study_figures_left_out():
        report(done.out)
    return done.out


@pytest.mark.parametrize(
    "name",
    [
        "cue_contribution",
        "ablation",
        "transcripts",
        "boundaries",
        "clips",
        "skipped",
        "layers",
        "headline",
    ],
)
def test_every_column_is_in_the_dictionary_and_the_other_way_round(run, name):
    found = set(pd.read_csv(run / f"{name}.csv").columns)
    meant = documented(name) | (documented("cue_contribution") if name == "boundaries" else set())
    if name == "clips":
        found -= set(bundled.clips()[0].meta)  # further columns of the manifest
        meant -= {
            "pair",
            "lemma",
            "noun",
            "side",
            "template",
            "number",
            "control",
            "yes",
            "manifest_alignment",
            "model",
        }
        meant -= {"layer"}
    assert found == meant - {"head"}  # only with a map for each head


def test_every_column_of_the_scores_is_in_the_dictionary(run):
    assert set(open_run(run).scores.schema.names) == documented("scores")
    assert not (run / "scores.csv").exists()


@pytest.mark.parametrize("name", ["cue_contribution", "ablation", "transcripts", "boundaries"])
def test_csv_and_parquet_hold_the_same(run, name):
    parquet, csv = pd.read_parquet(run / f"{name}.parquet"), pd.read_csv(run / f"{name}.csv")
    assert len(parquet) == len(csv)
    for column in parquet:
        if parquet[column].dtype.kind == "f":
            np.testing.assert_allclose(csv[column], parquet[column], rtol=1e-6)
        else:
            assert csv[column].fillna("").astype(str).str.removesuffix(".0").tolist() == (
                parquet[column]
                .astype(object)
                .where(parquet[column].notna(), "")
                .astype(str)
                .tolist()
            )


def test_the_tidy_table_has_one_row_for_each_observation(run):
    table = pd.read_parquet(run / "cue_contribution.parquet")
    keys = ["clip", "model", "init", "seed", "stack", "layer", "measure", "rows"]
    assert not table.duplicated(keys).any()
    assert table.contribution.between(0, 1).all()
    assert table.depth.min() == 0
    assert table.groupby("stack").depth.max().eq(1).all()
    assert (
        table[table["stack"] == "decoder"]
        .length_matched.sub(table[table["stack"] == "decoder"].share_of_length)
        .abs()
        .max()
        < 1e-9
    )


def test_polars_reads_it(run):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert polars.read_parquet(run / "cue_contribution.parquet").shape[0] > 0


def test_the_page_says_what_moving_the_words_does_or_that_clips_are_too_few(run):
    text = (run / "index.html").read_text(encoding="utf-8")
    assert "If word boundaries are off" in text
    assert "in 2 clips" in text
    assert (
        "Whether the result depends on the boundaries is inconclusive: a test needs 8 groups of "
        "clips and two untrained twins." in text
    )


def test_headline_as_markdown_and_latex(run):
    lines = (run / "headline.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(
        "| side | model | stack | measure | trained | untrained | twins | sd of twins | difference |"
    )
    assert len({line.count("|") for line in lines}) == 1
    text = (run / "headline.tex").read_text(encoding="utf-8")
    assert "\\toprule" in text
    assert "value zeroing" in text
    assert "95 \\% intervals of the difference to one more untrained model" in text


def test_headline_as_a_tidy_table(run):
    table = pd.read_csv(run / "headline.csv")
    assert not table.duplicated(["side", "model", "stack", "measure"]).any()
    assert (table.twins == 2).all()
    assert (table.clips == 4).all()
    np.testing.assert_allclose(table.difference, table.trained - table.random)
    assert table[["claim", "low", "high"]].isna().all(axis=None)  # of four clips and two twins


def test_whole_stacks_are_layers_weighted_by_their_mixing_strength(run):
    headline = pd.read_csv(run / "headline.csv").set_index(["stack", "measure"])
    study = Study.open(run)
    table = study.table[study.table["init"] == "trained"].astype(
        {"clip": object, "stack": object, "measure": object}
    )
    for (stack, measure), rows in table.groupby(["stack", "measure"]):
        clips = rows.groupby("clip")[["contribution", "mixing_strength"]]
        of_clips = clips.apply(
            lambda clip: np.average(clip["contribution"], weights=clip["mixing_strength"])
        )
        groups = of_clips.groupby(study.clips.set_index("clip")["group"]).mean()
        assert headline.trained[stack, measure] == pytest.approx(100 * groups.mean())


def test_what_is_special_in_markdown_and_latex_is_escaped():
    table = pd.DataFrame({"a_b": ["x|y", "50 % & $"], "n": [1.25, np.nan]})
    assert markdown_table(table).splitlines()[2:] == ["| x\\|y | 1.2 |", "| 50 % & $ |  |"]
    text = latex_table(table, caption="5 % of a_b")
    assert "50 \\% \\& \\$" in text
    assert "5 \\% of a\\_b" in text
    assert "a\\_b" in text


@pytest.mark.long
def test_clips_whose_names_look_like_numbers_keep_them(tmp_path):
    clips = [clip for clip in bundled.clips() if clip.foil and clip.meta["side"] == "left"][:2]
    clips = [clip.with_name(f"00{number}") for number, clip in enumerate(clips, start=1)]
    model = trained("tiny-french-ctc")
    done = score_clips(
        [model],
        clips,
        tmp_path,
        ablation=True,
        figures=0,
        progress=False,
        report=lambda line: None,
        skipped=[("007", "no such file")],
    )
    page = report(done.out).read_text(encoding="utf-8")
    opened = open_run(done.out)
    assert opened.clips["clip"].tolist() == ["001", "002"]
    assert opened.skipped[0]["clip"] == "007"
    assert set(Study(opened).table["clip"]) == {"001", "002"}
    assert ablation_table(opened).clips.item() == 2
    assert "001 (" in page


def test_ablation_by_number_shows_the_answer_that_is_left_without_the_cue(run):
    """Silenced in the decoder, the model answers one number whatever it hears: right for one half,
    wrong for the other."""
    opened = open_run(run)
    mean, by_number = ablation_table(opened), ablation_table(opened, by="number")
    assert set(by_number.number) == {"sg", "pl"}
    assert set(by_number.clips) == {2}
    trained = mean[mean.init == "trained"]
    for column in ("nothing ablated", "cue ablated in decoder"):
        assert by_number[column].mean() == trained[column].item()
    assert set(by_number["cue ablated in decoder"]) == {0, 100}
    for column in ("template", "nothing of the kind"):
        assert ablation_table(opened, by=column).empty
    assert "Accuracy for singular and plural" in (run / "index.html").read_text(encoding="utf-8")
