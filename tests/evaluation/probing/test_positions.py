"""Which states are read: held against what transformers hands out, frame by frame and token by
token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.probing.task import read_item_states, resolve_positions
from speechmix.inputs import bundled
from speechmix.inputs.words.spans import word_spans
from tests.conftest import trained
from tests.models import text_models


def clip_named(name: str) -> speechmix.Clip:
    return next(clip for clip in bundled.clips() if clip.name == name)


def whisper_states(model, clip, ids):
    """All states of encoder and decoder [L + 1, T, D], the last of each behind the final norm."""
    features = model.feature_extractor(
        clip.audio(16_000), sampling_rate=16_000, return_tensors="pt"
    )
    with torch.no_grad():
        out = model.base(
            features["input_features"],
            decoder_input_ids=torch.tensor([ids]),
            output_hidden_states=True,
        )
    return torch.cat(out.encoder_hidden_states).numpy(), torch.cat(
        out.decoder_hidden_states
    ).numpy()


def test_whisper_frames_rows_and_the_deciding_position():
    model, clip = trained("tiny-french-whisper"), clip_named("left_00_pl")  # nos maisons
    positions = ("target", "cue", "deciding", 1)
    states = read_item_states(model, clip, positions)
    text = " " + clip.text
    prefix = model.tokenizer.convert_tokens_to_ids(
        ["<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]
    )
    letters = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(letters) == len(text)  # letter by letter
    encoder, decoder = whisper_states(model, clip, [*prefix, *letters])
    spans = {span.word: span for span in word_spans(clip.words, model.grid(0))}
    frames = slice(spans[1].start, spans[1].stop)
    assert np.allclose(
        states.states["encoder", "target"], encoder[:, frames].mean(axis=1), atol=1e-5
    )
    assert np.allclose(states.states["encoder", 1], states.states["encoder", "target"])
    held = [len(prefix) + text.index("maisons") + place for place in range(len("maisons"))]
    assert np.allclose(states.states["decoder", 1], decoder[:, held].mean(axis=1), atol=1e-5)
    predicting = [place - 1 for place in held]
    assert np.allclose(
        states.states["decoder", "target"], decoder[:, predicting].mean(axis=1), atol=1e-5
    )
    assert np.allclose(
        states.states["decoder", "deciding"], decoder[:, held[-1] - 1], atol=1e-5
    )  # n, before s or nothing
    cue = [len(prefix) + text.index("nos") + place for place in range(3)]
    assert np.allclose(states.states["decoder", "cue"], decoder[:, cue].mean(axis=1), atol=1e-5)
    assert states.missing_reasons == {
        ("encoder", "deciding"): "an encoder has no deciding position"
    }


def test_the_deciding_state_of_a_pair_holds_the_same_letters():
    model = trained("tiny-french-whisper")
    inputs = [
        read_item_states(model, clip_named(f"left_00_{number}"), ["deciding", "target"]).states
        for number in ("sg", "pl")
    ]
    singular, plural = (at["decoder", "deciding"][0] for at in inputs)
    length = np.abs(singular).max()
    # One place further on ("nos" is two letters shorter than "notre"), and otherwise the same
    # letter.
    assert np.abs(singular - plural).max() < length
    assert not np.allclose(
        *(at["decoder", "target"][0] for at in inputs), atol=1e-3
    )  # which has a row more


def test_words_between_and_one_stack_alone():
    model = trained("tiny-french-ctc")
    clip = next(clip for clip in bundled.clips() if abs(clip.cue - clip.target) > 1)
    first, last = sorted((clip.cue, clip.target))
    words = list(range(first + 1, last))
    at = read_item_states(model, clip, ["between", *words], stacks=["encoder"]).states
    spans = {
        span.word: len(span) for span in word_spans(clip.words, model.grid(len(clip.audio(16_000))))
    }
    weights = [spans[word] for word in words]
    expected = np.average([at["encoder", word] for word in words], axis=0, weights=weights)
    assert np.allclose(at["encoder", "between"], expected, atol=1e-5)
    neighbours = clip_named("left_00_pl")
    assert (
        "no word lies between"
        in read_item_states(model, neighbours, ["between"]).missing_reasons["encoder", "between"]
    )
    with pytest.raises(InputError, match="decoder"):
        read_item_states(model, clip, ["target"], stacks=["decoder"])


def test_a_masked_model_is_fed_its_mask_for_the_target():
    model = text_models.bert()
    sentence = speechmix.Sentence("the cat is very here", target="is", foil="are", cue="cat")
    written = speechmix.Sentence("the cat <mask> very here", target="<mask>", cue="cat")
    masked, same, seen = (
        read_item_states(model, item, ["target", "cue"], mask=mask).states
        for item, mask in ((sentence, True), (written, True), (sentence, False))
    )
    assert np.allclose(masked["encoder", "target"], same["encoder", "target"])
    assert not np.allclose(masked["encoder", "target"][0], seen["encoder", "target"][0])
    assert np.allclose(masked["encoder", "cue"][0], seen["encoder", "cue"][0])


def test_a_causal_model_is_read_where_it_predicts_the_target():
    model = text_models.gpt2()
    sentence = speechmix.Sentence("the cats are here", target="are", foil="is", cue="cats")
    at = read_item_states(model, sentence, ["target", "deciding", "cue"]).states
    ids = model.tokenizer(sentence.text, return_tensors="pt")
    with torch.no_grad():
        states = torch.cat(model.base(**ids, output_hidden_states=True).hidden_states).numpy()
    start = sentence.text.index(
        "are"
    )  # a byte a token; the space before it may be counted to the word
    assert np.allclose(at["decoder", "deciding"], states[:, start - 1], atol=1e-6)
    predicting = list(range(start - 1, start + 2))
    assert np.allclose(at["decoder", "target"], states[:, predicting].mean(axis=1), atol=1e-6)


def test_a_cue_of_several_words_and_what_lies_between_it_and_the_target():
    model = text_models.bert()
    sentence = speechmix.Sentence("the cats very here are", cue="the cats", target="are")
    at = read_item_states(model, sentence, ["cue", "between", 0, 1, 2, 3]).states
    for position, words in (("cue", (0, 1)), ("between", (2, 3))):  # a token a word
        expected = np.mean([at["encoder", word] for word in words], axis=0)
        assert np.allclose(at["encoder", position], expected, atol=1e-6)
    round_about = speechmix.Sentence("the cats are very here", cue=["the", "here"], target="are")
    assert ("encoder", "between") in read_item_states(
        model, round_about, ["between"]
    ).missing_reasons


def test_an_item_without_words_or_cue_has_no_such_positions():
    model, clip = trained("tiny-french-ctc"), clip_named("left_00_pl")
    bare = clip.replace(cue=None, target=None, foil=None)
    missing = read_item_states(model, bare, ["target", "cue", "between", 7]).missing_reasons
    assert [missing["encoder", position] for position in ("target", "cue")] == [
        "the target is not given",
        "the cue is not given",
    ]
    assert "between" in missing["encoder", "between"]
    assert "there is no word 7" in missing["encoder", 7]


@pytest.mark.parametrize("wrong", ["subject", -1, True, [], ["target", 1.5]])
def test_positions_that_there_are_not(wrong):
    with pytest.raises(InputError, match="position should be"):
        resolve_positions(wrong)
    assert resolve_positions("cue") == ("cue",)
    assert resolve_positions(["cue", 3, "cue"]) == ("cue", 3)
