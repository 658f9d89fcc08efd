"""A bad clip among good ones costs only itself, whatever is computed of them."""

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled

WORDS = [("nos", 0.0, 0.008), ("maisons", 0.008, 0.018)]


@pytest.fixture(scope="module")
def model():
    return speechmix.load("bundled:tiny-french-ctc")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A clip shorter than a frame, one whose file is gone, and six good ones, each with phones."""
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000)
    path = tmp_path_factory.mktemp("gone") / "gone.wav"
    soundfile.write(path, noise, 16_000)
    bad = [
        speechmix.Clip.from_array(noise[:320], 16_000, name="short", words=WORDS),
        speechmix.Clip.from_file(path, words=[("nos", 0.1, 0.3), ("maisons", 0.3, 0.9)]),
    ]
    clips = [*bad, *bundled.clips()[:12:2]]
    with_phones = [
        clip.replace(tiers={"phone": [("a", word.start, word.end) for word in clip.words]})
        for clip in clips
    ]
    path.unlink()
    return with_phones


COMPUTATIONS = {
    "unit_states": lambda model, clips: speechmix.unit_states(model, clips),
    "similarity": lambda model, clips: speechmix.similarity(model, clips=clips),
    "encode": lambda model, clips: speechmix.encode(
        model, clips, {"a": ["position"], "b": ["duration"]}
    ),
    "phone_sources": lambda model, clips: speechmix.phone_sources(model, clips, by=()),
    "faithfulness": lambda model, clips: speechmix.faithfulness(
        model, clips, measures="attention", perturbations="mute (zeros)", metrics=["spearman"]
    ),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_a_bad_clip_costs_only_itself(model, clips, name):
    assert COMPUTATIONS[name](model, clips) is not None


def test_words_of_a_clip_shorter_than_a_frame(model, clips):
    clip = clips[0].replace(words=None, tiers={}, text="nos maisons")
    with pytest.raises(InputError, match="320 samples is shorter than one frame"):
        speechmix.align(clip, model=model)


def test_explain_of_a_clip_shorter_than_a_frame(model, clips):
    """It has no words yet, so that the model writes first."""
    clip = clips[0].replace(words=None, tiers={}, text="nos maisons")
    with pytest.raises(InputError, match="320 samples is shorter than one frame"):
        speechmix.explain(model, clip, measures="attention")


def test_figure_of_a_sound_too_short_for_formants(tmp_path):
    model = speechmix.load("bundled:tiny-french-whisper")
    noise = np.random.default_rng(0).normal(0, 0.1, 640)
    clip = speechmix.Clip.from_array(
        noise, 16_000, words=[("maisons", 0, 0.04)], target=0, foil="maison", language="fr"
    )
    result = speechmix.spectral_explain(model, clip, bands=2, fills=("zeros",))
    assert (result.write(tmp_path / "a")).exists()
