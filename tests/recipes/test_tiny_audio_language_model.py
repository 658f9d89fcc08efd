"""A trained audio language model whose answer depends on one word of the sound: maps and knock-out
find that word, where it is.

Where the encoder may mix, it takes the word to all frames in its first layers, and the decoder has
no need to look for it. Where it cannot, the decoder does. Maps and the decision must agree on which
it is, and an untrained twin must find nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from recipes import tiny_audio_language_model as tones
from speechmix.adapters.generation.text_tokens import generate_text

N_CLIPS = 24  # of a seed that nothing was chosen by


@pytest.fixture(
    scope="module", params=[True, False], ids=["the encoder mixes", "the decoder has to"]
)
def trained(request):
    return request.param, speechmix.load(
        tones.train(encoder_mixes=request.param), processor=tones.processor()
    )


def found_by_map_and_decision(model):
    """For each clip: the cue, and by (stack, layer) what each word gives and how far the decision
    drops without it."""
    for clip, answer in tones.clips(N_CLIPS, seed=7):
        asked = model.with_prompt(tones.PROMPT, answer=answer)
        maps = speechmix.mix(asked, clip)
        decoder, encoder = (
            maps["value_zeroing", stack].normalized().scores for stack in ("decoder", "encoder")
        )
        told = maps["value_zeroing", "decoder"]
        sound = [column for column, span in enumerate(told.sources) if span.onset is not None]
        row = next(
            row
            for row, span in enumerate(told.targets)
            if span.start == told.provenance["answer_position"] - 1
        )
        assert told.targets[row].label == answer
        given = {("decoder", layer): scores[row, sound] for layer, scores in enumerate(decoder)}
        others = ~np.eye(len(sound), dtype=bool)
        given |= {
            ("encoder", layer): (scores * others).sum(axis=0)
            for layer, scores in enumerate(encoder)
        }
        ids = model.tokenizer.convert_tokens_to_ids([answer, tones.NEITHER])
        drops = speechmix.knock_out(asked, clip, objective=(told.targets[row].start, *ids))
        yield clip.cue, given, {key: drops.scores(key[0])[key[1]] for key in given}


@pytest.mark.long
def test_the_word_that_decides_is_found_where_it_is_mixed(trained):
    encoder_mixes, model = trained
    asked = model.with_prompt(tones.PROMPT)
    right = [
        generate_text(asked, clip).text == answer
        for clip, answer in tones.clips(20, seed=8, neither=10)
    ]
    assert np.mean(right) >= 0.9
    cues, given, drops = zip(*found_by_map_and_decision(model), strict=True)
    lost = {
        key: np.array([drop[key][cue] for cue, drop in zip(cues, drops, strict=True)])
        for key in drops[0]
    }
    where = max(lost, key=lambda key: lost[key].mean())
    assert where[0] == ("encoder" if encoder_mixes else "decoder")
    by_decision = [drop[where].argmax() == cue for cue, drop in zip(cues, drops, strict=True)]
    by_map = [one[where].argmax() == cue for cue, one in zip(cues, given, strict=True)]
    assert np.mean(by_decision) >= 0.9
    assert np.mean(by_map) >= 0.8
    control = np.concatenate(
        [np.delete(drop[where], cue) for cue, drop in zip(cues, drops, strict=True)]
    )
    assert abs(control.mean()) < 0.05 * lost[where].mean()
    if encoder_mixes:  # then no position of the decoder stands for the word alone, and both say so
        in_decoder = [
            drop["decoder", 0].argmax() == cue for cue, drop in zip(cues, drops, strict=True)
        ]
        assert np.mean(in_decoder) < 0.7


@pytest.mark.long
def test_an_explanation_of_the_answer_names_the_tone_wherever_it_is_mixed(trained):
    """By what is lost without it, before prompt and answer; by the gradient, before the other
    tones."""
    _, model = trained
    asked, first = model.with_prompt(tones.PROMPT), {"occlusion": [], "gradient_input": []}
    for clip, answer in tones.clips(N_CLIPS, seed=7):
        why = speechmix.explain(asked, clip, against="runner_up")
        if why.text != answer:
            continue
        place = why.choice(answer, "runner_up")
        top = why.top(answer, "occlusion", "runner_up")
        first["occlusion"].append((top.side, top.source.index) == ("sound", clip.cue))
        sizes = why.attributions["gradient_input"].values[place, : tones.N_WORDS]
        first["gradient_input"].append(sizes.argmax() == clip.cue)
        others = np.delete(why.drops[place, : tones.N_WORDS], clip.cue)
        assert np.abs(others).max() < 0.1 * why.drops[place, clip.cue]
    assert len(first["occlusion"]) >= 0.9 * N_CLIPS
    assert {measure: np.mean(named) >= 0.95 for measure, named in first.items()} == dict.fromkeys(
        first, True
    )


@pytest.mark.long
def test_an_untrained_twin_finds_nothing():
    model = speechmix.load(tones.untrained(seed=3).eval(), processor=tones.processor())
    cues, given, drops = zip(*found_by_map_and_decision(model), strict=True)
    for key in given[0]:
        assert (
            np.mean([one[key].argmax() == cue for cue, one in zip(cues, given, strict=True)]) <= 0.6
        )
        assert abs(np.mean([drop[key][cue] for cue, drop in zip(cues, drops, strict=True)])) < 0.1
