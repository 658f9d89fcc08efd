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
from scipy.stats import t as student

from speechmix import Clip
from speechmix.errors import InputError
from speechmix.evaluation.statistics.claim_rule import DEFAULT_TWINS
from speechmix.interfaces.cli import main
from speechmix.mixing.maps.numerics import STRENGTH_FLOOR
from speechmix.reporting.pages.clip_card import clip_card
from speechmix.reporting.pages.result_sentences import (
    explain_columns,
    format_twins,
    result_sentences,
)
from speechmix.reporting.pages.run_page import report
from speechmix.reporting.pages.study_clips import choose_shown_clips, clip_cards
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.study_tables import (
    clip_values,
    main_rows,
)
from speechmix.reporting.pages.table_format import format_contribution_table
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_maps import read_clip_maps, read_stored_clip
from tests.reports.synthetic_runs import WHOLE_STACK_GAIN, synthetic_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic_run(tmp_path_factory.mktemp("study") / "run", clips=32, twins=DEFAULT_TWINS)


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
    assert row.claim == "more"
    assert row.length_matched == pytest.approx(15)
    assert row.groups == 16  # pairs
    assert row.twin_low < row.random < row.twin_high < row.trained
    assert (row.twins, row.clips) == (DEFAULT_TWINS, 32)


def test_only_whole_stacks_by_value_zeroing_are_claimed(run):
    study = Study(run)
    assert study.headline.set_index("measure").claim.to_dict() == {
        "value_zeroing": "more",
        "attention": "",
    }
    assert set(study.layers.claim) == {""}
    layer = study.layers.query("measure == 'value_zeroing' and layer == 2").iloc[0]
    assert layer.low > 0  # a band that holds for the four layers of the curve
    assert layer["rows"] == 4
    assert len(study.cells) == len(study.layers) + len(study.headline) == 2 * (4 + 1)


def test_a_stack_whose_sources_move_nothing_is_not_claimed(run):
    contributions = run.contributions.assign(mixing_strength=STRENGTH_FLOOR / 2)
    study = Study(dataclasses.replace(run, contributions=contributions))
    assert set(study.cells.claim) == {""}
    assert set(study.headline.difference.round()) != {0}
    assert (
        "changes the target's representation by only 0.5 % (minimum 1 %), so nothing is "
        "concluded from the cue's share there" in result_sentences(study.headline)[0]
    )


def test_the_table_has_all_that_a_pocket_calculator_needs(run):
    headline = Study(run).headline
    found = format_contribution_table(headline)
    assert {"difference", "sd over groups", "groups", "sd of twins", "twins"} <= set(found)
    assert found["conclusion"].tolist() == ["more", ""]
    assert not {"side", "low", "twin_low", "rows", "p"} & set(found)
    row = headline.set_index("measure").loc["value_zeroing"]
    clips = student.ppf(0.975, row.groups - 1) * row.group_sd / np.sqrt(row.groups)
    twins = student.ppf(0.975, row.twins - 1) * row.twin_sd * np.sqrt(1 + 1 / row.twins)
    reach = np.hypot(clips, twins)  # but for Hall's correction
    assert (row.high - row.low) / 2 == pytest.approx(reach, rel=0.1)


ROW = {
    "side": "all",
    "model": "m",
    "stack": "encoder",
    "measure": "value_zeroing",
    "trained": 50.0,
    "random": 20.0,
    "twins": 9,
    "twin_sd": 1.5,
    "twin_low": -1.0,
    "twin_high": 41.0,
    "difference": 30.0,
    "low": 25.0,
    "high": 35.0,
    "rows": 3,
    "group_sd": 12.0,
    "claim": "more",
    "groups": 20,
    "length_matched": 21.0,
    "mixing_strength": 0.3,
}


def sentence(**changes):
    return result_sentences(pd.DataFrame([{**ROW, **changes}]))[0]


def test_sentences_say_more_less_and_inconclusive():
    for part in (
        "50.0 % to the target in the trained model, and 20.0 % in 9 untrained twins",
        "+30.0 percentage points (95 % interval to one more untrained model: 25.0 to 35.0)",
        "contributes more than in untrained models",
        "would be 21.0 %",
    ):
        assert part in sentence()
    assert "contributes less than in untrained models" in sentence(claim="less")
    open_result = sentence(claim="", low=-5.0, high=35.0)
    assert "The interval includes zero, so the result is inconclusive." in open_result
    assert re.search(r"A difference of [\d.]+ points or more would be found", open_result)
    assert "no untrained twin" in sentence(random=np.nan)
    assert "no trained model" in sentence(trained=np.nan)


def test_sentences_say_what_is_missing():
    unknown = dict.fromkeys(("twin_low", "twin_high", "low", "high"), np.nan)
    alone = sentence(twins=1, claim="", **unknown)
    assert "Nothing is concluded from 1 untrained twin: 4 more are needed (5)." in alone
    assert not {"interval", "nan"} & set(re.findall(r"interval|nan", alone))
    assert "from 4 untrained twins: 1 more is needed (5)." in sentence(twins=4, claim="")
    assert "from 7 independent groups of clips: 8 more are needed (15)." in sentence(
        groups=7, claim=""
    )


@pytest.mark.long  # in short: test_study_need
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"clips": 7, "twins": 9},
            "Nothing is concluded from 7 independent groups of clips: 8 more are needed (15)",
        ),
        (
            {"clips": 15, "twins": 4},
            "Nothing is concluded from 4 untrained twins: 1 more is needed (5)",
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
    assert headline[["claim"]].isna().all(axis=None)
    assert headline.difference.gt(5).all()
    assert headline[["low", "high"]].isna().all(axis=None) == (options["clips"] < 8)


def test_the_page_says_how_many_twins_a_conclusion_needs():
    assert "4 untrained twins: nothing is concluded." in format_twins(4)
    assert "9 untrained twins: enough for a conclusion" in format_twins(9)
    assert "needs at least 5 twins" in format_twins(1)
    assert "nothing to compare a trained model with" in format_twins(0)


def test_the_legend_states_the_interval_and_what_it_does_not_cover():
    headline = pd.DataFrame([ROW])
    *_, of_pairs = explain_columns(headline, ties="the pair")
    *_, of_clips = explain_columns(headline, ties="")
    assert format_twins(9) in of_pairs
    assert "over groups" in of_pairs
    assert "over clips" in of_clips
    assert "intervals of the 3 rows" in of_pairs
    assert "does not cover kinds of clips" in of_pairs


@pytest.mark.long
def test_one_clip_is_no_plural(tmp_path):
    run = synthetic_run(tmp_path / "run", clips=2)
    clips = pd.read_csv(run / "clips.csv").assign(doubts=["too fast", ""])
    clips.to_csv(run / "clips.csv", index=False)
    assert "The word times of 1 clip may be wrong." in report(run).read_text(encoding="utf-8")


def test_most_median_least_and_asked_for_clips_are_shown(run, table):
    values = clip_values(table, main_rows(Study(run).headline).iloc[0]).difference.sort_values()
    names = choose_shown_clips(Study(run), ["clip_0000"])
    assert list(names)[:3] == [values.index[-1], values.index[16], values.index[0]]
    assert "clip_0000" in names
    with pytest.raises(InputError, match="no clip 'nobody'"):
        choose_shown_clips(Study(run), ["nobody"])


def test_a_clip_whose_sound_is_silent_says_so(tmp_path):
    run = open_run(synthetic_run(tmp_path / "run", clips=2))
    name = next(iter(choose_shown_clips(Study(run), [])))
    clip = read_stored_clip(run, name, read_clip_maps(run, name))
    first = Clip.from_array(clip.audio(16_000) * 1e-6, 16_000, name=name, words=clip.words)
    headings = [card.heading for card in clip_cards(Study(run), clips=[first])]
    assert re.fullmatch(rf"{name} \(highest .*, silent sound\)", headings[0])
    assert "silent" not in headings[1]


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
    assert (
        pd.read_csv(folder / "layers.csv").groups.eq(32).all()
    )  # clips, as there are no pairs now
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
