"""The bundled models spell the number that the cue tells, and cannot without it."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError, StorageError
from speechmix.extensions.synthetic_french.synthetic_corpus import (
    is_number_correct,
    log_likelihoods,
)
from speechmix.inputs.bundled import clips, models
from speechmix.inputs.bundled.packed_weights import pack_weights, unpack_model
from speechmix.interventions.removals import mute
from speechmix.interventions.value_knock_out import ablate
from tests.conftest import trained

NAMES = ("tiny-french-ctc", "tiny-french-whisper")


@pytest.fixture(scope="module", params=NAMES)
def bundled(request):
    return trained(request.param)


@pytest.fixture(scope="module")
def paired():
    """Clips whose number shows in the spelling, both members of every other pair of each side."""
    return each_pair(2)


@pytest.fixture(scope="module")
def fewer():
    """Of every fourth pair."""
    return each_pair(4)


def each_pair(step):
    paired = [clip for clip in clips() if clip.meta["control"] == "no"]
    kept = set()
    for side in ("left", "right"):
        names = sorted({clip.meta["pair"] for clip in paired if clip.meta["side"] == side})
        kept |= {*names[::step]}
    return [clip for clip in paired if clip.meta["pair"] in kept]


def _rate(right) -> float:
    right = list(right)
    return sum(right) / len(right)


def test_number_is_right_with_the_cue_and_a_guess_without(bundled, fewer):
    assert _rate(is_number_correct(bundled, clip) for clip in fewer) >= 0.95
    for side in ("left", "right"):
        silenced = [mute(clip) for clip in fewer if clip.meta["side"] == side]
        assert 0.4 <= _rate(is_number_correct(bundled, clip) for clip in silenced) <= 0.65


def test_target_is_right_where_the_cue_is_given_as_text(bundled, fewer):
    assert _rate(ablate(bundled, clip, stacks=[]).right[0] for clip in fewer) >= 0.9


@pytest.mark.long
def test_nouns_are_spelled_right(bundled, paired):
    def noun_is_right(clip):
        noun = clip.meta["noun"] + ("s" if clip.meta["number"] == "pl" else "")
        return noun in transcribe(bundled, clip).split()

    # Spelling a noun letter by letter is the hard part: see the cards for the rates over more
    # clips.
    assert _rate(noun_is_right(clip) for clip in paired) >= 0.8


@pytest.mark.long
def test_an_untrained_twin_can_neither_spell_nor_tell(bundled, paired):
    twin = speechmix.load(models()[bundled.name], init="random", seed=0, device="cpu")
    assert all(transcribe(twin, clip) != clip.text for clip in paired[:8])
    assert 0.3 <= _rate(is_number_correct(twin, clip) for clip in paired[:32]) <= 0.7


def test_silencing_leaves_all_but_the_cue(paired):
    clip = paired[0]
    silenced = mute(clip)
    cue = clip.words[clip.cue]
    start, stop = round(cue.start * 16_000), round(cue.end * 16_000)
    assert not silenced.audio()[start:stop].any()
    assert (silenced.audio()[stop:] == clip.audio()[stop:]).all()
    kept = ("text", "words", "cue", "target", "foil", "language", "meta")
    assert [getattr(silenced, name) for name in kept] == [getattr(clip, name) for name in kept]


def test_likelihoods_are_probabilities(bundled, paired):
    clip = paired[0]
    scores = log_likelihoods(bundled, clip, [clip.text, clip.meta["other_text"], "zéro"])
    assert scores.shape == (3,)
    assert torch.isfinite(scores).all()
    assert scores.exp().sum() <= 1 + 1e-5
    assert scores[2] < scores[0]


def test_a_clip_that_does_not_know_its_partner_is_refused(bundled):
    control = next(clip for clip in clips() if clip.meta["control"] == "yes")
    lone = speechmix.Clip.from_array(control.audio(), 16_000, text=control.text, language="fr")
    with pytest.raises(InputError, match="other_text"):
        is_number_correct(bundled, lone)


def test_whisper_generates_by_itself(paired):
    """Its generation config names language, task and the end of text."""
    model = trained("tiny-french-whisper")
    clip = paired[0]
    features = model.feature_extractor(clip.audio(), sampling_rate=16_000, return_tensors="pt")
    ids = model.module.generate(features["input_features"])
    assert model.tokenizer.decode(ids[0], skip_special_tokens=True).strip() == transcribe(
        model, clip
    )


def test_context_reaches_the_target_through_attention_alone(bundled):
    """No normalisation over the whole clip, and a positional convolution shorter than most
    words."""
    config = bundled.config
    if bundled.family.name == "whisper":
        assert bundled.feature_extractor.chunk_length == 3
    else:
        assert not bundled.feature_extractor.do_normalize
        assert config.num_conv_pos_embeddings <= 16
        assert config.do_stable_layer_norm
        assert not config.apply_spec_augment


@pytest.mark.parametrize("name", NAMES)
def test_folders_are_complete_small_and_carded(name):
    folder = models()[name]
    assert (folder / "model.safetensors").stat().st_size < 4_000_000
    assert (folder / "training_log.csv").read_text().count("\n") > 5
    card = (folder / "README.md").read_text(encoding="utf-8")
    for phrase in ("synthetic", "evidence", "seed", "MIT"):
        assert phrase in card
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"


def test_weights_are_the_same_packed_and_unpacked(tmp_path, monkeypatch):
    folder = shutil.copytree(models()["tiny-french-ctc"], tmp_path / "model")
    weights = (folder / "model.safetensors").read_bytes()
    pack_weights(folder)
    assert not (folder / "model.safetensors").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    unpacked = unpack_model(folder)
    assert tmp_path in unpacked.parents
    assert (unpacked / "model.safetensors").read_bytes() == weights
    assert unpack_model(folder) == unpacked
    for damaged in ("model.safetensors", "config.json"):  # cut off, or planted by somebody else
        (unpacked / damaged).write_bytes(b"x")
    assert unpack_model(folder) == unpacked
    assert (unpacked / "model.safetensors").read_bytes() == weights
    assert (unpacked / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert {path.name for path in folder.iterdir()} - {"weights.planes.xz"} == {
        path.name for path in unpacked.iterdir()
    } - {"model.safetensors"}


def test_weights_go_to_the_temporary_folder_if_the_cache_cannot_be_written(tmp_path, monkeypatch):
    folder = shutil.copytree(models()["tiny-french-ctc"], tmp_path / "model")
    pack_weights(folder)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert unpack_model(folder).is_relative_to(tmp_path / "speechmix")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="XDG_CACHE_HOME"):
        unpack_model(folder)


def test_a_checkpoint_is_the_same_wherever_it_lies(tmp_path):
    folder = models()["tiny-french-whisper"]
    shutil.copytree(folder, tmp_path / "elsewhere")
    here, there = (speechmix.load(path, device="cpu") for path in (folder, tmp_path / "elsewhere"))
    assert here.fingerprint == there.fingerprint
    assert (
        here.fingerprint != speechmix.load(folder, init="random", seed=0, device="cpu").fingerprint
    )
