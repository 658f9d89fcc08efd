"""`speechmix.diff`: words that two versions of a model write differently, and the part that changed them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.model_use import wrap_encoder_states
from speechmix.errors import InputError
from speechmix.extensions.model_diff.changed_words import find_changes
from speechmix.extensions.model_diff.difference import diff
from speechmix.extensions.model_diff.layer_effects import measure_layer_effects
from speechmix.extensions.model_diff.weight_exchange import (
    copy_weights,
    exchange_weights,
    find_changed_groups,
    list_groups,
    list_head_weights,
)
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import main

KINDS = ("tiny-french-whisper", "tiny-french-ctc")
CLIPS = [clip for clip in bundled.clips() if clip.text][:12]


def load(name: str):
    return speechmix.load(bundled.models()[name])


@pytest.fixture(scope="module", params=KINDS)
def models(request):
    """Model A, model B, and the weights that B had when it was loaded."""
    model_a, model_b = load(request.param), load(request.param)
    weights = {name: value.clone() for name, value in model_b.module.state_dict().items()}
    return model_a, model_b, weights


def of_one_kind(kind: str):
    """Mark a test for one kind of model, and for the other one in `make soak`."""
    kinds = [pytest.param(name, marks=[pytest.mark.long] * (name != kind)) for name in KINDS]
    return pytest.mark.parametrize("models", kinds, indirect=True)


of_whisper, of_ctc = map(of_one_kind, KINDS)


@pytest.fixture(autouse=True)
def _restore(request):
    yield
    if "models" in request.fixturenames:
        _, model_b, weights = request.getfixturevalue("models")
        with torch.no_grad():
            for name, value in model_b.module.state_dict().items():
                value.copy_(weights[name])


def change(model, group, scale: float, seed: int = 0) -> None:
    """Add noise to the matrices of one part, relative to their spread."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(model.module.named_parameters())
    with torch.no_grad():
        for name in group.tensors:
            if name in tensors and tensors[name].ndim >= 2:
                weight = tensors[name]
                noise = torch.randn(weight.shape, generator=generator)
                weight += scale * weight.std() * noise


def layers_of(model):
    return [group for group in list_groups(model) if group.layer is not None]


def test_each_weight_is_in_one_part(models):
    model_a, _, _ = models
    groups = list_groups(model_a)
    names = [name for group in groups for name in group.tensors]
    assert len(names) == len(set(names))
    module = model_a.module
    assert set(names) == {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    counts = {name: len(stack) for name, stack in model_a.stacks.items()}
    for name, count in counts.items():
        assert [g.layer for g in groups if g.stack == name and g.layer is not None] == list(
            range(count)
        )
    assert groups[0].label == "encoder input"
    assert groups[-1].label == "output"


def test_exchange_is_undone(models):
    model_a, model_b, _ = models
    change(model_b, layers_of(model_b)[0], 1.0)
    before = {name: value.clone() for name, value in model_b.module.state_dict().items()}
    [group] = find_changed_groups(model_a, model_b, list_groups(model_b))
    with exchange_weights(model_b, copy_weights(model_a, [group])):
        assert not find_changed_groups(model_a, model_b, [group])
    after = model_b.module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert find_changed_groups(model_a, model_b, list_groups(model_b)) == [group]


def test_equal_models_have_no_difference(models):
    model_a, model_b, _ = models
    difference = diff(model_a, model_b, CLIPS[:2])
    assert difference.named is None
    assert difference.changes.empty
    assert not difference.layers["changed"].any()
    assert (difference.layers["divergence"] == 0).all()
    assert difference.findings == ["The weights are equal; 0 words changed in 2 clips."]


@pytest.mark.parametrize("draws", [2, pytest.param(100, marks=pytest.mark.long)])
def test_the_changed_layer_is_named(models, draws):
    """A layer is changed among slightly changed others; draws in which no word changes are drawn again."""
    model_a, model_b, weights = models
    named = drawn = seed = 0
    while drawn < draws:
        seed += 1
        with torch.no_grad():
            for name, value in model_b.module.state_dict().items():
                value.copy_(weights[name])
        groups = layers_of(model_b)
        for index, group in enumerate(groups):
            change(model_b, group, 0.01, seed=1000 * seed + index)
        planted = groups[seed % len(groups)]
        change(model_b, planted, 1.5, seed=seed)
        difference = diff(model_a, model_b, CLIPS[seed % len(CLIPS)])
        if len(difference.changes):
            drawn += 1
            named += difference.named == planted
    assert named >= 0.95 * drawn


def test_a_changed_head_is_found(models):
    model_a, model_b, _ = models
    group = layers_of(model_b)[-1]
    heads = list_head_weights(model_b, model_a, group)
    stack = model_b.stacks[group.stack]
    assert list(heads) == [*(f"head {head}" for head in range(stack.heads)), "rest"]
    value = stack.layers[group.layer].attention.value
    size = value.out_features // stack.heads
    with torch.no_grad():
        value.weight[size : 2 * size] *= -3
    parts = list_head_weights(model_b, model_a, group)
    logits = {}
    model_b.forget_fingerprint()
    decisions = find_changes(model_a, model_b, CLIPS[0])
    effects = measure_layer_effects(model_a, model_b, decisions, list_groups(model_b), [group])
    assert np.allclose(
        effects.alone[[g.label for g in list_groups(model_b)].index(group.label), -1], 0, atol=1e-9
    )
    fed = dict(decisions.inputs)
    for part, tensors in parts.items():
        with model_b.in_use(), torch.no_grad(), exchange_weights(model_b, tensors):
            logits[part] = model_b.run_with_head(fed).logits
    with model_a.in_use(), torch.no_grad():
        expected = model_a.run_with_head(fed).logits
    assert torch.allclose(logits["head 1"], expected, atol=1e-4)
    assert not torch.allclose(logits["head 0"], expected, atol=1e-2)


def test_states_patched_in_are_those_of_the_other_model(models):
    """Weights of A up to a layer of the encoder are A's state behind it, put into B's run."""
    model_a, model_b, _ = models
    for index, group in enumerate(layers_of(model_b)):
        change(model_b, group, 0.5, seed=index)
    groups = list_groups(model_b)
    decisions = find_changes(model_a, model_b, CLIPS[1])
    effects = measure_layer_effects(model_a, model_b, decisions, groups, groups)
    sound = {n: t for n, t in decisions.inputs.items() if not n.startswith("decoder_")}
    for layer in range(len(model_a.stacks["encoder"])):
        states = []
        module_a = model_a.stacks["encoder"].layers[layer].module
        module_b = model_b.stacks["encoder"].layers[layer].module

        def record(module, args, output, states=states):
            states.append(output[0] if isinstance(output, tuple) else output)

        def replace(module, args, output, states=states):
            return (states[0], *output[1:]) if isinstance(output, tuple) else states[0]

        with model_a.in_use(), model_b.in_use(), torch.no_grad():
            handle = module_a.register_forward_hook(record)
            model_a.family.run(model_a.base, sound, ("encoder",))
            handle.remove()
            logits_a = model_a.run_with_head(dict(decisions.inputs)).logits
            handle = module_b.register_forward_hook(replace)
            if "decoder_input_ids" in decisions.inputs:
                encoded = model_b.family.run(model_b.base, sound, ("encoder",))[0]
                text = {"decoder_input_ids": decisions.inputs["decoder_input_ids"]}
                logits = model_b.run_with_head(
                    text, encoder_outputs=wrap_encoder_states(encoded)
                ).logits
                blank = None
            else:
                logits, blank = model_b.run_with_head(sound).logits, model_b.config.pad_token_id
            handle.remove()
        expected = decisions.read(logits, decisions.log_probabilities(logits_a), blank)
        row = [group.label for group in groups].index(f"encoder {layer}")
        assert np.allclose(effects.up_to[row], expected.numpy(), atol=1e-4)


def test_a_word_is_turned_back_by_its_layer(models):
    model_a, model_b, _ = models
    planted = next(group for group in layers_of(model_b) if group.label == "encoder 1")
    change(model_b, planted, 4.0)
    difference = diff(model_a, model_b, CLIPS[:3])
    changes = difference.changes
    assert len(changes)
    assert difference.named == planted
    assert (changes["layer"] == planted.label).all()
    assert (changes["first_layer"] == planted.label).all()
    assert changes["turns_back"].all()
    assert (changes["margin_A"] > 0).all()
    assert (changes["margin_B"] < 0).all()
    assert np.allclose(changes["effect"], changes["margin_A"] - changes["margin_B"], atol=1e-3)
    assert planted.label in difference.findings[1]


def test_a_model_that_writes_until_its_positions_are_full_is_compared():
    name = "tiny-french-whisper"
    model_a, model_b = load(name), load(name)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model_b.stacks["decoder"].layers[1].module.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight += 4 * weight.std(correction=0) * noise
    difference = diff(model_a, model_b, CLIPS[3:4])
    [decisions] = difference.decisions
    positions = len(decisions.inputs["decoder_input_ids"][0])
    assert positions == model_b.config.max_target_positions
    assert difference.named.label == "decoder 1"


@of_whisper
def test_halves_are_compared_as_they_are_run(models):
    """Weights of half precision are exchanged as they are stored, and read in a finer one."""
    name = KINDS[0] if "whisper" in models[0].family.name else KINDS[1]
    half = [speechmix.load(bundled.models()[name], dtype="float16", device="cpu") for _ in range(2)]
    group = layers_of(half[1])[1]
    change(half[1], group, 4.0)
    full = [load(name), load(name)]
    for rounded, model in zip(half, full, strict=True):
        with torch.no_grad():
            for key, value in model.module.named_parameters():
                value.copy_(rounded.module.get_parameter(key))
    expected, found = (diff(*pair, CLIPS[:1]) for pair in (full, half))
    assert found.named.label == expected.named.label == group.label
    assert len(found.changes)
    columns = ["margin_B", "effect", "head_effect"]
    np.testing.assert_allclose(found.changes[columns], expected.changes[columns], atol=2e-3)
    columns = ["divergence", "local_error", "state_error"]
    np.testing.assert_allclose(found.layers[columns], expected.layers[columns], atol=2e-3)


def test_other_models_are_refused(models, tmp_path):
    model_a, _, _ = models
    other = load(KINDS[1] if "whisper" in model_a.family.name else KINDS[0])
    with pytest.raises(InputError, match="no versions of one model: family: "):
        diff(model_a, other, CLIPS[:1])
    text = speechmix.load(bundled.models()[KINDS[0]], init="random", seed=1)
    with pytest.raises(InputError):
        diff(text, text, CLIPS[:1])
    with pytest.raises(InputError, match="give clips"):
        diff(model_a, model_a, [])


def test_sampling_rates_and_vocabularies_must_agree(models):
    model_a, model_b, _ = models
    model_b.feature_extractor.sampling_rate = 8000
    try:
        with pytest.raises(InputError, match="sampling rate: 16000 and 8000"):
            diff(model_a, model_b, CLIPS[:1])
    finally:
        model_b.feature_extractor.sampling_rate = 16_000
    model_b.tokenizer.add_tokens(["newtoken"])
    with pytest.raises(InputError, match="id of the token 'newtoken': None and"):
        diff(model_a, model_b, CLIPS[:1])
    model_b.tokenizer = load(KINDS[0] if "whisper" in model_a.family.name else KINDS[1]).tokenizer


@of_ctc
def test_command_writes_a_page_and_tables(models, tmp_path, capsys):
    model_a, model_b, _ = models
    change(model_b, layers_of(model_b)[-1], 1.5)
    model_b.module.save_pretrained(tmp_path / "changed")
    model_b.tokenizer.save_pretrained(tmp_path / "changed")
    model_b.feature_extractor.save_pretrained(tmp_path / "changed")
    source = str(bundled.models()[KINDS[0] if "whisper" in model_a.family.name else KINDS[1]])
    clip = CLIPS[0].audio(16_000)
    import soundfile

    soundfile.write(tmp_path / "one.wav", clip, 16_000)
    arguments = ["diff", source, str(tmp_path / "changed"), "--clips", str(tmp_path / "one.wav")]
    assert main([*arguments, "--out", str(tmp_path / "page.html")]) == 0
    assert "clip" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "Which part of the model" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert main([*arguments, "--out", str(tmp_path / "table.csv")]) == 0
    assert (tmp_path / "table_layers.csv").read_text().startswith("part,changed,turned,effect")
    assert main([*arguments, "--out", str(tmp_path / "table.doc")]) == 1
