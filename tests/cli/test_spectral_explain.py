"""`speechmix spectral-explain`: the sentence, the files, and clips that cannot be used."""

from __future__ import annotations

import json

import pandas as pd

from speechmix.inputs.bundled import manifest_path
from speechmix.interfaces.cli.command_line import main

MODEL = ["--model", "bundled:tiny-french-ctc", "--device", "cpu", "--fill", "zeros"]


def test_a_sentence_and_the_files_of_a_clip_without_words(tmp_path, capsys):
    sound = manifest_path("bundled:clips").with_name("left_20_pl.flac")
    command = ["spectral-explain", str(sound), "--text", "mes jouets", "--units", "clip", *MODEL]
    edges = ["--band", "0", "--band", "2000", "--band", "8000", "--out", str(tmp_path / "out")]
    assert main([*command, *edges]) == 0
    printed = capsys.readouterr().out
    assert "left_20_pl: " in printed
    folder = tmp_path / "out" / "left_20_pl"
    table = pd.read_csv(folder / "spectral.csv")
    assert table[["low_hz", "high_hz"]].to_numpy().tolist() == [[0, 2000], [2000, 8000]]
    summary = json.loads((folder / "spectral.json").read_text())["summary"]
    assert f"left_20_pl: {summary}" in printed
    assert (folder / "spectral.png").stat().st_size > 10_000


def test_a_band_beyond_half_the_rate_is_reported(tmp_path, capsys):
    command = ["spectral-explain", "bundled:clips", "--units", "clip", *MODEL]
    assert main([*command, "--band", "0", "--band", "12000"]) == 1
    assert "the model reads sound up to 8000 Hz" in capsys.readouterr().out
