"""The recipe of phones: what it mutes, what it says, what it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.test_docs import module_at

pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
recipe = module_at(Path(__file__).resolve().parents[2] / "recipes" / "phones.py")


def test_only_the_muted_phone_is_silent():
    clip = recipe.speak_clip("leurs chats dorment", voice="fr+f4", cue=2, target=0, foil="leur")
    verb = [phone for phone in clip.tiers["phone"] if phone.start >= clip.words[2].start - 1e-6]
    assert [phone.text for phone in verb] == ["d", "ɔ", "ʁ", "m"]
    before = clip.audio(16_000)
    for position in (0, -1):
        after = recipe.mute_phone(clip, 2, position).audio(16_000)
        first, stop = (round(16_000 * t) for t in (verb[position].start, verb[position].end))
        assert not after[first:stop].any()
        assert before[first:stop].any()
        np.testing.assert_array_equal(after[:first], before[:first])
        np.testing.assert_array_equal(after[stop:], before[stop:])


def test_determiners_end_in_the_consonant_that_is_asked_about():
    clips = recipe.liaison_clips(10)
    ends = {}
    for clip in clips:
        phones = [p.text for p in clip.tiers["phone"] if p.end <= clip.words[0].end + 1e-6]
        ends.setdefault(clip.meta["consonant"], set()).add(phones[-1])
    assert ends == {"liaison": {"z"}, "always there": {"t"}}


@pytest.mark.long
def test_it_runs_and_the_final_consonant_decides(tmp_path):
    assert recipe.main(["--out", str(tmp_path), "--items", "2", "--twins", "2"]) == 0
    margins = pd.read_csv(tmp_path / "final_consonants.csv").groupby(["model", "sound"])["margin"]
    means = margins.mean().unstack()
    assert (means["as it is"] > 0).all()
    assert (means["last consonant muted"] < 0).all()
    assert (means["first consonant muted"] > means["last consonant muted"]).all()
    for name in ("assimilation", "liaison"):
        shares = pd.read_csv(tmp_path / f"{name}_sources.csv")
        assert shares.groupby(["layer", shares.columns[0]])["share"].sum().tolist() == (
            pytest.approx([100.0] * 10)
        )
    assert (tmp_path / "phones.png").stat().st_size > 10_000
