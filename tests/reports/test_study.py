"""The study's page: what it says in words, which clips it shows, what it finds again in a
folder."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.statistics.random_twin_comparison import compare_with_twins
from speechmix.evaluation.statistics.twin_rank_test import TWINS_NEEDED
from speechmix.interfaces.cli import main
from speechmix.mixing.maps.numerics import STRENGTH_FLOOR
from speechmix.reporting.pages.clip_card import clip_card
from speechmix.reporting.pages.column_legend import explain_columns
from speechmix.reporting.pages.result_sentences import format_twins, result_sentences
from speechmix.reporting.pages.run_page import report
from speechmix.reporting.pages.study_clips import choose_shown_clips
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.study_tables import (
    KEYS,
    clip_values,
    format_layer_claims,
    main_rows,
    percent_table,
)
from speechmix.reporting.pages.table_format import format_contribution_table
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_clips import read_clip_maps, read_stored_clip
from tests.reports.synthetic_runs import WHOLE_STACK_GAIN, synthetic_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic_run(tmp_path_factory.mktemp("study") / "run", clips=20, twins=TWINS_NEEDED)


@pytest.fixture(scope="module")
def run(folder):
    return open_run(folder)


@pytest.fixture(scope="module")
def table(run):
    return Study(run).table


def test_a_run_is_found_again_as_it_was(run, folder):
    assert run.done == 6 * 2  # six clips with maps, trained and random
    assert run.skipped == [{"clip": "broken", "model": "", "reason": "no such file"}]
    maps = read_clip_maps(run, "clip_0001")
    assert list(maps) == [("synthetic", "trained", None), ("synthetic", "random", 0)]
    clip = read_stored_clip(run, "clip_0001", maps)
    assert (clip.words[clip.cue].text, clip.words[clip.target].text) == ("les", "livres")
    assert clip.duration == pytest.approx(1.0)
    with pytest.raises(InputError, match="holds no run"):
        open_run(folder / "maps")


def test_audio_that_was_moved_is_found_in_a_folder_that_is_named(tmp_path):
    run = open_run(synthetic_run(tmp_path / "run", clips=2))
    shutil.move(run.out / "sound", tmp_path / "elsewhere")
    maps = read_clip_maps(run, "clip_0000")
    assert read_stored_clip(run, "clip_0000", maps) is None
    assert read_stored_clip(
        run, "clip_0000", maps, audio=tmp_path / "elsewhere"
    ).duration == pytest.approx(1.0)


def test_headline_holds_the_planted_difference_with_all_that_belongs_to_it(run):
    row = Study(run).headline.set_index("measure").loc["value_zeroing"]
    assert row.difference == pytest.approx(100 * WHOLE_STACK_GAIN, abs=3)
    assert row.low < 100 * WHOLE_STACK_GAIN < row.high
    assert row.p == pytest.approx(2 / (TWINS_NEEDED + 1))
    assert row.claim == "more"
    assert row.effect > 3
    assert row.positive == 1
    assert row.length_matched == pytest.approx(15)
    assert row.groups == 10  # pairs
    assert (row.more_in, row.less_in) == ("2", "")
    assert row.twin_low < row.random < row.twin_high < row.trained
    assert (row.twins, row.clips) == (TWINS_NEEDED, 20)


def test_layers_and_whole_stacks_are_corrected_together(run):
    study = Study(run)
    attention = percent_table(study.table).query("measure == 'attention'")
    alone = pd.concat(
        [
            compare_with_twins(of_layer, by=[*KEYS, "layer"], group="group")
            for _, of_layer in attention.groupby("layer")
        ]
    )
    rows = study.layers.query("measure == 'attention'").sort_values("layer")
    assert rows.difference.tolist() == pytest.approx(alone.difference.tolist())
    assert (rows.p.to_numpy() >= alone.p.to_numpy()).all()
    assert len(study.cells) == len(study.layers) + len(study.headline) == 2 * (4 + 1)


def test_the_layer_that_differs_is_named_and_no_other(run):
    found = format_layer_claims(Study(run).layers)
    assert found["more than untrained"].tolist() == ["2", "2"]
    assert found["less than untrained"].tolist() == ["none", "none"]


def test_a_stack_whose_sources_move_nothing_is_not_claimed(run):
    contributions = run.contributions.assign(mixing_strength=STRENGTH_FLOOR / 2)
    study = Study(dataclasses.replace(run, contributions=contributions))
    assert set(study.cells.claim) == {""}
    assert set(study.headline.difference.round()) != {0}
    assert (
        "changes the target's representation by only 0.5 % (minimum 1 %), so the cue's share "
        "there is not tested" in result_sentences(study.headline)[0]
    )


def test_p_is_shown_as_people_write_it(run):
    found = format_contribution_table(Study(run).headline)
    assert found.p.tolist() == ["0.050", "0.050"]
    assert {"95 % interval", "lowest to highest twin", "effect size d", "above zero (%)"} <= set(
        found
    )
    assert found["more in layers"].tolist() == ["2", "2"]
    assert not {"side", "low", "twin_low", "less in layers"} & set(found)
    assert format_contribution_table(pd.DataFrame({"p": [0.0001]})).p.tolist() == ["< 0.001"]


ROW = {
    "side": "all",
    "model": "m",
    "stack": "encoder",
    "measure": "value_zeroing",
    "trained": 50.0,
    "random": 20.0,
    "twins": 39,
    "twin_low": -1.0,
    "twin_high": 41.0,
    "difference": 30.0,
    "low": 25.0,
    "high": 35.0,
    "p": 0.0002,
    "claim": "more",
    "effect": 2.0,
    "positive": 0.9,
    "groups": 10,
    "length_matched": 21.0,
    "mixing_strength": 0.3,
    "more_in": "",
    "less_in": "",
}


def sentence(**changes):
    return result_sentences(pd.DataFrame([{**ROW, **changes}]))[0]


def test_sentences_say_more_less_and_inconclusive():
    for part in (
        "50.0 % to the target in the trained model, and 20.0 % in 39 untrained twins",
        "(range: 0.0 to 41.0 %)",
        "+30.0 percentage points",
        "25.0 to 35.0",
        "p < 0.001",
        "9 of 10 groups",
        "large effect",
        "contributes more than in untrained models",
        "would be 21.0 %",
    ):
        assert part in sentence()
    assert "contributes less than in untrained models" in sentence(claim="less")
    assert "The result is inconclusive" in sentence(claim="")
    single = sentence(claim="", more_in="2", less_in="5")
    assert (
        "inconclusive. The cue contributes significantly more in single layers and less in single "
        "layers." in single
    )
    assert "no untrained twin" in sentence(random=np.nan)
    assert "no trained model" in sentence(trained=np.nan)


def test_sentences_are_silent_where_the_test_is():
    unknown = dict.fromkeys(("twin_low", "twin_high", "low", "high", "p"), np.nan)
    alone = sentence(twins=1, claim="", **unknown)
    assert "With 1 untrained twin no difference can be significant (39 are needed)." in alone
    assert not {"interval", " p ", "nan"} & set(re.findall(r"interval| p |nan", alone))
    assert "With 10 untrained twins no difference can be significant (39 are needed)." in sentence(
        twins=10, claim=""
    )
    assert "With 7 groups of clips no difference is tested (8 are needed)." in sentence(
        groups=7, claim=""
    )
    assert "positive in 1 of 1 group;" in sentence(groups=1, positive=1.0, claim="", **unknown)


@pytest.mark.long  # in short: test_study_need
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"clips": 7, "twins": 39},
            "With 7 groups of clips no difference is tested (8 are needed)",
        ),
        (
            {"clips": 8, "twins": 10},
            "With 10 untrained twins no difference can be significant (39 are needed)",
        ),
    ],
)
def test_few_groups_or_few_twins_make_no_claim_on_the_page(tmp_path, options, reason):
    page = report(synthetic_run(tmp_path / "run", pairs=False, mapped=1, **options)).read_text(
        encoding="utf-8"
    )
    assert reason in page
    assert not re.search(r"contributes ([\d.]+ points )?(more|less) than", page)
    headline = pd.read_csv(tmp_path / "run" / "headline.csv")
    assert headline[["claim", "more_in", "less_in"]].isna().all(axis=None)
    assert headline.difference.gt(5).all()
    assert headline[["low", "high"]].isna().all(axis=None) == (options["clips"] < 8)


def test_the_page_says_how_many_twins_a_claim_needs():
    assert (
        "10 untrained twins: no difference can be significant, because p cannot be below 2 / 11"
        in (format_twins(10))
    )
    assert "39 untrained twins: enough for the test" in format_twins(39)
    assert "1 untrained twin: no difference can be significant. At least 39 twins" in format_twins(
        1
    )
    assert "nothing to compare a trained model with" in format_twins(0)


def test_the_legend_explains_groups_where_clips_share_something():
    table = format_contribution_table(pd.DataFrame([ROW]))
    *_, of_pairs = explain_columns(table, ties="the pair", twins=[39])
    *_, of_clips = explain_columns(table, ties="", twins=[39])
    assert format_twins(39) in of_pairs
    assert "groups" in of_pairs
    assert "groups" not in of_clips


@pytest.mark.long
def test_one_clip_is_no_plural(tmp_path):
    run = synthetic_run(tmp_path / "run", clips=2)
    clips = pd.read_csv(run / "clips.csv").assign(doubts=["too fast", ""])
    clips.to_csv(run / "clips.csv", index=False)
    assert "The word times of 1 clip may be wrong." in report(run).read_text(encoding="utf-8")


def test_most_median_least_and_asked_for_clips_are_shown(run, table):
    values = clip_values(table, main_rows(Study(run).headline).iloc[0]).difference.sort_values()
    names = choose_shown_clips(Study(run), ["clip_0000"])
    assert list(names)[:3] == [values.index[-1], values.index[10], values.index[0]]
    assert "clip_0000" in names
    with pytest.raises(InputError, match="no clip 'nobody'"):
        choose_shown_clips(Study(run), ["nobody"])


def test_a_card_keeps_to_its_size_by_leaving_out_layers_and_then_the_sound(tmp_path):
    run = open_run(
        synthetic_run(tmp_path / "run", clips=1, layers=40, text=" ".join("abcdefghijkl"))
    )
    maps = read_clip_maps(run, "clip_0000")
    clip = read_stored_clip(run, "clip_0000", maps)
    options = {"heading": "", "summary": "", "start": {"layer": 17}, "seconds": 1.0}
    whole = clip_card("clip_0000", clip, maps, max_bytes=10**7, **options)
    small = clip_card(
        "clip_0000",
        clip,
        maps,
        max_bytes=len(whole.sound) + len(whole.picture) + 30_000,
        **options,
    )
    assert whole.data["maps"][0]["layers"] == list(range(40))
    layers = small.data["maps"][0]["layers"]
    assert len(layers) < 40
    assert {0, 17, 39} <= set(layers)
    assert len(json.dumps(small.data)) < 60_000
    silent = clip_card("clip_0000", clip, maps, max_bytes=1000, **options)
    assert silent.sound == ""
    assert "to keep it small enough for e-mail" in silent.silence_reason


@pytest.mark.long
def test_figures_and_tables_lie_beside_the_page(folder):
    page = report(folder, title="Again", notes=["SYNTHETIC"], published=True, group="clip")
    text = page.read_text(encoding="utf-8")
    assert "<title>Again</title>" in text
    assert "digitised" in text.lower()
    assert "Numbers of this run for the target word, as published" in text
    for name in ("published_contribution", "published_heat_map", "published_probing"):
        assert (folder / f"{name}.png").stat().st_size > 5_000
    for name in (
        "cue_contribution",
        "cue_heat_map",
        "cue_difference",
        "cue_distribution",
        "by_number",
    ):
        assert (folder / f"{name}.png").stat().st_size > 5_000
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert pd.read_csv(folder / "layers.csv").groups.eq(20).all()
    again = report(folder)
    assert "<title>Again</title>" in again.read_text(encoding="utf-8")  # the title of before


@pytest.mark.long
def test_a_thousand_clips_stay_below_ten_megabytes(tmp_path):
    run = synthetic_run(
        tmp_path / "run", clips=1000, mapped=1000, seconds=6.0, measures=("value_zeroing",)
    )
    page = report(run)
    assert page.stat().st_size < 10_000_000
    text = page.read_text(encoding="utf-8")
    assert text.count("<tr>") > 1000
    assert text.count("data:audio/wav") == 3


@pytest.mark.long
def test_from_the_shell(folder, tmp_path, capsys):
    assert (
        main(
            [
                "report",
                str(folder),
                "--clip",
                "clip_0003",
                "--out",
                str(tmp_path / "page.html"),
                "--title",
                "T",
            ]
        )
        == 0
    )
    assert "page:" in capsys.readouterr().out
    assert 'id="clip-clip_0003"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err
