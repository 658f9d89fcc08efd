"""The script that fits a tuned lens: maps bring held-out outputs closer, and groups stay apart."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled
from tests.models import trained

PATH = Path(__file__).parents[2] / "recipes" / "fit_tuned_lens.py"
spec = importlib.util.spec_from_file_location("fit_tuned_lens", PATH)
fit_tuned_lens = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fit_tuned_lens)

CLIPS = [clip for clip in bundled.clips() if clip.meta["control"] == "no"][:20]


def test_maps_bring_held_out_outputs_closer_and_are_read_again(tmp_path):
    model = trained("tiny-french-ctc")
    tuned, check = fit_tuned_lens.fit_tuned_lens(model, CLIPS, epochs=2)
    assert check["layer"].tolist() == [-1, 0, 1, 2]
    assert check["tuned"].mean() < check["logit"].mean()
    result = speechmix.lens(model, CLIPS[0], tuned=tuned.save(tmp_path / "lens.npz"))
    plain = speechmix.lens(model, CLIPS[0])
    assert result.texts[-1] == plain.texts[-1]
    assert (result.margins[:-1] != plain.margins[:-1]).all()


def test_without_training_it_is_the_logit_lens():
    model = trained("tiny-french-ctc")
    tuned, check = fit_tuned_lens.fit_tuned_lens(model, CLIPS, epochs=0)
    np.testing.assert_allclose(check["tuned"], check["logit"], rtol=1e-5)
    assert torch.equal(torch.from_numpy(tuned.maps[0][:-1]), torch.eye(144))


def test_parts_share_no_group_and_few_groups_are_refused():
    parts = fit_tuned_lens.split_clips(CLIPS, seed=0)
    pairs = [{clip.meta["pair"] for clip in part} for part in parts]
    assert sum(map(len, parts)) == len(CLIPS)
    assert sum(map(len, pairs)) == len(set.union(*pairs))
    with pytest.raises(InputError, match="at least 5 groups"):
        fit_tuned_lens.split_clips(CLIPS[:4], seed=0)


def test_the_command_writes_maps_and_check(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_tuned_lens.bundled, "clips", lambda: CLIPS)
    out = tmp_path / "new" / "lens.npz"
    arguments = ["bundled:tiny-french-ctc", "--clips", "bundled:clips", "--epochs", "0"]
    fit_tuned_lens.main([*arguments, "--device", "cpu", "--out", str(out)])
    assert out.is_file()
    assert list(pd.read_csv(out.with_suffix(".csv"))) == ["layer", "logit", "tuned"]
