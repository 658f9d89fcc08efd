"""Trajectories: a run of checkpoints, added to, in shards, stopped; its tables, page, figures and command.

The checkpoints are states between an untrained twin and the bundled Whisper-style model.
"""

from __future__ import annotations

import json
import os
import random
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import speechmix
from speechmix import plots
from speechmix.errors import InputError
from speechmix.extensions.probing.fits import ProbeSettings
from speechmix.extensions.trajectories.trajectory_runs import Trajectory
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.reporting.pages.run_page import report
from speechmix.runs.kinds import map_results
from tests.reliability.kills import Tally, count_calls, snapshot, to_the_end

NAME = "tiny-french-whisper"
CLIPS = [clip for clip in bundled.clips() if clip.foil and clip.meta["side"] == "left"][:3]
QUIET = {"progress": False, "report": lambda line: None, "load_options": {"device": "cpu"}}
FAST = {"measures": ["attention"], "stacks": ["decoder", "cross"]}


def write_training(folder, shares, *, seed=0):
    """Write checkpoints: step s has the share of the trained weights that stands at s."""
    start, end = (
        speechmix.load(bundled.models()[NAME], device="cpu", init=init, seed=seed_of).module
        for init, seed_of in (("random", seed), ("trained", None))
    )
    first, last = start.state_dict(), end.state_dict()
    for step, share in shares.items():
        path = folder / f"checkpoint-{step}"
        shutil.copytree(
            bundled.models()[NAME],
            path,
            ignore=lambda _, names: [n for n in names if "weights" in n],
        )
        mixed = {name: torch.lerp(first[name], last[name], share) for name in first}
        start.load_state_dict(mixed)
        start.save_pretrained(path)
    return folder


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    shares = {0: 0.0, 500: 0.0, 1000: 1.0, 2000: 1.0}
    return write_training(tmp_path_factory.mktemp("trained") / "seed-0", shares)


@pytest.fixture(scope="module")
def finished(training, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    return speechmix.trajectory(training, CLIPS, out, twins=2, **FAST, **QUIET)


def numbers(result):
    return result.run.ablation.drop(columns="fingerprint").sort_values(
        ["model", "clip", "source", "ablated", "layer"], ignore_index=True
    )


def test_curves_have_a_row_for_each_step_and_layer(finished):
    curves = finished.curves
    assert set(curves["step"]) == {0, 500, 1000, 2000}
    assert set(curves["training"]) == {"seed-0"}
    contribution = curves[curves["quantity"] == "contribution"]
    assert set(contribution["stack"]) == {"decoder", "cross"}
    assert set(contribution["layer"]) == {-1, 0, 1, 2}
    assert contribution["twin_low"].notna().all()
    right = curves[curves["quantity"] == "right"].set_index("step")["value"]
    assert right[2000] == 1.0
    files = [finished.run.out / f"trajectory{end}.csv" for end in ("", "_onsets", "_leads")]
    assert pd.read_csv(files[0])["step"].nunique() == 4
    assert all(path.is_file() for path in files)


def test_values_are_those_of_the_functions(finished, training):
    model = speechmix.load(training / "checkpoint-2000", device="cpu")
    rows = [speechmix.ablate(model, clip).set_index("ablated")["margin"] for clip in CLIPS]
    lost = pd.Series([row["none"] - row["decoder"] for row in rows])
    groups = [clip.meta["noun"] for clip in CLIPS]
    curves = finished.curves
    is_cell = (curves["quantity"] == "need") & (curves["stack"] == "decoder")
    row = curves[is_cell & (curves["layer"] == -1) & (curves["step"] == 2000)].iloc[0]
    assert row["value"] == pytest.approx(lost.groupby(groups).mean().mean(), rel=1e-4)


def test_two_risen_checkpoints_claim_nothing(finished):
    assert not finished.onsets["claim"].any()
    assert "none is shown" in finished.summary
    assert finished.leads.empty


@pytest.mark.long
def test_only_added_checkpoints_are_computed(finished, training, tmp_path, monkeypatch):
    longer = shutil.copytree(training, tmp_path / "seed-0")
    shutil.copytree(longer / "checkpoint-1000", longer / "checkpoint-3000")
    computed, keep = [], map_results._compute_batch

    def counted(model, clips, mix_request):
        computed.extend([model.label] * len(clips))
        return keep(model, clips, mix_request)

    monkeypatch.setattr(map_results, "_compute_batch", counted)
    out = shutil.copytree(finished.run.out, tmp_path / "run")
    result = speechmix.trajectory(longer, CLIPS, out, twins=2, **FAST, **QUIET)
    assert set(computed) == {"seed-0@step3000"}
    assert len(computed) == len(CLIPS)
    assert sorted(set(result.curves["step"])) == [0, 500, 1000, 2000, 3000]
    former = numbers(result)
    former = former[former["model"] != "seed-0@step3000"].reset_index(drop=True)
    pd.testing.assert_frame_equal(former, numbers(finished))


@pytest.mark.long
def test_probes_feed_the_curves_and_a_checkpoint_can_be_added(training, tmp_path, monkeypatch):
    monkeypatch.setattr("speechmix.extensions.probing.kind._SETTINGS", ProbeSettings(controls=0))
    clips = [clip for clip in bundled.clips() if clip.meta["side"] == "left"][:12]
    short = tmp_path / "seed-0"
    shutil.copytree(training / "checkpoint-0", short / "checkpoint-0")
    shutil.copytree(training / "checkpoint-1000", short / "checkpoint-1000")
    options = {"twins": 2, "probes": True, "measures": ["attention"], "stacks": ["cross"], **QUIET}
    first = speechmix.trajectory(short, clips, tmp_path / "run", **options).curves
    shutil.copytree(training / "checkpoint-2000", short / "checkpoint-2000")
    result = speechmix.trajectory(short, clips, tmp_path / "run", **options)
    before, probes = (curves[curves["quantity"] == "probe"] for curves in (first, result.curves))
    assert set(probes["step"]) == {0, 1000, 2000}
    assert set(probes["layer"]) == {0, 1, 2}  # -1 is a whole stack, which no probe reads
    assert not probes.duplicated(["stack", "layer", "step"]).any()  # sides are kept apart
    pd.testing.assert_frame_equal(
        probes[probes["step"] < 2000].reset_index(drop=True), before.reset_index(drop=True)
    )
    stored = pd.read_csv(tmp_path / "run" / "probes.csv").query("stack == 'decoder' and layer == 2")
    stored = stored[(stored["position"] == "deciding") & (stored["part"] == "left")]
    accuracy = stored[stored["init"] == "trained"].set_index("model")["accuracy"]
    twins = stored[stored["init"] == "random"]["accuracy"]
    rows = probes[(probes["stack"] == "decoder deciding (left)") & (probes["layer"] == 2)]
    rows = rows.set_index("step")
    for step in (0, 1000, 2000):
        assert rows["value"][step] == accuracy[f"seed-0@step{step}"]
    assert rows["value"][1000] > rows["value"][0]
    reach = 12.706 * np.std(twins, ddof=1) * np.sqrt(1 + 1 / 2)  # Student's t, 1 degree of freedom
    np.testing.assert_allclose(rows["twin_low"], np.mean(twins) - reach, atol=1e-4)
    heat = plots.trajectory_heat_map(
        result.curves, quantity="probe", stack="decoder deciding (left)"
    )
    assert heat.images[0].get_array().shape == (3, 3)
    with pytest.raises(InputError, match="by layer alone"):
        plots.trajectory_panel(result.curves, quantity="probe")


@pytest.mark.long
def test_shards_give_the_same_tables(finished, training, tmp_path):
    options = {"twins": 2, **FAST, **QUIET}
    assert speechmix.trajectory(training, CLIPS, tmp_path, shard="1/2", **options) is None
    result = speechmix.trajectory(training, CLIPS, tmp_path, shard="2/2", **options)
    pd.testing.assert_frame_equal(numbers(result), numbers(finished))
    order = ["quantity", "stack", "layer", "step"]
    one, other = (r.curves.sort_values(order, ignore_index=True) for r in (result, finished))
    pd.testing.assert_frame_equal(one, other)


def test_figures(finished, tmp_path):
    curves = finished.curves
    panel = plots.trajectory_panel(curves, quantity="need", onsets=finished.onsets)
    labels = {text.get_text() for text in panel.get_legend().get_texts()}
    assert labels == {"encoder", "decoder", "cross"}
    heat = plots.trajectory_heat_map(curves, quantity="contribution", stack="cross")
    assert heat.images[0].get_array().shape == (3, 4)
    path = plots.animate_trajectory(curves[curves["step"] < 1000], tmp_path / "a.gif")
    with Image.open(path) as image:
        assert image.n_frames == 2
    with pytest.raises(InputError, match=r"ending in \.gif or \.mp4"):
        plots.animate_trajectory(curves, tmp_path / "a.png")
    with pytest.raises(InputError, match="no 'colour' in this trajectory"):
        plots.trajectory_panel(curves, quantity="colour")


@pytest.mark.long
def test_the_page_has_a_slider_over_the_steps(finished, tmp_path):
    out = shutil.copytree(finished.run.out, tmp_path / "run")
    page = report(out).read_text("utf-8")
    assert "Over the steps of training" in page
    assert '<input type="range" min="0" max="3" step="1" value="3">' in page
    assert page.count("step 1000") >= 1
    assert "slideThrough" in page


def test_a_run_without_steps_is_refused(tmp_path, finished):
    out = shutil.copytree(finished.run.out, tmp_path / "run")
    (out / "trajectory.json").unlink()
    with pytest.raises(InputError, match=r"has no trajectory: trajectory\.json is missing"):
        Trajectory.open(out)


@pytest.mark.long
def test_the_command(training, tmp_path, capsys):
    out, gif, manifest = (tmp_path / name for name in ("run", "steps.gif", "clips.jsonl"))
    rows = [
        {
            "path": str(clip.path),
            "text": clip.text,
            "cue": str(clip.cue),
            "target": str(clip.target),
        }
        | {"words": [[word.text, word.start, word.end] for word in clip.words], "foil": clip.foil}
        for clip in CLIPS[:2]
    ]
    manifest.write_text("\n".join(map(json.dumps, rows)))
    names = [str(training / f"checkpoint-{step}") for step in (1000, 0)]
    given = [
        "--transcribe",
        "--measure",
        "attention",
        "--stack",
        "decoder",
        "--device",
        "cpu",
        "--allow-outside",
    ]
    given += ["--clips", str(manifest), "--animation", str(gif), "--out", str(out)]
    assert main(["trajectory", *names, *given]) == 0
    said = capsys.readouterr().out
    assert "2 checkpoints: seed-0@step0 to seed-0@step1000" in said
    assert "onset of need: none is shown" in said
    assert gif.is_file()
    table = pd.read_csv(out / "trajectory.csv")
    rates = table[table["quantity"] == "error_rate"].set_index("step")["value"]
    assert rates[1000] < rates[0]
    assert (out / "index.html").is_file()


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="tries are forks of one process")
def test_twenty_checkpoints_killed_at_random_end_as_if_nothing_had_happened(tmp_path):
    steps = {100 * index: index / 19 for index in range(20)}
    folder = write_training(tmp_path / "seed-0", steps)
    clips = CLIPS[:2]

    def job(out):
        speechmix.trajectory(
            folder, clips, out, measures=["attention"], stacks=["decoder"], **QUIET
        )

    whole = tmp_path / "whole" / "run"
    calls = count_calls(job, whole)
    for number in range(2):
        out, tally = tmp_path / str(number) / "run", Tally()
        to_the_end(job, out, random.Random(number), calls=calls, seconds=20, most=6, tally=tally)
        assert tally.kills > 2
        assert snapshot(out) == snapshot(whole)


def test_an_encoder_without_text_has_a_trajectory_without_twins(tmp_path):
    """Only contributions can be measured."""
    folder = tmp_path / "seed-0"
    for step in (0, 100):
        model = speechmix.load("bundled:tiny-french-ctc", device="cpu", init="random", seed=step)
        path = folder / f"checkpoint-{step}"
        model.module.wav2vec2.save_pretrained(path)
        model.feature_extractor.save_pretrained(path)
    clips = [clip.replace(foil=None) for clip in CLIPS[:2]]
    result = speechmix.trajectory(folder, clips, tmp_path / "run", measures=["attention"], **QUIET)
    assert set(result.curves["quantity"]) == {"contribution"}
    assert not result.onsets["claim"].any()
    assert "onset of contribution: none is shown" in result.summary
