"""Accuracy of the two-word choice: against transformers alone, and on models whose answers are
known because they were set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from scipy.stats import binomtest

import speechmix
from speechmix import Sentence
from speechmix.errors import InputError
from speechmix.extensions.agreement.item_scoring import (
    accuracy_sentence,
    choice_margin,
    item_accuracy,
)
from speechmix.extensions.planted.planting import plant
from tests.models import text_models

SENTENCES = [
    ("the cat is here .", 2, "are"),
    ("the cats are very here .", 2, "is"),
    ("cat play .", 1, "is"),
]


def test_a_masked_model_is_asked_at_its_mask():
    model = text_models.bert()
    tokenizer = model.tokenizer
    for text, target, foil in SENTENCES:
        words = text.split()
        form, words[target] = words[target], "[MASK]"
        ids = tokenizer(" ".join(words), return_tensors="pt")
        with torch.no_grad():
            scores = model.module(**ids).logits[0].log_softmax(dim=-1)
        place = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        expected = (
            scores[place, tokenizer.convert_tokens_to_ids(form)]
            - scores[place, tokenizer.convert_tokens_to_ids(foil)]
        )
        found = choice_margin(model, Sentence(text, target=target, foil=foil))
        assert found["margin"] == pytest.approx(expected.item(), abs=1e-10)
        assert found["right"] == (expected > 0)


def test_a_causal_model_is_asked_before_the_word():
    model = text_models.gpt2()
    for text, target, foil in SENTENCES:
        before = " ".join(text.split()[:target]) + " "
        ids = model.tokenizer(before, return_tensors="pt")
        with torch.no_grad():
            scores = model.module(**ids).logits[0, -1].log_softmax(dim=-1)
        forms = [
            model.tokenizer.convert_tokens_to_ids(form[0]) for form in (text.split()[target], foil)
        ]
        found = choice_margin(model, Sentence(text, target=target, foil=foil))
        assert found["margin"] == pytest.approx(
            (scores[forms[0]] - scores[forms[1]]).item(), abs=1e-10
        )


def test_without_a_foil_there_is_no_choice():
    with pytest.raises(InputError, match="has no foil"):
        choice_margin(text_models.bert(), Sentence("the cat is here .", target=2))


def planted_bert(case: str, *, singular: int):
    """A BERT with set weights that writes "have" or "has" by what stands at position 2; which noun
    is which is ours to say."""
    plural = 3 - singular  # tokens 1 and 2 carry content +1 and -1
    vocabulary = {"[CLS]": 0, "have": 3, "has": 4, "dog": 5, "[MASK]": 6, "[SEP]": 7}
    vocabulary |= {"lady": singular, "ladies": plural}
    tokenizer = transformers.BertTokenizer(vocab=vocabulary, unk_token="[CLS]", pad_token="[SEP]")
    module = plant(case, family="bert").model.module
    return speechmix.load(module, processor=tokenizer, check=False)


ITEMS = [
    (f"the {noun} of the {other} {form}", foil, number)
    for other in ("house", "street")  # unknown words: empty tokens
    for noun, form, foil, number in (
        ("ladies", "have", "has", "plural"),
        ("lady", "has", "have", "singular"),
    )
]


def decided(model) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "item": text,
            "model": "planted",
            "init": "trained",
            "number": number,
            **choice_margin(model, Sentence(text, target=text.split()[-1], foil=foil)),
        }
        for text, foil, number in ITEMS
    )


def test_a_model_in_which_the_task_is_planted_does_it_and_its_mirror_image_never():
    assert item_accuracy(decided(planted_bert("copy", singular=2))).accuracy.tolist() == [1.0]
    assert item_accuracy(decided(planted_bert("copy", singular=1))).accuracy.tolist() == [0.0]


def test_a_model_that_always_says_the_same_is_at_chance_and_found_out_by_number():
    table = decided(planted_bert("nothing", singular=2))
    share = item_accuracy(table).iloc[0]
    assert share.accuracy == 0.5
    told = accuracy_sentence("planted", *share[["accuracy", "low", "high", "items"]])
    assert "its maps cannot show how it does it" in told
    by_number = item_accuracy(table, by=["number"]).set_index("number").accuracy
    assert by_number.to_dict() == {"plural": 1.0, "singular": 0.0}


@pytest.mark.parametrize(("right", "items"), [(0, 5), (5, 5), (48, 50), (26, 50), (1, 1)])
def test_the_interval_is_wilsons(right, items):
    table = pd.DataFrame(
        {"item": range(items), "right": np.arange(items) < right, "model": "m", "init": "trained"}
    )
    expected = binomtest(right, items).proportion_ci(method="wilson")
    found = item_accuracy(table).iloc[0]
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-10)
    assert found["items"] == items


def test_seeds_of_twins_are_averaged_for_each_item():
    table = pd.DataFrame(
        {"item": ["a", "a", "b", "b"], "right": [True, False, True, True], "seed": [0, 1, 0, 1]}
    )
    found = item_accuracy(table.assign(model="m", init="random")).iloc[0]
    assert (found.accuracy, found["items"]) == (0.75, 2)
    with pytest.raises(InputError, match="and init missing"):
        item_accuracy(table.assign(model="m"))
