"""The study recipe: its default on what comes with the package, and real recordings with real
weights where they are."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from speechmix.extensions.clusters.ray_executor import RayExecutor
from speechmix.inputs import bundled
from speechmix.runs.executors.executor import InProcess
from speechmix.runs.executors.local_workers import LocalWorkers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location(
        "french_homophony", ROOT / "recipes" / "french_homophony.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long  # `make demo` does a shorter one
@pytest.mark.usefixtures("undrawn")
def test_without_arguments_it_studies_the_bundled_models_and_says_synthetic(
    recipe, tmp_path, capsys, monkeypatch
):
    clips = bundled.clips()
    few = [
        clip
        for side in ("left", "right")
        for clip in [c for c in clips if c.meta["side"] == side][:4]
    ]
    monkeypatch.setattr(bundled, "clips", lambda: few)
    assert (
        recipe.main(["--out", str(tmp_path), "--figures", "1", "--twins", "1", "--device", "cpu"])
        == 0
    )
    captured = capsys.readouterr()
    printed = captured.out
    assert "score tiny-french-ctc: 8 of 8 clips\n" in captured.err  # no terminal: lines, no bar
    assert "32 done, 0 skipped" in printed  # 8 clips, two models, trained and random
    assert f"page: {tmp_path / 'index.html'}" in printed
    table = pd.read_csv(tmp_path / "cue_contribution.csv")
    assert set(table["init"]) == {"trained", "random"}
    assert set(table["stack"]) == {"encoder", "decoder", "cross"}
    assert set(table["rows"]) == {"target", "deciding"}
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "SYNTHETIC" in html
    assert "cue ablated in decoder" in html
    assert 'id="why-left_00_pl"' in html  # two clips are explained
    for name in ("cue_contribution_left_cue.png", "cue_heat_map_right_cue.png"):
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], InProcess()),
        (["--workers", "3", "--device", "cpu"], LocalWorkers(3, "cpu")),
        (["--engine", "ray:auto"], RayExecutor("auto")),
    ],
)
def test_workers_and_a_cluster_score_as_of_any_run(recipe, monkeypatch, options, expected):
    calls = []
    monkeypatch.setattr(
        "speechmix.studies.french.french_study.french_study",
        lambda **arguments: calls.append(arguments),
    )
    assert recipe.main(options) == 0
    assert [call["executor"] for call in calls] == [expected]


def test_a_manifest_without_one_usable_clip_ends_with_the_reasons_and_no_page(
    recipe, tmp_path, capsys
):
    manifest = tmp_path / "clips.tsv"
    manifest.write_text(
        "path\ttext\tcue\ttarget\nnowhere.wav\tles volets\tles\tvolets\n", encoding="utf-8"
    )
    arguments = ["--clips", str(manifest), "--twins", "1", "--device", "cpu"]
    assert recipe.main([*arguments, "--out", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr()
    assert "no such audio file" in printed.out
    assert "no clip was scored" in printed.err
    assert not (tmp_path / "run" / "index.html").exists()
    assert pd.read_csv(tmp_path / "run" / "skipped.csv")["clip"].tolist() == ["nowhere.wav"]
    assert pd.read_csv(tmp_path / "run" / "clips.csv").empty


@pytest.mark.long
def test_real_recordings_through_the_real_whisper_tiny_encoder(recipe, shared, tmp_path, capsys):
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    weights = _whisper_folder(
        shared / "data" / "weights" / "whisper_tiny_en", tmp_path / "whisper-tiny.en"
    )
    manifest = tmp_path / "manifest.tsv"
    rows = [
        ("allume_la_lumiere", "allume la lumière", "la", "lumière"),
        ("ouvre_les_volets", "ouvre les volets", "les", "volets"),
    ]
    for name, *_ in rows:
        shutil.copy(shared / "data" / "clips_fr" / f"{name}.wav", tmp_path)
    lines = ["path\ttext\tcue\ttarget", *("\t".join([f"{row[0]}.wav", *row[1:]]) for row in rows)]
    manifest.write_text("\n".join(lines), encoding="utf-8")
    arguments = [
        "--clips",
        str(manifest),
        "--model",
        str(weights),
        "--twins",
        "1",
        "--stack",
        "encoder",
    ]
    assert (
        recipe.main(
            [*arguments, "--out", str(tmp_path / "run"), "--figures", "0", "--device", "cpu"]
        )
        == 0
    )
    table = pd.read_csv(tmp_path / "run" / "cue_contribution.csv")
    assert len(table) == 2 * 2 * 3 * 4  # clips, trained and random, measures, layers
    assert table.contribution.between(0.001, 0.999).all()
    assert "4 done, 0 skipped" in capsys.readouterr().out


@pytest.mark.long
def test_the_bundled_models_do_not_transcribe_real_speech_and_the_page_says_so(
    recipe, shared, tmp_path, capsys
):
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    shutil.copy(shared / "data" / "clips_fr" / "ouvre_les_volets.wav", tmp_path)
    manifest = tmp_path / "manifest.tsv"
    manifest.write_text(
        "path\ttext\tcue\ttarget\tfoil\nouvre_les_volets.wav\touvre les "
        "volets\tles\tvolets\tvolet\n",
        encoding="utf-8",
    )
    arguments = [
        "--clips",
        str(manifest),
        "--twins",
        "1",
        "--out",
        str(tmp_path / "run"),
        "--figures",
        "0",
    ]
    assert recipe.main([*arguments, "--device", "cpu"]) == 0
    assert "tiny-french-ctc does not transcribe this clip correctly" in capsys.readouterr().out
    assert "does not transcribe" in (tmp_path / "run" / "index.html").read_text(encoding="utf-8")


def _whisper_folder(source: Path, folder: Path) -> Path:
    """Trained blocks with random token embeddings (the weights at hand lack them): good for the
    encoder alone."""
    import transformers
    from safetensors.torch import load_file

    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig.from_pretrained(source)
    )
    weights = load_file(source / "whisper_tiny_en.no_embed_tokens.fp16.safetensors")
    weights = {
        name if name.startswith("model.") else f"model.{name}": tensor.float()
        for name, tensor in weights.items()
    }
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert set(missing) == {"model.decoder.embed_tokens.weight", "proj_out.weight"}
    model.save_pretrained(folder)
    return folder
