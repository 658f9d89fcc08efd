"""The study's page: what it says in words, which clips it shows, what it finds again in a folder."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from speechmix.cli import main
from speechmix.errors import InputError
from speechmix.evaluation.statistics import corrected
from speechmix.evaluation.twins import combined_p
from speechmix.reports.clip_card import clip_card
from speechmix.reports.study import Study
from speechmix.reports.study_clips import reasons_to_show
from speechmix.reports.study_page import report
from speechmix.reports.study_tables import clip_values, headline, layer_statistics, main_rows, shown, shown_layers
from speechmix.reports.wording import method, said_twins, sentences
from speechmix.storage.reading import open_run
from speechmix.storage.stored_clips import clip_of, maps_of_clip
from tests.reports.synthetic_runs import synthetic_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic_run(tmp_path_factory.mktemp("study") / "run", clips=20)


@pytest.fixture(scope="module")
def run(folder):
    return open_run(folder)


@pytest.fixture(scope="module")
def table(run):
    return Study(run).table


def test_a_run_is_found_again_as_it_was(run, folder):
    assert run.done == 6 * 2  # six clips with maps, trained and random
    assert run.skipped == [{"clip": "broken", "model": "", "reason": "no such file"}]
    maps = maps_of_clip(run, "clip_0001")
    assert list(maps) == [("synthetic", "trained", None), ("synthetic", "random", 0)]
    clip = clip_of(run, "clip_0001", maps)
    assert (clip.words[clip.cue].text, clip.words[clip.target].text) == ("les", "livres")
    assert clip.duration == pytest.approx(1.0)
    with pytest.raises(InputError, match="holds no run"):
        open_run(folder / "maps")


def test_audio_that_was_moved_is_found_in_a_folder_that_is_named(tmp_path):
    run = open_run(synthetic_run(tmp_path / "run", clips=2))
    shutil.move(run.out / "sound", tmp_path / "elsewhere")
    maps = maps_of_clip(run, "clip_0000")
    assert clip_of(run, "clip_0000", maps) is None
    assert clip_of(run, "clip_0000", maps, audio=tmp_path / "elsewhere").duration == pytest.approx(1.0)


def test_headline_holds_the_planted_difference_with_all_that_belongs_to_it(table):
    row = headline(table).set_index("measure").loc["value_zeroing"]
    assert row.difference == pytest.approx(30, abs=3)
    assert row.low < 30 < row.high + 3
    assert row.p < 0.01
    assert row.effect > 3
    assert row.positive == 1
    assert row.length_matched == pytest.approx(15)
    assert row.groups == 10  # pairs
    assert row.layer == "2"
    assert row.twin_low < row.random < row.twin_high < row.trained
    assert (row.twins, row.clips) == (5, 20)
    with pytest.raises(InputError, match="'best layer' or 'all layers', found 'best'"):
        headline(table, layers="best")


def test_twins_are_asked_for_some_layer_where_they_chose_the_layer(table):
    row = headline(table).set_index("measure").loc["value_zeroing"]
    assert row.p_twins == pytest.approx(combined_p(layer_statistics(table).query("measure == 'value_zeroing'").p_twins))
    assert row.p == max(row.p_clips, row.p_twins)
    mean = headline(table, layers="all layers").set_index("measure").loc["value_zeroing"]
    assert mean.p == max(mean.p_clips, mean.p_twins)


def test_q_of_the_page_is_over_both_headlines(run):
    best, mean = Study(run).headlines
    np.testing.assert_allclose([*best.q, *mean.q], corrected([*best.p, *mean.p]))
    assert set(best.claim) == {"more"}


def test_the_layer_that_differs_is_named_and_no_other(table):
    found = shown_layers(layer_statistics(table))
    assert found["trained above random"].tolist() == ["2", "2"]
    assert found["trained below random"].tolist() == ["none", "none"]


def test_p_is_shown_as_people_write_it(table):
    found = shown(headline(table))
    assert all(re.fullmatch(r"< 0.001|0\.00\d", p) for p in found.p)
    assert {"95 % interval", "a new untrained model", "effect size d", "above zero (%)"} <= set(found)
    assert not {"side", "low", "p_clips", "clips_low"} & set(found)


ROW = {
    "side": "all", "model": "m", "stack": "encoder", "measure": "value_zeroing", "trained": 50.0, "random": 20.0, "twins": 5,
    "twin_low": -1.0, "twin_high": 41.0, "difference": 30.0, "low": 25.0, "high": 35.0, "p": 0.0002, "q": 0.01, "claim": "more",
    "effect": 2.0, "positive": 0.9, "groups": 10, "length_matched": 21.0,
}  # fmt: skip


def sentence(**changes):
    return sentences(pd.DataFrame([{**ROW, **changes}]))[0]


def test_sentences_say_more_less_and_cannot_tell():
    for part in ("50.0 % in the trained model, 20.0 % in its 5 random twins", "a new untrained model would give 0.0 to 41.0 %",
                 "+30.0 points", "25.0 to 35.0", "p < 0.001, q = 0.010", "9 of 10 groups", "effect large", "counts for more",
                 "would get 21.0 %"):  # fmt: skip
        assert part in sentence()
    assert "counts for less" in sentence(claim="less")
    assert "Nothing is claimed" in sentence(claim="")
    assert "no random twin" in sentence(random=np.nan)
    assert "no trained model" in sentence(trained=np.nan)


def test_sentences_are_silent_where_the_test_is():
    unknown = dict.fromkeys(("twin_low", "twin_high", "low", "high", "p", "q"), np.nan)
    alone = sentence(twins=1, claim="", **unknown)
    assert "With one random twin nothing is claimed." in alone
    assert not {"interval", " p ", " q ", "nan"} & set(re.findall(r"interval| [pq] |nan", alone))
    assert "With 3 groups nothing is claimed" in sentence(groups=3, p=0.25, q=0.3, claim="")
    assert "above zero in 1 of 1 group;" in sentence(groups=1, positive=1.0, claim="", **unknown)


@pytest.mark.long  # in short: test_study_need
def test_three_clips_make_no_claim_on_the_page(tmp_path):
    page = report(synthetic_run(tmp_path / "run", clips=3, pairs=False, mapped=1)).read_text(encoding="utf-8")
    assert "With 3 groups nothing is claimed" in page
    assert "counts for" not in page
    assert pd.read_csv(tmp_path / "run" / "headline.csv").claim.isna().all()


def test_the_page_says_how_many_twins_a_claim_needs():
    assert "5 random twins: to reach p < 0.05 a difference must be 3.0 of their standard deviations" in method(
        "", [5, 5]
    )
    assert "it takes two at least" in method("", [1])
    assert "nothing to hold a trained model against" in said_twins(0)
    assert "swapped at random within groups" in method("the pair", [3])
    assert "permutation test over clips" in method("", [3])


@pytest.mark.long
def test_one_clip_is_no_plural(tmp_path):
    run = synthetic_run(tmp_path / "run", clips=2)
    clips = pd.read_csv(run / "clips.csv").assign(doubts=["too fast", ""])
    clips.to_csv(run / "clips.csv", index=False)
    assert "The word times of 1 clip are doubtful." in report(run).read_text(encoding="utf-8")


def test_most_median_least_and_asked_for_clips_are_shown(run, table):
    known = headline(table)
    values = clip_values(table, main_rows(known).iloc[0]).difference.sort_values()
    names = reasons_to_show(Study(run), ["clip_0000"])
    assert list(names)[:3] == [values.index[-1], values.index[10], values.index[0]]
    assert "clip_0000" in names
    with pytest.raises(InputError, match="no clip 'nobody'"):
        reasons_to_show(Study(run), ["nobody"])


def test_a_card_keeps_to_its_size_by_leaving_out_layers_and_then_the_sound(tmp_path):
    run = open_run(synthetic_run(tmp_path / "run", clips=1, layers=40, text=" ".join("abcdefghijkl")))
    maps = maps_of_clip(run, "clip_0000")
    clip = clip_of(run, "clip_0000", maps)
    options = {"heading": "", "facts": "", "start": {"layer": 17}, "seconds": 1.0}
    whole = clip_card("clip_0000", clip, maps, most_bytes=10**7, **options)
    small = clip_card("clip_0000", clip, maps, most_bytes=len(whole.sound) + len(whole.picture) + 30_000, **options)
    assert whole.data["maps"][0]["layers"] == list(range(40))
    layers = small.data["maps"][0]["layers"]
    assert len(layers) < 40
    assert {0, 17, 39} <= set(layers)
    assert len(json.dumps(small.data)) < 60_000
    silent = clip_card("clip_0000", clip, maps, most_bytes=1000, **options)
    assert silent.sound == ""
    assert "too large" in silent.silent


@pytest.mark.long
def test_figures_and_tables_lie_beside_the_page(folder):
    page = report(folder, title="Again", notes=["SYNTHETIC"], published=True, group="clip")
    text = page.read_text(encoding="utf-8")
    assert "<title>Again</title>" in text
    assert "digitised" in text.lower()
    assert "one&#39;s own of the target word, as the published" in text
    for name in ("published_contribution", "published_heat_map", "published_probing"):
        assert (folder / f"{name}.png").stat().st_size > 5_000
    for name in ("cue_contribution", "cue_heat_map", "cue_difference", "cue_distribution", "by_number"):
        assert (folder / f"{name}.png").stat().st_size > 5_000
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert pd.read_csv(folder / "layers.csv").groups.eq(20).all()
    again = report(folder)
    assert "<title>Again</title>" in again.read_text(encoding="utf-8")  # the title of before


@pytest.mark.long
def test_a_thousand_clips_stay_below_ten_megabytes(tmp_path):
    run = synthetic_run(tmp_path / "run", clips=1000, mapped=1000, seconds=6.0, measures=("value_zeroing",))
    page = report(run)
    assert page.stat().st_size < 10_000_000
    text = page.read_text(encoding="utf-8")
    assert text.count("<tr>") > 1000
    assert text.count("data:audio/wav") == 3


@pytest.mark.long
def test_from_the_shell(folder, tmp_path, capsys):
    assert (
        main(["report", str(folder), "--clip", "clip_0003", "--out", str(tmp_path / "page.html"), "--title", "T"]) == 0
    )
    assert "page:" in capsys.readouterr().out
    assert 'id="clip-clip_0003"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err
