"""A decoder is fed the text; its tokens belong to the words that are in it."""

from __future__ import annotations

import warnings

import pytest

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_tokens
from speechmix.errors import InputError
from speechmix.inputs import bundled


@pytest.fixture(scope="module")
def model():
    return speechmix.load("bundled:tiny-french-whisper", device="cpu")


def clip(words: str, text: str | None = None, **options) -> speechmix.Clip:
    timed = [(word, 0.1 * i, 0.1 * i + 0.1) for i, word in enumerate(words.split())]
    return bundled.clips()[1].replace(
        text=text, words=timed, **({"cue": None, "target": None, "foil": None} | options)
    )


def tokens_by_word(model, clip) -> dict[str, str]:
    tokens = decoder_tokens(model, clip)
    return {
        word.text: "".join(
            label for label, owner in zip(tokens.labels, tokens.words, strict=True) if owner == i
        )
        for i, word in enumerate(clip.words)
    }


def test_a_word_that_is_not_in_the_text_has_no_tokens_and_is_warned_of(model):
    with pytest.warns(UserWarning, match=r"'so' is not in the text; 'là' is not among the words"):
        found = tokens_by_word(model, clip("so nos maisons sont", "nos maisons sont là"))
    assert found == {"so": "", "nos": "nos", "maisons": "maisons", "sont": "sont"}


def test_labels_of_noise_are_not_fed_as_text(model):
    with pytest.warns(UserWarning, match=r"'<unk>', '\[\*\]' are not in the text.*give text="):
        tokens = decoder_tokens(model, clip("nos <unk> [*] maisons"))
    assert model.tokenizer.decode(tokens.ids, skip_special_tokens=True).strip() == "nos maisons"


@pytest.mark.parametrize("role", ["cue", "target"])
def test_a_cue_or_target_must_be_in_the_text(model, role):
    with pytest.raises(InputError, match=f"the {role} 'so' is not in the text 'nos maisons'"):
        speechmix.mix(model, clip("so nos maisons", "nos maisons", **{role: "so"}))
    filled = clip("so nos maisons", "nos maisons", **{role: "so"})
    assert speechmix.mix(model, filled, stacks="encoder", measures="attention")


def test_words_that_are_the_text_are_not_warned_of(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder_tokens(model, clip("nos maisons", "Nos, maisons!".lower()))


def test_other_unicode_is_fed_as_the_same_tokens(model):
    composed, decomposed = (
        decoder_tokens(model, clip("été là", text)) for text in ("été là", "e\u0301te\u0301 là")
    )
    assert composed == decomposed
