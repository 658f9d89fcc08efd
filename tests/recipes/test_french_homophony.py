"""The study recipe: its synthetic default (needs espeak-ng), and real recordings with real weights where they are."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("french_homophony", ROOT / "recipes" / "french_homophony.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def needs_espeak():
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")


def test_without_arguments_it_runs_on_synthetic_speech_and_says_so(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recipe, "PAIRS", recipe.PAIRS[:1])
    assert recipe.main(["--out", str(tmp_path), "--figures", "1", "--seeds", "0", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "4 done, 0 skipped" in printed
    table = pd.read_csv(tmp_path / "cue_contribution.csv")
    assert set(table["init"]) == {"random"}
    assert set(table["stack"]) == {"encoder", "decoder", "cross"}
    assert table["clip"].str.startswith("synthetic").all()
    for name in ("cue_contribution.png", "cue_heat_map.png"):
        assert (tmp_path / name).stat().st_size > 10_000


def test_real_recordings_through_the_real_whisper_tiny_encoder(recipe, shared, tmp_path, capsys):
    weights = _whisper_folder(shared / "data" / "weights" / "whisper_tiny_en", tmp_path / "whisper-tiny.en")
    manifest = tmp_path / "manifest.tsv"
    rows = [
        ("allume_la_lumiere", "allume la lumière", "la", "lumière"),
        ("ouvre_les_volets", "ouvre les volets", "les", "volets"),
    ]
    for name, *_ in rows:
        shutil.copy(shared / "data" / "clips_fr" / f"{name}.wav", tmp_path)
    lines = ["path\ttext\tcue\ttarget", *("\t".join([f"{row[0]}.wav", *row[1:]]) for row in rows)]
    manifest.write_text("\n".join(lines), encoding="utf-8")
    arguments = ["--manifest", str(manifest), "--models", str(weights), "--seeds", "0", "--stacks", "encoder"]
    assert recipe.main([*arguments, "--out", str(tmp_path / "run"), "--figures", "0", "--device", "cpu"]) == 0
    table = pd.read_csv(tmp_path / "run" / "cue_contribution.csv")
    assert len(table) == 2 * 2 * 3 * 4  # clips, trained and random, measures, layers
    assert table.contribution.between(0.001, 0.999).all()
    assert "4 done, 0 skipped" in capsys.readouterr().out


def _whisper_folder(source: Path, folder: Path) -> Path:
    """Trained blocks with random token embeddings (the weights at hand lack them): good for the encoder alone."""
    import transformers
    from safetensors.torch import load_file

    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig.from_pretrained(source))
    weights = load_file(source / "whisper_tiny_en.no_embed_tokens.fp16.safetensors")
    weights = {
        name if name.startswith("model.") else f"model.{name}": tensor.float() for name, tensor in weights.items()
    }
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert set(missing) == {"model.decoder.embed_tokens.weight", "proj_out.weight"}
    model.save_pretrained(folder)
    return folder
