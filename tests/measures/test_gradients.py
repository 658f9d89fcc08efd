"""Gradient measures against finite differences and captum, completeness, and every family and
stack."""

from __future__ import annotations

import functools
import importlib.util
import sys

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import speechmix
from speechmix.errors import InputError, MissingExtraError
from speechmix.mixing.measures.gradient_pass import GradientPass
from speechmix.mixing.measures.objectives import resolve_objective
from tests.conftest import ALL_FAMILIES, inputs_of
from tests.models import shared_models

MEASURES = ("gradient_input", "integrated_gradients", "deeplift")
SPANS = [(3, 9), (9, 10)]
OBJECTIVE = (3, 7, 9)
ROUNDED = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma3_text",
)  # float32 inside, whatever the model's precision
HEADS = {
    "MistralModel": "MistralForCausalLM",
    "Qwen2Model": "Qwen2ForCausalLM",
    "Qwen3Model": "Qwen3ForCausalLM",
    "GemmaModel": "GemmaForCausalLM",
    "Gemma3TextModel": "Gemma3ForCausalLM",
    "RobertaModel": "RobertaForMaskedLM",
    "ElectraModel": "ElectraForMaskedLM",
    "DistilBertModel": "DistilBertForMaskedLM",
    "MBartModel": "MBartForConditionalGeneration",
    "WhisperModel": "WhisperForConditionalGeneration",
    "Wav2Vec2Model": "Wav2Vec2ForCTC",
    "HubertModel": "HubertForCTC",
    "WavLMModel": "WavLMForCTC",
}


def with_head(name, **changes):
    """Tiny float64 model of a family, with a head; shared, so not to be changed."""
    return shared_models.shared(
        ("head", name, *sorted(changes.items())), lambda: _built_with_head(name, **changes)
    )


def _built_with_head(name, **changes):
    config_class, model_class, options = ALL_FAMILIES[name]
    config = getattr(transformers, config_class)(**{**options, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = getattr(transformers, HEADS.get(model_class, model_class))(config).double()
    return speechmix.load(module.eval().requires_grad_(False))


@pytest.fixture(params=ALL_FAMILIES)
def headed_name(request):
    return request.param


@pytest.fixture
def headed(headed_name):
    return with_head(headed_name)


@functools.cache
def maps_of_all_measures(name):
    """One `mix` of a family for all gradient measures that are installed."""
    model = with_head(name)
    measures = MEASURES if importlib.util.find_spec("captum") else MEASURES[:-1]
    few_steps = [  # enough to see a map
        f"{name}:steps=2" if name == "integrated_gradients" else name for name in measures
    ]
    maps = mix(model, few_steps, spans=SPANS if model.hears else None)
    return {(name.partition(":")[0], stack): found for (name, stack), found in maps.items()}


@pytest.fixture
def captum():
    return pytest.importorskip("captum.attr")


def pass_of(model, layers=(0, 1, 2)):
    objective = resolve_objective(OBJECTIVE, model, None, None)
    return GradientPass(model, inputs_of(model), dict.fromkeys(model.stacks, layers), objective)


def mix(model, measure, **options):
    options = {"objective": OBJECTIVE, **options}
    return speechmix.mix(model, inputs_of(model), measures=measure, **options)


class TestEveryFamily:
    @pytest.mark.every_family
    @pytest.mark.parametrize("measure", MEASURES)
    @pytest.mark.filterwarnings("ignore:integrated gradients")
    def test_one_row_of_finite_numbers_and_causal_zeros(self, headed_name, headed, measure):
        if measure == "deeplift":
            pytest.importorskip("captum")
        spans = SPANS if headed.hears else None
        maps = maps_of_all_measures(headed_name)
        assert {stack for name, stack in maps if name == measure} == set(headed.stacks)
        for stack in headed.stacks:
            found = maps[measure, stack]
            n_sources = (
                len(spans)
                if spans and stack != "decoder"
                else 7
                if stack == "decoder" and "cross" in headed.stacks
                else 11
            )
            assert found.scores.shape == (3, 1, n_sources)
            assert np.isfinite(found.scores).all()
            assert (found.scores >= 0).all()
            assert [(span.start, span.stop) for span in found.targets] == [
                (OBJECTIVE[0], OBJECTIVE[0] + 1)
            ]
            seen = (
                found.scores[:, 0, : OBJECTIVE[0] + 1] if stack == "decoder" else found.scores[:, 0]
            )
            assert seen[0].all()
            if stack == "decoder":
                assert not found.scores[:, 0, OBJECTIVE[0] + 1 :].any()

    @pytest.mark.every_family
    def test_gradient_is_that_of_finite_differences(self, headed):
        run, generator = pass_of(headed, [0, 2]), torch.Generator().manual_seed(0)
        rounded = headed.config.model_type in ROUNDED
        step = 1e-2 if rounded else 1e-5
        for stack in headed.stacks:
            for layer, (x, gradient) in zip((0, 2), run.states_and_gradients(stack), strict=True):
                way = torch.randn(x.shape, dtype=x.dtype, generator=generator) * x.abs().mean()
                with torch.no_grad():
                    ends = run.value(stack, layer, torch.stack([x + step * way, x - step * way]))
                slope = ((ends[0] - ends[1]) / (2 * step)).item()
                expected = (gradient * way).sum().item()
                assert (
                    abs(slope - expected)
                    <= (2e-2 if rounded else 1e-5) * (gradient * way).abs().sum().item()
                )

    @pytest.mark.every_family
    def test_states_put_in_by_hand_are_those_of_the_pass(self, headed):
        run = pass_of(headed)
        with torch.no_grad():
            logits = headed.module(**inputs_of(headed)).logits[0]
            clean = (logits[3, 7] - logits[3, 9]).item()
            for stack in headed.stacks:
                for layer, (x, _) in enumerate(run.states_and_gradients(stack)):
                    np.testing.assert_allclose(
                        run.value(stack, layer, torch.stack([x, x])).tolist(), clean, rtol=1e-6
                    )

    @pytest.mark.every_family
    @pytest.mark.parametrize("steps", [50, 200])
    def test_integrated_gradients_are_complete(self, headed, steps):
        rounded = headed.config.model_type in ROUNDED
        kinked = getattr(
            headed.config, "adapter_attn_dim", None
        )  # its adapters have ReLU: no rule gains by smoothness
        smooth = headed.hears and not kinked
        allowed = (
            1e-6
            if smooth
            else 5e-3
            if steps == 50
            else 1e-3
            if kinked
            else 1e-6
            if rounded
            else 1e-12
        )
        if steps == 200 and headed.hears and smooth:
            pytest.skip("complete to rounding in 50 steps")
        spans = [(0, 11)] if headed.hears else None
        for found in mix(
            headed, f"integrated_gradients:steps={steps}", spans=spans, layers=[0, 2]
        ).values():
            completeness = found.provenance["completeness"]
            assert set(completeness) == {"change", "error", "missed"}
            assert len(completeness["error"]) == 2
            assert max(completeness["missed"]) <= allowed


class TestSums:
    @pytest.mark.parametrize("name", ["whisper-80", "bart", "mbart", "marian"])
    def test_what_cross_layers_read_adds_up_to_the_gradient_of_the_encoders_output(self, name):
        model = with_head(name)
        memory = (
            model.family.run(model.base, inputs_of(model), ("encoder",))[0]
            .detach()
            .requires_grad_(True)
        )
        output = model.module(
            encoder_outputs=(memory,), decoder_input_ids=inputs_of(model)["decoder_input_ids"]
        )
        value = output.logits[0, 3, 7] - output.logits[0, 3, 9]
        (expected,) = torch.autograd.grad(value, memory)
        found = sum(gradient for _, gradient in pass_of(model).states_and_gradients("cross"))
        torch.testing.assert_close(found, expected[0])

    def test_absolute_value_first_then_pooling(self):
        model = with_head("wav2vec2-stable")
        (x, gradient), *_ = pass_of(model).states_and_gradients("encoder")
        parts = (x * gradient).sum(dim=-1).abs().numpy()
        for pooling, pool in (("mean", np.mean), ("max", np.max)):
            found = mix(model, "gradient_input", spans=SPANS, pooling=pooling)[
                "gradient_input", "encoder"
            ].layer(0)[0]
            np.testing.assert_allclose(found, [pool(parts[3:9]), parts[9]])

    def test_path_from_zeros_says_what_it_misses(self):
        with pytest.warns(UserWarning, match=r"parts miss f\(x\) - f\(x0\) by up to \d+%.*steps="):
            mix(with_head("bert"), "integrated_gradients:baseline=zero")

    @pytest.mark.filterwarnings("ignore:integrated gradients")
    def test_more_steps_miss_less(self):
        model, missed = with_head("gpt2"), []
        for steps in (4, 8, 16):
            [found] = mix(model, f"integrated_gradients:steps={steps}").values()
            missed.append(max(found.provenance["completeness"]["missed"]))
        assert missed[0] > 5 * missed[1] > 25 * missed[2]

    @pytest.mark.filterwarnings("ignore:integrated gradients")
    def test_batches_of_steps_change_nothing(self, monkeypatch):
        from speechmix.extensions.gradient_measures import gradients

        expected = mix(with_head("bart"), "integrated_gradients:steps=4")
        monkeypatch.setattr(gradients, "_BATCH_BYTES", 1)
        for key, found in mix(with_head("bart"), "integrated_gradients:steps=4").items():
            np.testing.assert_allclose(found.scores, expected[key].scores)


class BertRest(nn.Module):
    """What lies above the input of a layer of BERT, written out: states [n, K, D] to the contrast
    [n]."""

    def __init__(self, module, first):
        super().__init__()
        self.layers, self.head, self.here = (
            module.bert.encoder.layer[first:],
            module.cls,
            nn.Identity(),
        )

    def forward(self, states):
        states = self.here(states)
        for layer in self.layers:
            states = layer(states)
        logits = self.head(states)
        return logits[:, 3, 7] - logits[:, 3, 9]


class TestCaptum:
    @pytest.mark.every_family
    def test_gradient_times_input(self, captum, headed):
        ids = inputs_of(headed)
        main = next(iter(ids))
        others = {name: value for name, value in ids.items() if name != main}
        others |= {"use_cache": False} if "decoder" in headed.stacks else {}

        def forward(x):
            logits = headed.module(**{main: x}, **others).logits
            return logits[:, 3, 7] - logits[:, 3, 9]

        stack = next(iter(headed.stacks))
        found = mix(headed, "gradient_input", stacks=stack)["gradient_input", stack].scores
        # Captum cannot hook layers that are called with None; then what layer 1 is given is what
        # layer 0 returns.
        before = not headed.hears or headed.family.name == "whisper"
        layers = [layer.module for layer in headed.stacks[stack].layers]
        for index in (1, 2):
            attribution = captum.LayerGradientXActivation(
                forward, layers[index - before]
            ).attribute(ids[main], attribute_to_layer_input=not before)
            attribution = attribution[0] if isinstance(attribution, tuple) else attribution
            expected = attribution[0].detach().sum(dim=-1).abs().numpy()
            np.testing.assert_allclose(found[index, 0], expected, rtol=1e-6, atol=1e-12)

    @pytest.mark.filterwarnings("ignore:integrated gradients")
    @pytest.mark.parametrize("layer", [0, 1, 2])
    def test_integrated_gradients_of_bert(self, captum, layer):
        model = with_head("bert")
        rest, (x, _) = (
            BertRest(model.module, layer),
            pass_of(model).states_and_gradients("encoder")[layer],
        )
        for baseline, x0 in (("mean", x.mean(dim=0).expand_as(x)), ("zero", torch.zeros_like(x))):
            expected = captum.LayerIntegratedGradients(rest, rest.here).attribute(
                x[None], x0[None], n_steps=20
            )[0]
            [found] = mix(model, f"integrated_gradients:baseline={baseline},steps=20").values()
            found = found.scores[layer, 0]
            np.testing.assert_allclose(
                found, expected.sum(dim=-1).abs().numpy(), rtol=1e-7, atol=1e-12
            )

    def test_layer_integrated_gradients_of_gpt2_itself(self, captum):
        model = with_head("gpt2")
        transformer = model.module.transformer
        words = transformer.wte(inputs_of(model)["input_ids"])
        places = transformer.wpe(torch.arange(words.shape[1]))[None]

        def forward(embedded):
            logits = model.module(inputs_embeds=embedded, use_cache=False).logits
            return logits[:, 3, 7] - logits[:, 3, 9]

        # What dropout hands on enters layer 0: zeros, where the baseline takes the places away.
        attribution = captum.LayerIntegratedGradients(forward, transformer.drop).attribute(
            words, baselines=-places, n_steps=30
        )
        with pytest.warns(UserWarning, match="parts miss"):
            [found] = mix(model, "integrated_gradients:baseline=zero,steps=30").values()
        np.testing.assert_allclose(
            found.scores[0, 0], attribution[0].detach().sum(dim=-1).abs().numpy(), rtol=1e-7
        )

    @pytest.mark.filterwarnings("ignore:Input Tensor", "ignore:Setting forward")
    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    @pytest.mark.parametrize("baseline", ["mean", "zero"])
    def test_deeplift_of_bert(self, captum, activation, baseline, monkeypatch):
        from captum.attr._core import deep_lift

        model = with_head("bert", hidden_act=activation)
        [before] = (found.scores for found in mix(model, f"deeplift:baseline={baseline}").values())
        if (
            activation == "gelu"
        ):  # captum does not know transformers' module; its rule for ReLU is the same
            rules, kind = deep_lift.SUPPORTED_NON_LINEAR, transformers.activations.GELUActivation
            assert kind not in rules
            monkeypatch.setitem(rules, kind, deep_lift.nonlinear)
        for layer, (x, gradient) in enumerate(pass_of(model).states_and_gradients("encoder")):
            x0 = torch.zeros_like(x) if baseline == "zero" else x.mean(dim=0).expand_as(x)
            rest = captum.DeepLift(BertRest(model.module, layer))
            expected = (
                rest.attribute(x[None].clone(), x0[None].clone())[0]
                .sum(dim=-1)
                .abs()
                .detach()
                .numpy()
            )
            np.testing.assert_allclose(before[layer, 0], expected, rtol=1e-7, atol=1e-12)
            plain = (gradient * (x - x0)).sum(dim=-1).abs().numpy()
            if (
                activation == "gelu" or baseline == "mean"
            ):  # with ReLU(0) = 0, the slope is the ratio
                assert np.abs(before[layer, 0] - plain).max() > 1e-3 * plain.max()

    def test_missing_captum_says_which_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "captum.attr", None)
        with pytest.raises(MissingExtraError, match=r"deeplift.*captum.*\[gradients\]'"):
            mix(with_head("bert"), "deeplift")


@pytest.mark.filterwarnings("ignore:integrated gradients")
class TestNothingIsLeft:
    @pytest.mark.every_family
    @pytest.mark.parametrize("name", ["whisper-80", "bert", "wavlm-post", "gpt2"])
    @pytest.mark.parametrize("measure", MEASURES)
    def test_model_is_as_before(self, name, measure):
        if measure == "deeplift":
            pytest.importorskip("captum")
        model = with_head(name)
        attributes = {part: set(vars(part)) for part in model.module.modules()}
        state = torch.get_rng_state()
        mix(model, f"{measure}:steps=3" if measure == "integrated_gradients" else measure)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.is_grad_enabled()
        assert not any(p.requires_grad or p.grad is not None for p in model.module.parameters())
        assert not any(
            m._forward_pre_hooks or m._forward_hooks or m._backward_hooks
            for m in model.module.modules()
        )
        assert {part: set(vars(part)) for part in model.module.modules()} == attributes

    def test_a_failure_removes_the_hooks_too(self):
        model = with_head("bert")
        with pytest.raises(InputError):
            mix(model, "gradient_input", objective=lambda output: 1.0)
        assert not any(m._forward_pre_hooks for m in model.module.modules())


class TestMix:
    @pytest.mark.parametrize(
        ("options", "pattern"),
        [
            ({"heads": "each"}, "gradient_input has no form per head"),
        ],
    )
    def test_options_that_cannot_be(self, options, pattern):
        with pytest.raises(InputError, match=pattern):
            mix(with_head("bert"), "gradient_input", **options)

    @pytest.mark.parametrize(
        ("measure", "pattern"),
        [
            ("integrated_gradients:steps=0", "steps should be a whole number of at least 1"),
            ("integrated_gradients:steps=2.5", "steps should be"),
            ("deeplift:baseline=noise", "baseline must be one of.*mean.*zero"),
        ],
    )
    def test_values_behind_the_name_that_cannot_be(self, measure, pattern):
        with pytest.raises(InputError, match=pattern):
            mix(with_head("bert"), measure)

    def test_beside_other_measures_in_the_order_asked(self):
        model = with_head("whisper-80")
        measures = ["gradient_input", "value_zeroing", "hta_input"]
        found = mix(
            model, measures, spans=SPANS, layers=[2], targets={"decoder": [1], "cross": [1]}
        )
        assert list(found) == [
            (measure, stack) for measure in measures for stack in ("encoder", "decoder", "cross")
        ]
        whole = mix(model, "gradient_input", spans=SPANS)
        for stack in model.stacks:
            np.testing.assert_allclose(
                found["gradient_input", stack].scores[0], whole["gradient_input", stack].scores[2]
            )
            assert found["gradient_input", stack].layers == (2,)
            assert found["hta_input", stack].provenance.get("objective") is None
        assert found["hta_input", "decoder"].scores.shape == (1, 1, 7)

    def test_precision(self):
        exact = mix(with_head("bert"), "gradient_input")["gradient_input", "encoder"].scores
        half = speechmix.load(_built_with_head("bert").module.half())
        single = mix(half, "gradient_input")["gradient_input", "encoder"].scores
        assert single.dtype == np.float32
        assert half.dtype == torch.float16
        np.testing.assert_allclose(single, exact, rtol=0.2, atol=0.02 * exact.max())

    def test_padding_has_no_part(self):
        model = with_head("bert")
        ids = inputs_of(model)["input_ids"]
        padded = {
            "input_ids": torch.cat([ids, ids[:, :3]], dim=1),
            "attention_mask": torch.tensor([[1] * 11 + [0] * 3]),
        }
        for measure in MEASURES[:2]:
            found = speechmix.mix(model, padded, measures=measure, objective=OBJECTIVE)[
                measure, "encoder"
            ].scores
            assert found.shape == (3, 1, 11)
            if measure == "gradient_input":
                np.testing.assert_allclose(
                    found, mix(model, measure)[measure, "encoder"].scores, rtol=1e-9
                )

    def test_map_is_saved_with_its_objective(self, tmp_path):
        found = mix(with_head("bert"), "integrated_gradients")["integrated_gradients", "encoder"]
        found.save(tmp_path / "map.safetensors")
        again = speechmix.MixingMap.load(tmp_path / "map.safetensors")
        assert again.provenance["objective"] == found.provenance["objective"]
        assert again.provenance["completeness"] == found.provenance["completeness"]

    def test_decoder_that_is_not_fed(self):
        inputs = {"input_features": inputs_of(with_head("whisper-80"))["input_features"]}
        with pytest.raises(InputError, match="predicts nothing without decoder_input_ids"):
            speechmix.mix(
                with_head("whisper-80"), inputs, measures="gradient_input", objective=OBJECTIVE
            )

    def test_clips_in_a_row(self):
        model = with_head("bert")
        both = torch.cat([inputs_of(model, seed)["input_ids"] for seed in (1, 2)])
        maps = speechmix.mix(
            model, {"input_ids": both}, measures="gradient_input", objective=OBJECTIVE
        )
        np.testing.assert_allclose(
            maps[0]["gradient_input", "encoder"].scores,
            mix(model, "gradient_input")["gradient_input", "encoder"].scores,
        )
