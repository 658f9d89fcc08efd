"""A map says when the model does not write the text of the clip."""

from __future__ import annotations

import warnings

import pytest

import speechmix
from speechmix.inputs import bundled
from tests.conftest import trained

CLIP = bundled.clips()[1]


def note_of(model, clip, stacks):
    maps = speechmix.mix(model, clip, measures="attention", stacks=stacks)
    return next(iter(maps.values())).provenance.get("unheard_text")


def test_a_sound_too_soft_for_a_ctc_model_is_noted():
    model = trained("tiny-french-ctc")
    soft = speechmix.Clip.from_array(
        0.1 * CLIP.audio(16_000), 16_000, text=CLIP.text, words=CLIP.words, name="soft"
    )
    with pytest.warns(UserWarning, match="soft: tiny-french-ctc writes nothing .*loudness"):
        assert (
            note_of(model, soft, "encoder")
            == "writes nothing of a sound whose text is 'nos maisons'"
        )


@pytest.mark.parametrize(
    ("name", "stacks", "note"),
    [
        ("tiny-french-ctc", "encoder", "writes 'nos maisons' of a sound whose text is 'quels"),
        (
            "tiny-french-whisper",
            "decoder",
            "finds other tokens likelier than those of the text 'quels",
        ),
    ],
)
def test_another_text_is_noted(name, stacks, note):
    other = CLIP.replace(
        text="quels légumes arrivent", words=None, cue=None, target=None, foil=None
    )
    model = trained(name)
    spans = None if stacks == "decoder" else [(0, 10), (10, 40)]
    with pytest.warns(UserWarning, match=note):
        speechmix.mix(model, other, measures="attention", stacks=stacks, units="frame", spans=spans)


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_a_text_that_is_written_is_not_noted_and_a_twin_is_not_asked(name):
    model = trained(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert note_of(model, CLIP, None) is None
        twin = speechmix.load(bundled.models()[name], init="random", seed=0, device="cpu")
        assert note_of(twin, CLIP, None) is None
