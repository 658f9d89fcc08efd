"""State shifts: against transformers run by hand, layer after layer; and what must not move does
not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness.state_perturbation import state_shifts
from speechmix.inputs import bundled
from speechmix.mixing.passes.request import MixRequest
from speechmix.mixing.passes.view_kinds import make_view
from tests.conftest import trained
from tests.models.text_models import bert, gpt2

CLIP = next(clip for clip in bundled.clips() if len(clip.words) >= 4)
TEXT = "the cat is very here"


def by_hand(module, layers, final_norm, hidden):
    """Entering state and output of every layer, the last behind the final norm, by calling one
    after the other."""
    states = [hidden]
    for layer in layers:
        output = layer(states[-1], attention_mask=None)
        states.append(output[0] if isinstance(output, tuple) else output)
    states[-1] = states[-1] if final_norm is None else final_norm(states[-1])
    return states


def encoder_by_hand(model):
    """Of a bundled model: what makes the states that enter the first layer, and what runs the
    layers."""
    if model.family.name == "whisper":
        encoder = model.module.model.encoder
        enter = lambda inputs: encoder(**inputs, output_hidden_states=True).hidden_states[0]  # noqa: E731
        return enter, partial(by_hand, encoder, encoder.layers, encoder.layer_norm)
    base = model.module.base_model
    enter = lambda inputs: base(**inputs, output_hidden_states=True).hidden_states[0]  # noqa: E731
    stable = model.config.do_stable_layer_norm
    return enter, partial(
        by_hand, base, base.encoder.layers, base.encoder.layer_norm if stable else None
    )


def cosine(x, y):
    return 1 - torch.nn.functional.cosine_similarity(x.double(), y.double(), dim=-1)


@pytest.mark.parametrize("where", ["first layer", "input"])
@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_equals_transformers_by_hand(name, where):
    model = trained(name)
    shifts = state_shifts(
        model, CLIP, where=where, layers=[-1, *range(len(model.stacks["encoder"]))]
    )
    view = make_view(model, CLIP, MixRequest(units="word"), ("encoder",))
    words = [span for span in view.sources("encoder") if span.word is not None]
    enter, run = encoder_by_hand(model)
    with torch.no_grad():
        entered = enter(model.family.prepare(model, CLIP, ("encoder",)).inputs)
        intact = run(entered)
        for column, source in enumerate(words):
            silenced = speechmix.mute(CLIP, source.word)
            other = enter(model.family.prepare(model, silenced, ("encoder",)).inputs)
            if where == "first layer":
                mixed = entered.clone()
                mixed[:, source.start : source.stop] = other[:, source.start : source.stop]
                other = mixed
            for layer, (before, after) in enumerate(zip(intact, run(other), strict=True)):
                moved = cosine(before[0], after[0])
                expected = [float(moved[word.start : word.stop].mean()) for word in words]
                assert shifts.scores[layer, :, column] == pytest.approx(expected, abs=2e-6)


def test_only_the_word_has_moved_before_the_first_layer():
    entering = state_shifts(trained("tiny-french-ctc"), CLIP, layers=[-1]).scores[0]
    spread = state_shifts(trained("tiny-french-ctc"), CLIP, layers=[-1], where="input").scores[0]
    others = ~np.eye(len(entering), dtype=bool)
    assert not entering[others].any()
    assert (spread[others] > 0.1).any()  # convolutions hear over a word's border
    assert np.allclose(np.diag(entering), np.diag(spread))


def test_a_causal_model_s_words_are_moved_by_earlier_ones_alone():
    model = gpt2()
    with pytest.raises(InputError, match="neither mask, unknown nor padding"):
        state_shifts(model, TEXT)
    model.tokenizer.unk_token = "<unk>"
    moved = state_shifts(model, TEXT, fill="unk").scores
    above = np.triu(np.ones(moved.shape[1:], dtype=bool), 1)
    assert not moved[:, above].any()
    assert (moved[-1][np.tril(np.ones(moved.shape[1:], dtype=bool), -1)] > 0).all()


def test_in_a_text_both_places_are_one():
    model = bert()
    one, other = (
        state_shifts(model, TEXT, fill="mask", where=where).scores
        for where in ("first layer", "input")
    )
    assert np.allclose(one, other, atol=1e-12)


def test_pictures_and_provenance():
    shifts = state_shifts(trained("tiny-french-ctc"), CLIP, fill="noise")
    assert (shifts.measure, shifts.stack, shifts.layers) == (
        "mute (noise)",
        "encoder",
        (0, 1, 2, 3),
    )
    told = shifts.provenance
    assert (told["clip"], told["distance"], told["taken away at"]) == (
        CLIP.name,
        "cosine",
        "first layer",
    )
    assert shifts.show() is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fill": "mask"}, "fill should be one of"),
        ({"layers": [4]}, "layers 0 to 3"),
        ({"layers": []}, "layers 0 to 3"),
        ({"where": "output"}, "where should be one of"),
        ({"distance": "far"}, "distance must be one of"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(InputError, match=says):
        state_shifts(trained("tiny-french-ctc"), CLIP, **options)


def test_a_clip_without_words():
    bare = CLIP.replace(words=None, cue=None, target=None, foil=None)
    with pytest.raises(InputError, match=r"speechmix\.align"):
        state_shifts(trained("tiny-french-ctc"), bare)
