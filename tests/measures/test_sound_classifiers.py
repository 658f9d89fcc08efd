"""Classifiers of sound, each class of transformers' mapping that is supported: pooling of the head,
removals and knock-outs against runs by hand, and `explain` for a label."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES

import speechmix
from speechmix.errors import InputError
from speechmix.interventions.decision import Decision
from tests.models.audio_classifiers import (
    CLASSIFIERS,
    LABELS,
    build_classifier,
    classifier,
    clip,
    sound,
)

# SEW-D has no family table; it loads by tracing, or is refused.
SUPPORTED = [name for name in CLASSIFIERS if name != "sew-d"]
CONFORMERS = ("wav2vec2-bert", "wav2vec2-conformer")
WEIGHTED = [name for name in SUPPORTED if name != "ast"]
LIKE_OTHERS = ("data2vec-audio", "unispeech", "unispeech-sat", "wav2vec2-conformer")
WITH_LONG = [
    pytest.param(name, marks=[pytest.mark.long] * (name in LIKE_OTHERS)) for name in SUPPORTED
]


def inputs_of(model, samples) -> dict[str, torch.Tensor]:
    """What the feature extractor makes of a sound, without speechmix."""
    extracted = model.feature_extractor(samples, sampling_rate=16_000, return_tensors="pt")
    return {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in extracted.items()
        if name != "attention_mask" or "bert" in type(model.module).__name__.lower()
    }


def logits_by_hand(model, samples) -> np.ndarray:
    with torch.no_grad():
        return model.module(**inputs_of(model, samples)).logits[0].numpy()


def log_softmax(values):
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


def test_every_class_of_the_mapping_is_here():
    built = {class_name for _, class_name, *_ in CLASSIFIERS.values()}
    assert set(MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES.values()) <= built


@pytest.mark.parametrize("name", WITH_LONG)
def test_removals_of_words_are_those_by_hand(name):
    model, muted = classifier(name), sound().copy()
    table = speechmix.ablate_input(model, clip(), fills=["zeros"], objective=("sad",)).table
    assert table["label"].tolist() == ["les", "amis", "sont", "partis"]
    intact = logits_by_hand(model, muted)[2]
    removed = speechmix.mute(clip(), [2], fill="zeros").audio(16_000)
    assert not removed[10_000:12_500].any()
    drop = intact - logits_by_hand(model, removed)[2]
    assert table["drop"][2] == pytest.approx(drop, abs=1e-9)
    # The target and the foil of a clip are words, and no labels.
    with_foil = clip(text="les amis sont partis", cue=1, target=3, foil="parties")
    other = speechmix.ablate_input(model, with_foil, fills=["zeros"], objective=("sad",)).table
    np.testing.assert_allclose(other["drop"], table["drop"], atol=1e-12)


@pytest.mark.parametrize("name", SUPPORTED)
def test_labels_by_name_number_and_runner_up(name):
    model, logits = classifier(name), logits_by_hand(classifier(name), sound())
    order = np.argsort(-logits)

    def margin(objective):
        return Decision.prepare(model, clip(), objective=objective).margin

    assert margin(("happy",)) == margin((1,)) == pytest.approx(logits[1], abs=1e-9)
    assert margin(("happy", "calm")) == pytest.approx(logits[1] - logits[3], abs=1e-9)
    assert margin("contrast") == pytest.approx(logits[order[0]] - logits[order[1]], abs=1e-9)
    assert margin(None) == pytest.approx(log_softmax(logits).max(), abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", WITH_LONG)
def test_parts_add_up_to_the_logit_of_the_model(name, weighted):
    if weighted and name not in WEIGHTED:
        pytest.skip("AST has no weighted sum of layers")
    options = {"use_weighted_layer_sum": True} if weighted else {}
    model = classifier(name, **options)
    logits = logits_by_hand(model, sound())
    for measure in ("lrp", "decompx"):
        undefined = name in CONFORMERS or (measure == "decompx" and (weighted or name == "sew"))
        for labels, logit in ((("sad",), logits[2]), (("sad", "angry"), logits[2] - logits[0])):
            if undefined:
                with pytest.raises(InputError, match=r"Use |or remove words"):
                    speechmix.logit_contributions(model, clip(), objective=labels, measure=measure)
                continue
            parts = speechmix.logit_contributions(
                model, clip(), objective=labels, measure=measure, dtype="float64"
            )
            assert parts.logit == pytest.approx(logit, abs=1e-9)
            assert abs(parts.error) < 1e-9


@pytest.mark.parametrize("name", ["wav2vec2", "whisper", "wavlm"])
def test_decompx_pools_as_an_affine_head_does(name):
    """The head is affine behind the encoder: with its weights doubled, every part is doubled, and
    with the row of a label in another label's place, parts are those of the first."""
    parts = []
    for factor, label in ((1, "sad"), (2, "sad"), (1, "angry")):
        module = build_classifier(name)
        module.classifier.weight.data *= factor
        module.classifier.weight.data[0] = module.classifier.weight.data[2]
        module.classifier.bias.data.zero_()
        model = speechmix.load(module, processor=CLASSIFIERS[name][3]())
        contributions = speechmix.logit_contributions(
            model, clip(), objective=(label,), measure="decompx", dtype="float64"
        )
        parts.append(contributions.total("encoder"))
    np.testing.assert_allclose(parts[1], 2 * parts[0], atol=1e-9)
    np.testing.assert_allclose(parts[2], parts[0], atol=1e-9)


def test_decompx_of_a_recogniser_whose_config_weights_layers():
    """A CTC head reads the last layer, whatever the config says of a classifier's head."""
    _, _, options, _ = CLASSIFIERS["wav2vec2"]
    config = transformers.Wav2Vec2Config(**{**options, "use_weighted_layer_sum": True})
    torch.manual_seed(0)
    model = speechmix.load(transformers.Wav2Vec2ForCTC(config).double().eval())
    inputs = {"input_values": torch.tensor(sound())[None].double()}
    parts = speechmix.logit_contributions(
        model, inputs, objective=(5, 3), measure="decompx", dtype="float64"
    )
    assert abs(parts.error) < 1e-9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "name", [case for case in WITH_LONG if case.values[0] not in ("wavlm", "ast")]
)
def test_knock_outs_are_those_by_hand(name, weighted):
    model = classifier(name, use_weighted_layer_sum=weighted)
    decision = Decision.prepare(model, clip())
    table = speechmix.knock_out(model, clip(), words=[1]).table
    encoder = model.module.encoder if name == "whisper" else model.base.encoder
    for row in table.itertuples():
        positions = list(decision.sources["encoder"][1].positions)
        modules = encoder.layers[int(row.layer)].named_modules()
        value = next(
            part for part_name, part in modules if part_name.endswith(("v_proj", "linear_v"))
        )

        def zero(module, args, output, positions=positions):
            changed = output.clone()
            changed[:, positions] = 0
            return changed

        handle = value.register_forward_hook(zero)
        try:
            logits = logits_by_hand(model, sound())
        finally:
            handle.remove()
        assert row.margin == pytest.approx(
            log_softmax(logits)[decision.objective.details["label_id"]]
        )


@pytest.mark.parametrize("name", WITH_LONG)
def test_explain_a_label(name):
    model, logits = classifier(name), logits_by_hand(classifier(name), sound())
    given = LABELS[logits.argmax()]
    true = next(label for label in LABELS if label != given)
    why = speechmix.explain(
        model, clip(meta={"label": true}), against=("reference", "runner_up"), sound_fill="zeros"
    )
    assert why.text == given
    assert [source.label for source in why.sources] == ["les", "amis", "sont", "partis"]
    assert why.values[0] == pytest.approx(log_softmax(logits).max(), abs=1e-9)
    against = why.choice(given, "reference")
    assert why.values[against] == pytest.approx(logits.max() - logits[LABELS.index(true)], abs=1e-9)
    muted = speechmix.mute(clip(), [0], fill="zeros").audio(16_000)
    without = log_softmax(logits_by_hand(model, muted))[logits.argmax()]
    assert why.value_without[0, 0] == pytest.approx(without, abs=1e-9)
    assert not why.own_sound.any()
    assert "Why “" in str(why)
    assert given in why.to_html(sound=False)
    named = speechmix.explain(model, clip(), text="3", against="happy", measures="occlusion")
    assert named.text == "calm"
    contrast = logits[3] - logits[1]
    assert named.values[named.choice("calm", "foil")] == pytest.approx(contrast, abs=1e-9)
    with pytest.raises(InputError, match="expected a label"):
        speechmix.explain(model, clip(), against="bored")


@pytest.mark.parametrize("name", ["wav2vec2", "ast", "whisper"])
def test_a_clip_without_words_is_explained_by_segments(name):
    wordless = speechmix.Clip.from_array(sound(), 16_000, name="wordless")
    why = speechmix.explain(classifier(name), wordless, measures="occlusion")
    assert why.remarks == (
        "The clip has no words. The sources are segments of the sound, 0.25 s each.",
    )
    segments = [source for source in why.sources if source.side == "sound"]
    assert len(segments) == 5
    table = speechmix.ablate_input(classifier(name), wordless, segments=0.25, fills=["zeros"]).table
    assert len(table) == 5
    values = speechmix.shapley(classifier(name), wordless, segments=0.4).table["drop"]
    assert len(values) == 3


@pytest.mark.parametrize(
    ("name", "weighted"), [("ast", {}), ("wav2vec2", {"use_weighted_layer_sum": True})]
)
def test_maps_that_end_elsewhere_than_the_head_reads_are_refused(name, weighted):
    with pytest.raises(InputError, match=r"the head of .* reads .*: ask occlusion, shapley"):
        speechmix.explain(classifier(name, **weighted), clip(), measures="value_zeroing")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("ast", {}, "tokens that the model adds"),
        ("wav2vec2", {"use_weighted_layer_sum": True}, "a weighted sum of all layers"),
        ("wav2vec2", {}, None),
        pytest.param("wav2vec2-bert", {}, None, marks=pytest.mark.long),
        ("whisper", {}, None),
    ],
)
def test_faithfulness_of_a_label(name, options, reason):
    with_foil = clip(text="les amis sont partis", cue=1, target=3, foil="parties")
    results = speechmix.faithfulness(
        classifier(name, **options),
        [with_foil],
        measures=["gradient_input", "value_zeroing"],
        metrics=["spearman"],
    )
    table = results.to_dataframe()
    assert {"mute", "knock-out"} <= set(results.perturbations)
    assert "gradient_input" in set(table["measure"])
    assert ("value_zeroing" in set(table["measure"])) == (reason is None)
    reasons = results.left_out.query("what == 'value_zeroing'")["reason"].tolist()
    assert len(reasons) == (reason is not None)
    assert all(reason in text for text in reasons)
    assert set(results.drops["word"]) == {0, 1, 2, 3}  # the target is a word like others


def test_positions_of_ast_are_columns_of_patches():
    model = classifier("ast")
    grid, features = model.grid(0), inputs_of(model, sound())["input_values"]
    embeddings = model.module.audio_spectrogram_transformer.embeddings
    for column in (0, 4, 10):
        changed = features.clone()
        changed[:, 10 * column + 5 : 10 * column + 8] += 1  # mel frames that this column covers
        with torch.no_grad():
            moved = (embeddings(features) - embeddings(changed)).abs().sum(dim=-1)[0]
        positions = {
            p for a, b in grid.position_ranges([(column, column + 1)]) for p in range(a, b)
        }
        assert positions <= set(moved.nonzero().flatten().tolist())
        assert grid.centre(column) == pytest.approx(0.1 * column + (15 * 0.01 + 0.025) / 2)
    assert grid.n_positions == embeddings.position_embeddings.shape[1]
    long = speechmix.Clip.from_array(sound(1.5), 16_000, words=[("les", 0.1, 0.3)])
    with pytest.raises(InputError, match=r"1.50 s of audio, but .* hears 1.2 s"):
        speechmix.ablate_input(model, long)


@pytest.mark.parametrize("name", ["wav2vec2", "wav2vec2-bert", "whisper", "ast"])
def test_a_folder_is_loaded_with_its_head(name, tmp_path):
    module = build_classifier(name)
    module.save_pretrained(tmp_path)
    CLASSIFIERS[name][3]().save_pretrained(tmp_path)
    model = speechmix.load(tmp_path, dtype="float64", device="cpu")
    assert type(model.module) is type(module)
    assert list(model.stacks) == ["encoder"]
    np.testing.assert_allclose(
        logits_by_hand(model, sound()), logits_by_hand(classifier(name), sound()), atol=1e-9
    )
    assert type(speechmix.load(tmp_path, init="random", seed=1, dtype="float64").module) is type(
        module
    )


def test_a_recogniser_is_still_loaded_as_one(tmp_path):
    _, _, options, _ = CLASSIFIERS["whisper"]
    module = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**options))
    module.save_pretrained(tmp_path)
    assert list(speechmix.load(tmp_path, device="cpu").stacks) == ["encoder", "decoder", "cross"]


@pytest.mark.parametrize("include", [(), ("silence",)])
@pytest.mark.parametrize("name", ["wav2vec2", "whisper"])
def test_a_map_is_read_at_all_frames_of_the_units(name, include):
    """As by hand: the rollout's rows of words (and pauses), each as often as it has frames."""
    model = classifier(name)
    why = speechmix.explain(
        model, clip(), measures="value_zeroing", top=0, include=include, sound_fill="zeros"
    )
    maps = speechmix.mix(model, clip(), units="word", include=include)
    mixing_map = maps["value_zeroing", "encoder"].rollout(residual="strength")
    counts = [len(span.positions) for span in mixing_map.targets]
    expected = np.average(mixing_map.scores[-1], axis=0, weights=counts)
    values = why.attributions["value_zeroing"].values[0]
    for word in ("les", "amis", "sont", "partis"):
        column = next(i for i, span in enumerate(mixing_map.sources) if span.label == word)
        index = next(i for i, source in enumerate(why.sources) if source.label == word)
        assert values[index] == pytest.approx(expected[column], rel=1e-6)
