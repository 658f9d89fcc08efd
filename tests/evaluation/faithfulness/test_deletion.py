"""deletion_curves against one plain forward pass for each removal, and on a classifier that listens
to one word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from tests.conftest import build, trained
from tests.evaluation.faithfulness.planted_texts import listens_to
from tests.models import text_models

TEXT = "the cat is very here ."


def classifier(**changes):
    """A BERT of random weights with a head of three labels."""
    config = build("bert", vocab_size=len(text_models.WORDS)).config
    config.update(
        {
            "id2label": dict(enumerate("abc")),
            "label2id": {name: i for i, name in enumerate("abc")},
            **changes,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = (
            transformers.BertForSequenceClassification(config).double().eval().requires_grad_(False)
        )
    return speechmix.load(module, processor=text_models.bert().tokenizer)


def probabilities(module, ids) -> np.ndarray:
    with torch.no_grad():
        return module(input_ids=ids).logits[0].softmax(-1).numpy()


@pytest.mark.parametrize("bins", [(1, 20, 50), None])
@pytest.mark.parametrize("fill", ["mask", "remove"])
def test_every_point_is_a_plain_forward_pass(fill, bins):
    model = classifier()
    found = speechmix.deletion_curves(
        model,
        [TEXT],
        measures=["value_zeroing", "attention"],
        bins=bins,
        fill=fill,
        n_random_orders=2,
    )
    ids = model.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    intact = probabilities(model.module, ids)
    label, count = int(intact.argmax()), ids.shape[1] - 2
    maps = speechmix.mix(model, {"input_ids": ids}, measures="attention")[
        "attention", "encoder"
    ].scores
    rolled = np.eye(ids.shape[1])
    for layer in maps:  # attention leaves the residual stream out: half of it is added
        rolled = (layer / layer.sum(-1, keepdims=True) + np.eye(len(layer))) / 2 @ rolled
    order = 1 + np.argsort(-rolled[0, 1:-1], kind="stable")

    def left(places) -> float:
        changed = ids.clone()
        if fill == "mask":
            changed[0, list(places)] = model.tokenizer.mask_token_id
        else:
            changed = changed[
                :, [place for place in range(ids.shape[1]) if place not in set(places)]
            ]
        return probabilities(model.module, changed)[label]

    counts = (
        range(count + 1)
        if bins is None
        else [0, *(math.ceil(percent * count / 100) for percent in bins)]
    )
    removed = [left(order[:k]) for k in counts]
    kept = [left(order[k:]) for k in counts]
    points = found.points[found.points["measure"] == "attention"]
    assert points["count"].tolist() == list(counts)
    np.testing.assert_allclose(points["removed"], removed, rtol=0, atol=1e-10)
    np.testing.assert_allclose(points["kept"], kept, rtol=0, atol=1e-10)
    assert found.texts["label"].tolist() == ["abc"[label]]
    assert found.texts["probability"][0] == pytest.approx(intact[label], abs=1e-10)
    value = found.to_dataframe()[found.to_dataframe()["measure"] == "attention"].set_index(
        "metric"
    )["value"]
    inner = slice(1, -1) if bins is None else slice(1, None)
    assert value["comprehensiveness"] == pytest.approx(
        np.mean(removed[0] - np.array(removed)[inner]), abs=1e-10
    )
    shares = 100 * np.arange(count + 1) / count if bins is None else np.array([0, *bins])
    assert value["deletion"] == pytest.approx(np.trapezoid(removed, shares) / shares[-1], abs=1e-10)
    assert value["insertion"] == pytest.approx(np.trapezoid(kept, shares) / shares[-1], abs=1e-10)


def test_the_one_word_that_counts_goes_first():
    texts = [
        "the cat is here play",
        "play the very cats",
        "the cats are very play here .",
        "cats play",
    ]
    found = speechmix.deletion_curves(
        listens_to("play"), texts, measures=["value_zeroing", "attention"], fill="unk"
    )
    assert found.left_out["item"].tolist() == ["cats play"]  # two tokens have hardly an order
    means = found.mean_curves().set_index(["measure", "share"])
    for measure in ("value_zeroing", "oracle"):
        assert means.loc[(measure, 1), "removed"] < 0.1 < 0.9 < means.loc[(measure, 1), "kept"]
    assert means.loc[("random", 1), "removed"] > 0.5
    board = found.leaderboard().set_index("measure")["value"]
    assert board["value_zeroing"] == pytest.approx(board["oracle"], abs=1e-12)
    assert board["value_zeroing"] > board["random"] > 0
    assert "3 texts in 3 groups" in found.sentence()
    assert "left 50 %" in found.text()


def test_labels_that_texts_come_with_are_compared_and_not_asked_for():
    texts = [speechmix.Sentence(TEXT, meta={"label": label}) for label in ("heard", "not")]
    found = speechmix.deletion_curves(listens_to("play"), texts, measures="attention", fill="unk")
    assert found.texts["label"].tolist() == ["not", "not"]
    assert found.accuracy == 0.5
    assert "50 % of the labels are right" in found.text()


def test_a_word_at_the_mask_is_a_label_too():
    sentence = speechmix.Sentence("the cat is very here", target="is", foil="are")
    found = speechmix.deletion_curves(
        text_models.bert(), [sentence], measures="gradient_input", bins=None
    )
    assert set(found.to_dataframe()["aggregation"]) == {"to the output", ""}
    assert found.texts["label"].tolist() == ["is"]
    curve = found.mean_curves()
    assert len(curve["share"].unique()) == 21
    ends = found.points[found.points["count"].isin([0, 4])].groupby("count")["removed"]
    assert (
        ends.agg(np.ptp) < 1e-12
    ).all()  # with none and with all removed, the order plays no part


def test_a_text_that_is_too_long_is_left_out():
    model = classifier()
    found = speechmix.deletion_curves(model, ["the cat " * 20, TEXT], measures="attention")
    (reason,) = found.left_out["reason"]
    assert "42 tokens, and BertForSequenceClassification has 40 positions: cut the text" in reason
    assert found.texts["item"].tolist() == [TEXT]


def test_a_causal_classifier_reads_its_last_token():
    config = text_models.gpt2().config.to_dict() | {
        "id2label": {0: "no", 1: "yes"},
        "pad_token_id": None,
    }
    module = (
        transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**config))
        .double()
        .eval()
    )
    model = speechmix.load(module, processor=text_models.gpt2().tokenizer)
    found = speechmix.deletion_curves(
        model, ["a cat sat"], measures="attention", bins=(50,), fill="remove"
    )
    ids = model.tokenizer("a cat sat", return_tensors="pt")["input_ids"]
    expected = probabilities(module.requires_grad_(False), ids).max()
    assert found.texts["probability"][0] == pytest.approx(expected, abs=1e-10)
    row = speechmix.mix(model, "a cat sat", units="token")["value_zeroing", "decoder"]
    assert found.texts["units"][0] == sum(span.word is not None for span in row.sources)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": (50, 10)}, "bins should be percent"),
        ({"bins": ()}, "bins should be percent"),
        ({"fill": "noise"}, "fill should be one of"),
        ({"aggregation": "best layer"}, "aggregation should be one of"),
        ({"texts": []}, "expected items"),
        ({"units": "frame"}, "units should be one of"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    texts = options.pop("texts", [TEXT])
    with pytest.raises(InputError, match=message):
        speechmix.deletion_curves(listens_to("play"), texts, **{"measures": "attention", **options})


def test_a_model_that_hears_is_sent_elsewhere():
    with pytest.raises(
        InputError, match=r"found tiny-french-ctc: for others see speechmix\.faithfulness"
    ):
        speechmix.deletion_curves(trained("tiny-french-ctc"), [TEXT])
