"""Answers of audio language models: which tokens, which sources, interventions by hand, and what
does not hold is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.mixing.passes.request import MixRequest
from speechmix.mixing.passes.view_kinds import make_view
from tests.models.audio_language_models import MODELS, clip
from tests.models.shared_models import shared


def loaded(name):
    def load():
        module, processor = MODELS[name]()
        return speechmix.load(
            module, processor=processor, dtype="float64", device="cpu", check=False
        )

    return shared(("explained", name), load).with_prompt("Who is it?")


def scores_of(model, inputs):
    with torch.no_grad(), model.in_use(model.state_dtype):
        moved = {
            name: tensor.to(model.state_dtype) if tensor.is_floating_point() else tensor
            for name, tensor in inputs.items()
        }
        return model.module(**moved, use_cache=False).logits[0].double().log_softmax(dim=-1)


@pytest.mark.parametrize(
    "name",
    [
        "qwen2-audio",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("voxtral", "granite-speech")),
    ],
)
def test_taking_away_is_the_intervention_in_sound_prompt_and_answer(name):
    model, said = loaded(name), clip("le chat dort")
    why = speechmix.explain(
        model, said, text="it is", against="runner_up", sound_fill="zeros", token_fill="e"
    )
    assert (why.text, why.by, why.said) == ("it is", "given", ())
    assert why.provenance["prompt"] == "Who is it?"
    assert [(source.side, source.label) for source in why.sources] == [
        ("sound", "le"),
        ("sound", "chat"),
        ("sound", "dort"),
        ("asked", "Who"),
        ("asked", "is"),
        ("asked", "it?"),
        ("written", "it"),
        ("written", "is"),
    ]
    fed = model.with_prompt("Who is it?", answer="it is")
    view = make_view(fed, said, MixRequest(), ("encoder", "decoder"))
    inputs, place = view.prepared.inputs, why.choice("is")
    fill = model.tokenizer.convert_tokens_to_ids("e")
    tokens = [why.tokens[token] for token in why.choices[place].tokens]
    for index, source in enumerate(why.sources[:-1]):
        if source.side == "sound":
            quiet = make_view(
                fed, speechmix.mute(said, source.source.index), MixRequest(), ("encoder", "decoder")
            )
            changed = quiet.prepared.inputs
        else:
            changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
            changed["input_ids"][0, list(source.source.positions)] = fill
            spelled = model.tokenizer.decode(inputs["input_ids"][0, list(source.source.positions)])
            assert spelled.strip() == source.label
        scores = scores_of(model, changed)
        value = sum(float(scores[token.position, token.id]) for token in tokens)
        assert why.value_without[place, index] == pytest.approx(value, abs=1e-7), source.name
    assert np.isnan(why.value_without[place, -1])
    assert list(why.attributions) == ["occlusion", "gradient_input"]
    assert (why.attributions["gradient_input"].values[place, :7] >= 0).all()


def test_what_is_asked_for_a_transcript_is_held_against_what_was_said():
    model, said = loaded("qwen2-audio"), clip("le chat dort")
    assert speechmix.explain(model, said, text="la chat", measures="occlusion").errors == ()
    asked = model.with_prompt("Transcribe:", transcribes=True)
    why = speechmix.explain(asked, said, text="la chat", measures="occlusion")
    assert [(error.said, error.wrote) for error in why.errors] == [("le", "la"), ("dort", None)]
    first = why.choices[0]
    assert (first.label, first.contrast.label, first.contrast.foil_label) == ("la", "a", "e")


@pytest.mark.parametrize("measure", ["value_zeroing", "attention", "alti_logit"])
def test_what_ends_where_sound_enters_the_decoder_is_refused(measure):
    with pytest.raises(InputError, match="ends where its sound enters the decoder"):
        speechmix.explain(loaded("qwen2-audio"), clip(), text="it is", measures=measure)
