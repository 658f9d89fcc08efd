"""Several fills: named by the token that is really fed, the median with its range, and said where
they disagree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.explain.fills import default_text_fills
from speechmix.extensions.explain.model_text import write_about_clip
from speechmix.extensions.explain.page import explanation_view
from speechmix.extensions.explain.removals import make_removals
from speechmix.interventions.removals import change_inputs
from tests.explanations.test_explain import (
    CTC,
    WHISPER,
    clip_named,
    fed_ids,
    log_probabilities,
    model_named,
)
from tests.models.text_models import bart, bert, gpt2


@pytest.fixture(scope="module")
def explained():
    return speechmix.explain(
        model_named(WHISPER),
        clip_named(),
        measures=["occlusion", "alti_logit"],
        token_fill=[" ", "e", "remove"],
    )


def test_fills_are_named_by_the_token_that_is_fed():
    assert [fill.label for fill in default_text_fills(model_named(WHISPER))] == [
        "a space",
        '"e"',
        "removal",
    ]
    assert [fill.label for fill in default_text_fills(bert())] == ["[MASK]", "[UNK]", "removal"]
    assert [fill.label for fill in default_text_fills(bart())] == ["<mask>", "<unk>", "removal"]
    assert [fill.label for fill in default_text_fills(gpt2())][-1] == "removal"
    # What Whisper's tokenizer calls unknown is its end of text.
    why = speechmix.explain(
        model_named(WHISPER),
        clip_named(),
        measures="occlusion",
        token_fill="unk",
        sound_fill="zeros",
    )
    assert [fill.label for fill in why.fills] == ["silence", "<|endoftext|>"]
    assert "unk" not in str(why.provenance)


def test_an_earlier_word_is_replaced_by_its_best_alternatives():
    """By hand: the likeliest other first tokens of the word, in its place; the effect closest to zero counts."""
    model, clip = model_named(WHISPER), clip_named()
    why = speechmix.explain(model, clip, measures="occlusion")
    assert [fill.name for fill in why.fills[2:]] == ["alternative", "second_alternative"]
    ids, place = fed_ids(model, clip), why.choice("maisons")
    index = next(i for i, source in enumerate(why.sources) if source.side == "written")
    positions = why.sources[index].source.positions
    scores = log_probabilities(model, clip, ids)

    def letters(id_):
        return "".join(c for c in model.tokenizer.decode([id_]).lower() if c.isalnum())

    spelled = [p for p in positions if letters(ids[p])]
    word = "".join(letters(ids[p]) for p in spelled)
    special = set(model.tokenizer.all_special_ids)
    begins = model.tokenizer.convert_ids_to_tokens(ids[spelled[0]]).startswith("Ġ")
    others = [
        id_
        for id_ in scores[spelled[0] - 1].argsort(descending=True).tolist()
        if letters(id_)
        and id_ not in special
        and not word.startswith(letters(id_))
        and model.tokenizer.convert_ids_to_tokens(id_).startswith("Ġ") == begins
    ]
    tokens = [why.tokens[token] for token in why.choices[place].tokens]
    values = []
    for row, other in enumerate(others[:2], start=2):
        fed = [other if p == spelled[0] else id_ for p, id_ in enumerate(ids)]
        changed = log_probabilities(model, clip, fed)  # it spells by letters: the others stay
        value = sum(float(changed[token.position, token.id]) for token in tokens)
        assert why.value_by_fill[row, place, index] == pytest.approx(value, abs=1e-8)
        values.append(why.values[place] - value)
    closest = min(values, key=abs) if np.prod(np.sign(values)) > 0 else 0.0
    assert why.drops[place, index] == pytest.approx(closest, abs=1e-8)


def test_the_effect_is_the_median_over_fills_with_its_range(explained):
    assert [fill.label for fill in explained.fills] == [
        "silence",
        "noise",
        "a space",
        '"e"',
        "removal",
    ]
    place = explained.choice("maisons")
    index = next(i for i, source in enumerate(explained.sources) if source.side == "written")
    drops = explained.drop_by_fill[2:, place, index]
    assert np.isnan(explained.drop_by_fill[:2, place, index]).all()
    low, high = explained.drop_range
    found = [low[place, index], explained.drops[place, index], high[place, index]]
    np.testing.assert_allclose(found, np.sort(drops))
    assert high[place, index] - low[place, index] > 5  # one fill is no evidence
    table = explained.effects_to_dataframe().query(
        "written == 'maisons' and side == 'written' and label == 'nos'"
    )
    assert dict(zip(table["fill"], table["drop"], strict=True)) == dict(
        zip(["a space", '"e"', "removal"], drops, strict=True)
    )


def test_each_fill_is_the_intervention(explained):
    """By hand: the ids with other tokens, and without them, where all that follows moves up."""
    model, clip = model_named(WHISPER), clip_named()
    ids, place = fed_ids(model, clip), explained.choice("maisons")
    index = next(i for i, source in enumerate(explained.sources) if source.side == "written")
    positions = explained.sources[index].source.positions
    tokens = [explained.tokens[token] for token in explained.choices[place].tokens]
    for row, fill in enumerate(explained.fills[2:], start=2):
        if fill.token is None:
            fed, moved = [id_ for p, id_ in enumerate(ids) if p not in positions], len(positions)
        else:
            fed, moved = [fill.token if p in positions else id_ for p, id_ in enumerate(ids)], 0
        scores = log_probabilities(model, clip, fed)
        value = sum(float(scores[token.position - moved, token.id]) for token in tokens)
        assert explained.value_by_fill[row, place, index] == pytest.approx(value, abs=1e-8), (
            fill.label
        )


def test_noise_and_silence_are_both_tried_by_default():
    model, clip = model_named(CTC), clip_named()
    why = speechmix.explain(model, clip, measures="occlusion")
    for row, name in enumerate(("zeros", "noise")):
        scores = log_probabilities(model, speechmix.mute(clip, 0, fill=name))
        value = sum(
            float(scores[why.tokens[t].position, why.tokens[t].id]) for t in why.choices[1].tokens
        )
        assert why.value_by_fill[row, 1, 0] == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(why.value_without, why.value_by_fill.mean(axis=0))


def test_removed_tokens_of_a_text_that_is_read():
    why = speechmix.explain(
        bert(), "the cats <mask> here", measures="occlusion", token_fill="remove"
    )
    model = bert()
    ids = model.tokenizer(
        "the [MASK] here"
    ).input_ids  # without "cats", which is two tokens of the vocabulary or one
    with torch.no_grad():
        scores = model.module(input_ids=torch.tensor([ids])).logits[0].log_softmax(dim=-1)
    place = [source.label for source in why.sources].index("cats")
    mask = ids.index(model.tokenizer.mask_token_id)
    assert why.value_without[0, place] == pytest.approx(
        float(scores[mask, why.tokens[0].id]), abs=1e-9
    )


def test_a_prompt_of_one_word_cannot_be_left_out():
    """Nothing would be before the text that is explained; the other fills count."""
    why = speechmix.explain(gpt2(), "x", text=" ab", measures="occlusion")
    rows = {fill.label: why.value_by_fill[row, 0, 0] for row, fill in enumerate(why.fills)}
    assert np.isnan(rows.pop("removal"))
    assert np.isfinite(list(rows.values())).all()
    assert np.isfinite(why.value_without[0, 0])


def test_a_set_is_removed_with_each_fill_of_both_sides(explained):
    writing = write_about_clip(model_named(WHISPER), clip_named(), text=None, by_token=False)
    sound, written = (
        next(s for s in writing.sources if s.side == side) for side in ("sound", "written")
    )
    from speechmix.extensions.explain.fills import choose_fills

    fills = choose_fills(writing, sound=None, text=[" ", "e", "remove"])
    names = [(a.label, b.label) for a, b in fills.combinations([sound, written])]
    assert names == [("silence", "a space"), ("noise", '"e"'), ("silence", "removal")]
    assert [fill.label for (fill,) in fills.combinations([sound])] == ["silence", "noise"]
    removals = make_removals(writing, [3], [fills.text[-1]])
    inputs, rows = change_inputs(
        writing.model, writing.decision.item, writing.decision.prepared.inputs, removals
    )
    assert inputs["decoder_input_ids"].shape[1] < writing.inputs["decoder_input_ids"].shape[1]
    assert len(rows) == writing.inputs["decoder_input_ids"].shape[1]


def test_fills_that_disagree_are_said():
    why = speechmix.explain(model_named(CTC), clip_named(), measures="occlusion", against="foil")
    place = why.choice("maisons", "foil")
    firsts = [int(np.nanargmax(drops[place])) for drops in why.drop_by_fill]
    assert firsts == [1, 0]  # silence names the word, noise its cue
    told = explanation_view(why, sound=False)["choices"][place]["remarks"]["all"]
    expected = (
        "The segment of the sound with the largest effect differs between fills. With silence, it is "
        "maisons (own sound). With noise, it is nos."
    )
    assert expected in told
    assert expected in why.details()


def test_measures_and_effects_that_disagree_are_said(explained):
    place = explained.choice("maisons")
    sentence = (
        "Removing nos (written) has the largest effect. However, alti logit assigns the highest "
        "score to maisons (own sound)."
    )
    assert sentence in explanation_view(explained, sound=False)["choices"][place]["remarks"]["all"]
    assert sentence in explained.details()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_fill": "sept"}, "has no such token"),
        ({"sound_fill": ["zeros", "hum"]}, "should be some of"),
    ],
)
def test_what_is_no_fill(options, message):
    with pytest.raises(InputError, match=message):
        speechmix.explain(model_named(WHISPER), clip_named(), measures="occlusion", **options)
