"""Labels of a classifier as objectives: read at its head, from a folder too, and what cannot be
asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.interventions.decision import Decision
from speechmix.mixing.measures.token_objectives import label_objective
from tests.conftest import build
from tests.models import text_models
from tests.scoring.test_mix import clip_of

TEXT = "the cat is very here"
LABELS = ["bad", "good", "neither"]


def classifier(labels=LABELS):
    config = build("bert", vocab_size=len(text_models.WORDS)).config
    config.update(
        {
            "id2label": dict(enumerate(labels)),
            "label2id": {name: i for i, name in enumerate(labels)},
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = (
            transformers.BertForSequenceClassification(config).double().eval().requires_grad_(False)
        )
    return speechmix.load(module, processor=text_models.bert().tokenizer)


def logits(model) -> np.ndarray:
    with torch.no_grad():
        return model.module(**model.tokenizer(TEXT, return_tensors="pt")).logits[0].numpy()


def log_softmax(values: np.ndarray) -> np.ndarray:
    return values - np.log(np.exp(values).sum())


def test_the_margin_is_that_of_the_label_given():
    model = classifier()
    decision, given = Decision.prepare(model, TEXT), logits(model)
    assert decision.margin == pytest.approx(log_softmax(given).max(), abs=1e-12)
    assert decision.objective.details["label"] == LABELS[given.argmax()]
    assert decision.deciding_rows == [0]
    assert [source.label for source in decision.sources["encoder"]] == TEXT.split()


def test_named_labels_and_their_contrast():
    model, given = classifier(), logits(classifier())
    assert Decision.prepare(model, TEXT, objective=("bad",)).margin == pytest.approx(
        given[0], abs=1e-12
    )
    contrast = Decision.prepare(model, TEXT, objective=("good", "bad"))
    assert contrast.margin == pytest.approx(given[1] - given[0], abs=1e-12)
    assert contrast.has_foil
    assert Decision.prepare(model, TEXT, objective=(1, 0)).margin == contrast.margin
    first, second = np.sort(given)[::-1][:2]
    runner_up = Decision.prepare(model, TEXT, objective="contrast")
    assert runner_up.margin == pytest.approx(first - second, abs=1e-12)
    chances = np.exp(log_softmax(given))
    assert Decision.prepare(model, TEXT, objective="probability").margin == pytest.approx(
        chances.max(), abs=1e-12
    )


def test_gradients_and_knock_outs_of_a_label():
    model = classifier()
    shown = speechmix.mix(model, TEXT, measures="gradient_input", units="token")[
        "gradient_input", "encoder"
    ]
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
    assert again.has_label_head
    assert Decision.prepare(again, TEXT).margin == pytest.approx(
        Decision.prepare(model, TEXT).margin, abs=1e-12
    )
    twin = speechmix.load(tmp_path, init="random", seed=0, device="cpu")
    assert twin.has_label_head


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (("ugly",), "expected a label, or its number from 0, of bad, good, neither; found 'ugly'"),
        ((3,), "expected a label, or its number from 0"),
        (("bad", "good", "neither"), "or two for a contrast"),
        ("ctc", "gives labels"),
    ],
)
def test_what_a_classifier_cannot_be_asked(objective, message):
    with pytest.raises(InputError, match=message):
        Decision.prepare(classifier(), TEXT, objective=objective)


def test_a_regression_gives_no_label():
    model = classifier(["score"])
    with pytest.raises(ModelError, match="found one number"):
        label_objective("auto", (), model, None)


def ast():
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = transformers.ASTConfig(
        **sizes, max_length=40, num_mel_bins=32, id2label=dict(enumerate(LABELS))
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.ASTForAudioClassification(config).double()
        features = {"input_values": torch.randn(1, 40, 32, dtype=torch.float64)}
    return speechmix.load(module), features


def wav2vec2():
    layers = {
        "conv_dim": (16, 16),
        "conv_kernel": (10, 3),
        "conv_stride": (40, 8),
        "num_feat_extract_layers": 2,
    }
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(
        **layers, **sizes, **positions, id2label=dict(enumerate(LABELS))
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.Wav2Vec2ForSequenceClassification(config).double()
    return speechmix.load(module, processor=transformers.Wav2Vec2FeatureExtractor()), clip_of()


@pytest.mark.parametrize("build_one", [ast, wav2vec2])
def test_the_label_of_a_sound(build_one):
    model, item = build_one()
    asked = speechmix.mix(model, item, measures="gradient_input", objective=("good", "bad"))[
        "gradient_input", "encoder"
    ]
    by_hand = speechmix.mix(
        model,
        item,
        measures="gradient_input",
        objective=lambda output: output.logits[0, 1] - output.logits[0, 0],
    )
    np.testing.assert_array_equal(asked.scores, by_hand["gradient_input", "encoder"].scores)
    assert asked.scores.any()
    assert asked.targets[0].label == "good"
    parts = speechmix.logit_contributions(model, item, measure="lrp", objective=("good",))
    decision = Decision.prepare(model, item, objective=("good",)) if build_one is wav2vec2 else None
    assert decision is None or decision.input_margin(decision.prepared.inputs) == pytest.approx(
        parts.logit
    )
    assert abs(parts.error) < 1e-9
    assert "position" not in repr(parts)
    decompx = speechmix.logit_contributions(model, item, measure="decompx", objective=("good",))
    assert decompx.logit == pytest.approx(parts.logit)
    with pytest.raises(InputError):  # reads one position, of which there are several here
        speechmix.logit_contributions(model, item, measure="alti_logit", objective=("good",))
    with pytest.raises(
        InputError, match=r"read off a mean of several positions: ask gradient_input"
    ):
        speechmix.mix(model, item, measures="chefer", objective=("good",))
    with pytest.raises(InputError, match="of bad, good, neither"):
        speechmix.mix(model, item, measures="gradient_input", objective=("ugly",))


@pytest.mark.parametrize("by", ["word", "token"])
def test_the_label_of_a_text_is_explained_as_by_hand(by):
    model, given = classifier(), logits(classifier())
    label = given.argmax()
    true = next(index for index in range(3) if index != label)
    why = speechmix.explain(
        model,
        speechmix.Sentence(TEXT, meta={"label": LABELS[true]}),
        by=by,
        token_fill="mask",
        measures=["occlusion", "value_zeroing"],
    )
    assert why.text == LABELS[label]
    assert [source.label for source in why.sources] == TEXT.split()
    assert why.values == pytest.approx(
        [log_softmax(given)[label], given[label] - given[true]], abs=1e-9
    )
    ids = model.tokenizer(TEXT, return_tensors="pt")
    ids["input_ids"][0, 2] = model.tokenizer.mask_token_id
    with torch.no_grad():
        without = model.module(**ids).logits[0].numpy()
    assert why.value_without[:, 1] == pytest.approx(
        [log_softmax(without)[label], without[label] - without[true]], abs=1e-9
    )
    by_layer = speechmix.mix(model, TEXT, units="token")["value_zeroing", "encoder"]
    rollout = by_layer.rollout(residual="strength")
    np.testing.assert_allclose(
        why.attributions["value_zeroing"].values[0], rollout.scores[-1, 0, 1:-1], rtol=1e-6
    )
