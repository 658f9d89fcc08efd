"""`speechmix ground` and `speechmix calibrate`, as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import soundfile

from speechmix.extensions.grounding import calibrate, grounding_runs
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import main

pytestmark = pytest.mark.usefixtures("models_loaded_once")
MODEL = "bundled:tiny-french-whisper"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings of several kinds: of them "broken" cannot be read."""
    folder = tmp_path_factory.mktemp("recordings")
    clips = {clip.name: clip for clip in bundled.clips()}
    speech = np.concatenate([clips[f"left_0{n}_pl"].audio(16_000) for n in (0, 2, 4)])
    soundfile.write(folder / "speech.wav", speech, 16_000)
    stereo = np.stack([speech, speech], axis=1)
    soundfile.write(folder / "stereo.flac", stereo, 16_000)
    telephone = clips["left_00_pl"].audio(8_000)
    soundfile.write(folder / "telephone.wav", telephone, 8_000)
    soundfile.write(folder / "empty.wav", np.zeros(0), 16_000)
    whole = (folder / "stereo.flac").read_bytes()
    (folder / "broken.flac").write_bytes(whole[: len(whole) // 2])
    return folder


def test_files_of_all_kinds_and_a_second_run(recordings, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    arguments = ["ground", *sorted(map(str, recordings.iterdir())), "--model", MODEL]
    arguments += ["--language", "fr", "--out", str(out), "--format", "csv", "--format", "TextGrid"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "skipped empty" in printed
    assert "skipped broken" in printed
    assert printed.count("Not calibrated") == 1
    names = sorted(path.name for path in (out / "grounding").iterdir())
    assert names == [
        f"{name}.{ending}"
        for name in ("speech", "stereo", "telephone")
        for ending in ("TextGrid", "csv")
    ]
    speech, stereo = (
        pd.read_csv(out / "grounding" / f"{name}.csv") for name in ("speech", "stereo")
    )
    assert speech["text"].tolist()[:2] == ["nos", "maisons"]
    pd.testing.assert_frame_equal(speech, stereo, rtol=1e-3)  # FLAC holds 16 bits
    monkeypatch.setattr(
        "speechmix.extensions.grounding.kind.ground", lambda *args, **options: 1 / 0
    )  # nothing is computed again
    main(arguments)
    again = pd.read_csv(out / "grounding" / "speech.csv")
    pd.testing.assert_frame_equal(speech, again)


def test_without_a_folder_it_prints(recordings, capsys):
    assert main(["ground", str(recordings / "speech.wav"), "--model", MODEL]) == 0
    assert "nos maisons" in capsys.readouterr().out
    assert main(["ground", str(recordings / "empty.wav"), "--model", MODEL]) == 1
    for wrong in (["--format", "csv"], ["--shard", "1/2"]):
        assert main(["ground", str(recordings / "speech.wav"), "--model", MODEL, *wrong]) == 1
        assert "--out" in capsys.readouterr().err


def test_long_recordings_are_cut_into_blocks(recordings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("speechmix.extensions.grounding.ground.BLOCK_SECONDS", 1.8)
    monkeypatch.setattr("speechmix.extensions.grounding.ground._SEARCH_SECONDS", 0.6)
    out = tmp_path / "run"
    arguments = ["ground", str(recordings / "speech.wav"), "--model", MODEL, "--language", "fr"]
    assert main([*arguments, "--out", str(out), "--format", "json"]) == 0
    stored = json.loads((out / "grounding" / "speech.json").read_text())
    starts = [word["start"] for word in stored["words"]]
    assert starts == sorted(starts)
    assert starts[-1] > 2.0
    assert grounding_runs.DEFAULT_FORMATS == ("html", "csv", "vtt", "txt")


def test_calibration_is_fitted_and_used(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "_RESAMPLES", 20)  # nobody looks at the interval here
    path = tmp_path / "tiny.json"
    manifest = bundled.manifest_path("bundled:clips")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()][:10]
    for row in rows:
        row["path"] = str(manifest.parent / row["path"])
    (tmp_path / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)))
    clips = ["calibrate", str(tmp_path / "clips.jsonl"), "--allow-outside", "--model", MODEL]
    assert main([*clips, "--out", str(path)]) == 1
    assert "wrong words about these clips: expected at least 10" in capsys.readouterr().err
    noise = [str(tmp_path / f"noise{seed}.wav") for seed in range(4)]
    for seed, name in enumerate(noise):
        sound = np.random.default_rng(seed).normal(0, 0.05, 24_000)
        soundfile.write(name, sound, 16_000)
    assert main([*clips, "--nonspeech", *noise, "--out", str(path)]) == 0
    assert "area under the ROC curve" in capsys.readouterr().out
    assert path.with_suffix(".png").stat().st_size > 1000
    wav = manifest.parent / "left_00_pl.flac"
    assert main(["ground", str(wav), "--model", MODEL, "--calibration", str(path)]) == 0
    path.write_text("{}")
    assert main(["ground", str(wav), "--model", MODEL, "--calibration", str(path)]) == 1
