"""`speechmix look-ahead`, as a user types it, and its kind of result in a run."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import soundfile

import speechmix
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import main
from speechmix.runs.score_clips import compute_kinds, score_clips

pytestmark = pytest.mark.usefixtures("models_loaded_once")
MODEL = "bundled:tiny-french-ctc"


def clip():
    return next(clip for clip in bundled.clips() if clip.name == "right_01_pl")


def test_one_clip(tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", clip().audio(16_000), 16_000)
    words = [
        {"word": word.text, "start": word.start, "end": word.end} for word in clip().words or ()
    ]
    (tmp_path / "a.json").write_text(json.dumps(words), encoding="utf-8")
    row = {"path": "a.wav", "words": "a.json", "text": clip().text, "target": "quels"}
    (tmp_path / "clips.jsonl").write_text(json.dumps(row), encoding="utf-8")
    arguments = ["look-ahead", str(tmp_path / "clips.jsonl"), "--model", MODEL, "--delay", "0"]
    arguments += ["--delay", "200", "--window", "1", "--window", "all", "--chunk", "200"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "chunks of 200 ms: score lost" in printed
    assert "they need 8 groups of clips, found 1" in printed
    assert "not tested" in printed
    assert "no removal is shown" not in printed
    curves = pd.read_csv(tmp_path / "out" / "look_ahead.csv")
    assert set(curves["removal"]) == {"word", "prefix", "past", "cut", "zeros", "chunk"}
    assert curves["layer"].dropna().nunique() == 4
    facts = json.loads((tmp_path / "out" / "look_ahead.json").read_text(encoding="utf-8"))
    assert facts["limits"][0]["used_ms"] is None
    assert (tmp_path / "out" / "look_ahead.png").stat().st_size > 10_000
    assert main([*arguments, "--shard", "1/2"]) == 1
    assert "give the folder of a run as --out" in capsys.readouterr().err


def test_in_a_run(tmp_path, capsys):
    model = speechmix.load(MODEL)
    options = {"measures": ["attention"], "figures": 0, "progress": False}
    score_clips([model], [clip()], tmp_path / "run", **options)
    arguments = ["look-ahead", "--model", MODEL, "--delay", "0", "--window", "all"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    table = pd.read_parquet(tmp_path / "run" / "look_ahead.parquet")
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0  # finds all of it
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run" / "look_ahead.parquet"), table)
    direct = speechmix.look_ahead(model, [clip()], delays_ms=[0], windows=["all"]).table
    pd.testing.assert_series_equal(table["effect"], direct["effect"], atol=1e-4)
    without_target = clip().replace(target=None, foil=None)
    run = compute_kinds(model, [without_target], tmp_path / "other", ["look_ahead"], progress=False)
    assert not run.done or not (tmp_path / "other" / "look_ahead.parquet").exists()
