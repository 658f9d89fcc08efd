"""Means of the ablation of speech: counted by hand, by template and number, against twins, another
word and chance."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.statistics.claim_rule import DEFAULT_TWINS, FEWEST_TWINS
from speechmix.extensions.speech_ablation.ablated_speech import speech_ablation_figure
from speechmix.extensions.speech_ablation.speech_ablation import summarize_speech_ablation

WAY = {"condition": "sound", "fill": "zeros", "reading": "arg-max", "aggregation": "mean"}


def table(
    cue: float,
    twins: float,
    *,
    other: float = 0.0,
    noise: float = 0.0,
    clips: int = 12,
    seed: int = 0,
    count: int = 4,
) -> pd.DataFrame:
    """Drops of a trained model and `count` twins, of clips of two templates and numbers; each clip
    has its own noise."""
    rng, rows = np.random.default_rng(seed), []
    for clip in range(clips):
        facts = {"model": "m", "clip": f"c{clip}", "group": f"g{clip // 2}", "control": "no"}
        facts |= {"template": ("a", "b")[clip // 2 % 2], "number": ("sg", "pl")[clip % 2]}
        for init, seeds, drop in (("trained", [None], cue), ("random", range(count), twins)):
            for one in seeds:
                row = {**facts, **WAY, "init": init, "seed": one}
                rows.append(
                    {**row, "silenced": "cue", "drop": drop + noise * rng.standard_normal()}
                )
                rows.append(
                    {**row, "silenced": "another word", "drop": other if init == "trained" else 0.0}
                )
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def test_drops_are_means_in_points_for_all_and_by_template_and_number():
    drops = table(0.25, 0.01, other=0.05)
    drops.loc[
        (drops.number == "pl") & (drops.init == "trained") & (drops.silenced == "cue"), "drop"
    ] = 0.75
    means = summarize_speech_ablation(drops)
    cue = means[means.silenced == "cue"].set_index(["template", "number"])
    assert set(cue.index) == set(itertools.product(("all", "a", "b"), ("all", "sg", "pl")))
    assert cue.trained["all", "all"] == pytest.approx(50)
    assert cue.trained["a", "pl"] == pytest.approx(75)
    assert cue.random["all", "sg"] == pytest.approx(1)
    assert cue.over_other["all", "sg"] == pytest.approx(20)
    assert cue.clips["a", "sg"] == 3
    assert means[means.silenced != "cue"].over_other.isna().all()


def test_a_drop_beyond_twins_is_claimed_and_a_twin_that_poses_as_trained_is_not():
    drops = table(0.3, 0.0, noise=0.01, clips=32, count=DEFAULT_TWINS)
    claimed = summarize_speech_ablation(drops, parts=()).set_index("silenced").claim
    assert claimed["cue"] == "more"
    few = (
        drops[drops["seed"].fillna(0) < FEWEST_TWINS - 1],
        drops[drops["clip"].isin([f"c{number}" for number in range(28)])],  # 14 groups
        table(0.0, 0.0, noise=0.01, clips=32, count=DEFAULT_TWINS),
    )
    assert not any((summarize_speech_ablation(part, parts=()).claim != "").any() for part in few)


def test_clips_of_the_control_are_left_out_and_margins_are_in_nats():
    drops = table(0.3, 0.0).assign(control="yes")
    assert summarize_speech_ablation(drops).empty
    margins = table(3.0, 0.0).assign(reading="margin", aggregation="")
    means = summarize_speech_ablation(margins, parts=())
    assert set(means.unit) == {"nats"}
    assert means[means.silenced == "cue"].trained.tolist() == [3.0]


def test_the_figure_has_a_panel_for_each_model_and_word_on_one_scale_and_names_what_it_shows():
    means = summarize_speech_ablation(table(0.3, 0.0, noise=0.01))
    figure = speech_ablation_figure(means)
    drawn = figure.axes
    assert [ax.get_title() for ax in drawn] == ["without the cue", "without another word"]
    assert len({ax.get_ylim() for ax in drawn}) == 1
    assert "mean over sub-tokens" in figure.get_suptitle()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "all clips",
        "a, sg",
        "a, pl",
        "b, sg",
        "b, pl",
        "untrained",
        "one more untrained model",
    ]
    narrow = speech_ablation_figure(means, narrow=True)
    assert [ax.get_title() for ax in narrow.axes] == [
        "m: without the cue",
        "m: without another word",
    ]
    assert narrow.get_figwidth() < 4
    with pytest.raises(InputError, match="no mean of the reading 'margin'"):
        speech_ablation_figure(means, reading="margin")
