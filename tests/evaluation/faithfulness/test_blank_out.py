"""blank_out against brute force with transformers alone, and where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness.item_evaluation import joint_blank_out
from tests.conftest import trained
from tests.evaluation.faithfulness.planted_texts import (
    CHAMPION,
    PLANTED_SENTENCE,
    WINNER,
    listens_to,
    planted_bert,
)
from tests.models import text_models

SENTENCES = [
    speechmix.Sentence("the cat is very here", cue="cat", target="is", foil="are"),
    speechmix.Sentence("the cats play here are .", cue="cats", target="are", foil="is"),
]
MEASURES = ("value_zeroing", "attention", "gradient_input")


def probability(module, ids, place, token) -> float:
    with torch.no_grad():
        return module(input_ids=ids).logits[0, place].softmax(-1)[token].item()


def rolled_by_hand(maps, *, identity: float = 0.0):
    """Products of the layers' rows that sum to one, the identity mixed in or not, [W, W]."""
    rows = maps / maps.sum(axis=-1, keepdims=True)
    rows = (1 - identity) * rows + identity * np.eye(rows.shape[-1])
    product = rows[0]
    for layer in rows[1:]:
        product = layer @ product
    return product


@pytest.mark.parametrize("fill", ["mask", "unk"])
def test_masked_model_token_by_token(fill):
    model = text_models.bert()
    layers = ["each", "rollout", "residual rollout", "mean"]
    found = speechmix.blank_out(model, SENTENCES, measures=MEASURES, fills=fill, layers=layers)
    expected = {}
    for sentence in SENTENCES:
        ids = model.tokenizer(sentence.text, return_tensors="pt")["input_ids"]
        place = 1 + sentence.target  # each word of these is one token, behind [CLS]
        token, ids[0, place] = ids[0, place].item(), model.tokenizer.mask_token_id
        others = [position for position in range(1, ids.shape[1] - 1) if position != place]
        intact = probability(model.module, ids, place, token)
        drops = []
        for position in others:
            blanked = ids.clone()
            blanked[0, position] = getattr(model.tokenizer, f"{fill}_token_id")
            drops.append(intact - probability(model.module, blanked, place, token))
        here = found.drops[found.drops["item"] == sentence.text].set_index("word")["drop"]
        np.testing.assert_allclose(here.loc[others], drops, rtol=0, atol=1e-10)
        maps = speechmix.mix(model, {"input_ids": ids}, measures="value_zeroing")[
            "value_zeroing", "encoder"
        ].scores
        rows = {f"layer {layer}": row[place, others] for layer, row in enumerate(maps)}
        rows["rollout"] = rolled_by_hand(maps)[place, others]
        rows["residual rollout"] = rolled_by_hand(maps, identity=0.5)[place, others]
        shares = [row / row.sum() for name, row in rows.items() if name.startswith("layer")]
        rows["mean"] = np.mean(shares, axis=0)
        for name, row in rows.items():
            expected.setdefault(name, []).append(spearmanr(row, drops)[0])
    table = found.to_dataframe()[found.to_dataframe()["measure"] == "value_zeroing"].set_index(
        "aggregation"
    )
    assert set(table.index) == set(expected)
    for name, values in expected.items():
        assert table.loc[name, "value"] == pytest.approx(np.mean(values), abs=1e-10)
    assert set(table["clips"]) == {2}
    assert table["low"].isna().all()  # of two sentences there is no interval


def test_causal_model_at_the_row_that_predicts_the_target():
    model = text_models.gpt2()
    text = "a cat is"
    sentence = speechmix.Sentence(text, target="is")
    model.tokenizer.unk_token = "<unk>"
    found = speechmix.blank_out(
        model, [sentence], measures="attention", fills="unk", value="log_probability"
    )
    ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
    pieces = model.tokenizer.convert_ids_to_tokens(ids[0].tolist())
    first = 1 + max(
        place for place, piece in enumerate(pieces) if piece == "Ġ"
    )  # a space alone belongs to no word
    target = range(first, len(pieces))

    def log_probability(tokens):
        with torch.no_grad():
            scores = model.module(input_ids=tokens).logits[0].log_softmax(-1)
        return sum(scores[place - 1, ids[0, place]].item() for place in target)

    drops = []
    others = found.drops["word"].tolist()
    for place in others:
        blanked = ids.clone()
        blanked[0, place] = model.tokenizer.unk_token_id
        drops.append(log_probability(ids) - log_probability(blanked))
    assert max(others) < first
    np.testing.assert_allclose(found.drops["drop"], drops, rtol=0, atol=1e-10)
    maps = speechmix.mix(model, {"input_ids": ids}, measures="attention")[
        "attention", "decoder"
    ].scores
    value = found.to_dataframe().set_index(["measure", "aggregation"])["value"]
    row = maps[2, [place - 1 for place in target]][:, others]
    shares = (row / row.sum(axis=-1, keepdims=True)).mean(axis=0)
    assert value["attention", "layer 2"] == pytest.approx(spearmanr(shares, drops)[0], abs=1e-10)


def test_words_and_one_fill_are_the_trial_s_protocol():
    model = text_models.bert()
    found = speechmix.blank_out(
        model, SENTENCES, measures=MEASURES, fills="mask", units="word", layers="rollout"
    )
    options = {"measures": MEASURES, "protocol": "blank-out", "perturbations": "blank (mask)"}
    trial = (
        speechmix.faithfulness(model, SENTENCES, **options)
        .to_dataframe()
        .set_index("measure")["value"]
    )
    ours = found.to_dataframe().set_index("measure")["value"]
    for name in ("value_zeroing", "attention", "position", "random"):
        assert ours[name] == pytest.approx(trial[name], abs=1e-12)
    assert ours["oracle"] == 1


def test_a_classifier_that_listens_to_one_word_is_found_out():
    model = listens_to("play")
    sentences = [
        speechmix.Sentence("the cat is here play ."),
        speechmix.Sentence("play the very cats"),
    ]
    found = speechmix.blank_out(
        model, sentences, measures=["value_zeroing", "attention", "attention_norm"], fills="unk"
    )
    drops = found.drops.pivot(index="word", columns="item", values="drop")
    for sentence in sentences:
        place = 1 + [word.text for word in sentence.words].index("play")
        here = drops[sentence.text].dropna()
        assert here[place] > 0.9
        assert (here.drop(place) == 0).all()
    table = found.to_dataframe().set_index(["measure", "aggregation"])["value"]
    for measure in ("value_zeroing", "attention_norm"):
        assert table[measure, "layer 0"] == pytest.approx(1, abs=1e-12)
        assert table[measure, "rollout"] == pytest.approx(1, abs=1e-12)
    assert table["attention", "layer 0"] == 0  # uniform: no order


def drops_of(case: str) -> dict[int, float]:
    found = speechmix.blank_out(
        planted_bert(case), [PLANTED_SENTENCE], measures="value_zeroing", fills="unk"
    )
    return dict(zip(found.drops["word"], found.drops["drop"], strict=True))


def test_a_copied_cue_is_the_only_one_that_costs_something():
    drops = drops_of("copy")
    assert max(drops, key=drops.get) == WINNER
    assert drops.pop(WINNER) > 0.5
    assert max(map(abs, drops.values())) < 0.02


def test_redundant_cues_cost_nothing_one_by_one_and_all_together():
    drops = drops_of("redundant")
    assert max(map(abs, drops.values())) < 0.002
    pairs = joint_blank_out(planted_bert("redundant"), PLANTED_SENTENCE, fill="unk")
    first, others = pairs.iloc[0], pairs.iloc[1:]
    assert (first["first_unit"], first["second_unit"]) == (WINNER, CHAMPION)
    assert first["together"] > 0.5
    assert (others["redundancy"].abs() < 0.002).all()


def test_pairs_are_plain_forward_passes():
    model, sentence = text_models.bert(), SENTENCES[0]
    pairs = joint_blank_out(model, sentence, fill="mask", value="log_probability")
    ids = model.tokenizer("the cat [MASK] very here", return_tensors="pt")["input_ids"]
    token = model.tokenizer.convert_tokens_to_ids("is")

    def left(*places):
        changed = ids.clone()
        changed[0, list(places)] = model.tokenizer.mask_token_id
        return np.log(probability(model.module, changed, 3, token))

    assert len(pairs) == 6
    for pair in pairs.itertuples():
        i, j = pair.first_unit, pair.second_unit
        assert pair.together == pytest.approx(left() - left(i, j), abs=1e-10)
        assert pair.redundancy == pytest.approx(left(i) + left(j) - left() - left(i, j), abs=1e-10)
    assert pairs["redundancy"].is_monotonic_decreasing
    with pytest.raises(InputError, match="a value of"):
        joint_blank_out(model, sentence, value="margin")


def test_several_models_fills_and_a_measure_that_only_one_has():
    models = [text_models.bert(), text_models.gpt2()]
    found = speechmix.blank_out(
        models, SENTENCES[:1], measures=["attention", "globenc"], fills=["mask", "unk", "remove"]
    )
    assert found.left_out.iloc[-1]["what"] in ("globenc", "blank (mask, unk, remove)")
    bert = found.to_dataframe()[found.to_dataframe()["model"] == "BertForMaskedLM"]
    mean, *fills = perturbations = [
        f"blank ({name})" for name in ("mask, unk, remove", "mask", "unk", "remove")
    ]
    assert list(dict.fromkeys(bert["perturbation"])) == perturbations
    drops = found.drops[found.drops["model"] == "BertForMaskedLM"].pivot(
        index="word", columns="perturbation", values="drop"
    )
    np.testing.assert_allclose(drops[fills].mean(axis=1), drops[mean])
    text = found.text()
    assert "BertForMaskedLM: 1 sentence, blank (mask, unk, remove)" in text
    assert "globenc" in text
    assert "oracle 1.00" in text
    assert "blank (mask)" in found.text("blank (mask)").splitlines()[0]
    with pytest.raises(InputError, match="perturbation should be one of"):
        found.text("blank (pad)")


def test_models_of_one_name_stay_two():
    bert = text_models.bert()
    found = speechmix.blank_out(
        [bert, bert], SENTENCES, measures="attention", fills="mask", layers="mean"
    )
    assert list(found.to_dataframe()["model"].unique()) == [
        "BertForMaskedLM",
        "BertForMaskedLM (2)",
    ]
    one, two = (part["value"].tolist() for _, part in found.to_dataframe().groupby("model"))
    assert one == two


def test_a_mask_as_the_target_asks_for_the_likeliest_token():
    model = text_models.bert()
    sentence = speechmix.Sentence("the cat <mask> very here", target="<mask>")
    found = speechmix.blank_out(
        model, [sentence], measures="attention", fills="unk", layers="rollout"
    )
    ids = model.tokenizer("the cat [MASK] very here", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        token = model.module(input_ids=ids).logits[0, 3].argmax().item()
    blanked = ids.clone()
    blanked[0, 1] = model.tokenizer.unk_token_id
    expected = probability(model.module, ids, 3, token) - probability(
        model.module, blanked, 3, token
    )
    assert found.drops.set_index("word")["drop"][1] == pytest.approx(expected, abs=1e-10)


def test_margin_needs_a_foil_and_the_others_are_still_judged():
    sentences = [SENTENCES[0], SENTENCES[1].replace(foil=None)]
    found = speechmix.blank_out(
        text_models.bert(), sentences, measures="attention", fills="mask", value="margin"
    )
    assert set(found.values["item"]) == {SENTENCES[0].text}
    assert "the margin needs foil=" in found.left_out["reason"].iloc[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fills": "noise"}, "fills are some of"),
        ({"layers": "best layer"}, "layers are some of"),
        ({"layers": ()}, "layers are some of"),
        ({"value": "logit"}, "value should be one of"),
        ({"measures": "nothing"}, "unknown measure 'nothing'"),
        ({"units": "frame"}, "units should be one of"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        speechmix.blank_out(
            text_models.bert(), SENTENCES[:1], **{"measures": "attention", **options}
        )


def test_models_that_hear_and_no_sentences_are_refused():
    with pytest.raises(
        InputError,
        match="expected masked or causal models or classifiers of texts, found tiny-french-ctc",
    ):
        speechmix.blank_out(trained("tiny-french-ctc"), SENTENCES)
    with pytest.raises(InputError, match="expected items"):
        speechmix.blank_out(text_models.bert(), [], measures="attention")
    with pytest.raises(InputError, match="globenc is defined for post-norm"):
        speechmix.blank_out(text_models.gpt2(), SENTENCES, measures="globenc")
