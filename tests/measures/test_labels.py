"""Labels of a classifier as objectives: read at its head, from a folder too, and what cannot be asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.interventions.decision import Decision
from speechmix.measures.labels import label_objective
from tests import text_models
from tests.conftest import build

TEXT = "the cat is very here"
LABELS = ["bad", "good", "neither"]


def classifier(labels=LABELS):
    config = build("bert", vocab_size=len(text_models.WORDS)).config
    config.update({"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = transformers.BertForSequenceClassification(config).double().eval().requires_grad_(False)
    return speechmix.load(module, processor=text_models.bert().tokenizer)


def logits(model) -> np.ndarray:
    with torch.no_grad():
        return model.module(**model.tokenizer(TEXT, return_tensors="pt")).logits[0].numpy()


def log_softmax(values: np.ndarray) -> np.ndarray:
    return values - np.log(np.exp(values).sum())


def test_the_margin_is_that_of_the_label_given():
    model = classifier()
    decision, given = Decision.of(model, TEXT), logits(model)
    assert decision.margin == pytest.approx(log_softmax(given).max(), abs=1e-12)
    assert decision.objective.details["label"] == LABELS[given.argmax()]
    assert decision.rows_at == [0]
    assert [source.label for source in decision.sources["encoder"]] == TEXT.split()


def test_named_labels_and_their_contrast():
    model, given = classifier(), logits(classifier())
    assert Decision.of(model, TEXT, objective=("bad",)).margin == pytest.approx(given[0], abs=1e-12)
    contrast = Decision.of(model, TEXT, objective=("good", "bad"))
    assert contrast.margin == pytest.approx(given[1] - given[0], abs=1e-12)
    assert contrast.has_foil
    chances = np.exp(log_softmax(given))
    assert Decision.of(model, TEXT, objective="probability").margin == pytest.approx(chances.max(), abs=1e-12)


def test_gradients_and_knock_outs_of_a_label():
    model = classifier()
    shown = speechmix.mix(model, TEXT, measures="gradient_input", units="token")["gradient_input", "encoder"]
    assert shown.scores.shape == (3, 1, 7)
    assert shown.targets[0].label == LABELS[logits(model).argmax()]
    drops = speechmix.knock_out(model, TEXT)
    assert drops.scores("encoder").shape == (3, 5)
    assert np.isfinite(drops.scores("encoder")).all()


def test_a_folder_is_loaded_with_its_head(tmp_path):
    model = classifier()
    model.module.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = speechmix.load(tmp_path, dtype="float64", device="cpu")
    assert again.classifies
    assert Decision.of(again, TEXT).margin == pytest.approx(Decision.of(model, TEXT).margin, abs=1e-12)
    twin = speechmix.load(tmp_path, init="random", seed=0, device="cpu")
    assert twin.classifies


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (("ugly",), "expected one label, or two for a contrast, of bad, good, neither"),
        ("contrast", "two labels for a contrast"),
        ("ctc", "gives labels"),
    ],
)
def test_what_a_classifier_cannot_be_asked(objective, message):
    with pytest.raises(InputError, match=message):
        Decision.of(classifier(), TEXT, objective=objective)


def test_a_regression_gives_no_label():
    model = classifier(["score"])
    with pytest.raises(ModelError, match="found one number"):
        label_objective("auto", (), model, None)
