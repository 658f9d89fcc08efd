"""The self-check: a table that is wrong anywhere is refused, or the measures that would use it
refuse; never scored."""

from __future__ import annotations

import time
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters import AttentionSpec, FeedForwardSpec, StackSpec, families, family_of_type
from speechmix.adapters.families import registry
from speechmix.errors import InputError, ModelError
from tests.adapters.own_model import own_family, own_model
from tests.conftest import _ENCODER, _IDS, _SEQ2SEQ, ALL_FAMILIES, WHISPER, build, inputs_of


@pytest.fixture
def tables(monkeypatch):
    """Put another table in a family's place for one test: ``tables("llama", final_norm=None)``."""
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))

    def changed(
        model_type, *, like=None, attention=None, run=None, tiny_inputs=None, heads=None, **changes
    ):
        family = family_of_type(like or model_type)

        def stacks(config):
            plans = family.stacks(config)
            if attention:
                blocks = tuple(replace(block, **attention) for block in plans[0].blocks)
                plans = tuple(replace(plan, blocks=blocks) for plan in plans)
            return tuple(replace(plan, **changes) for plan in plans)

        given = {"run": run, "tiny_inputs": tiny_inputs, "heads": heads}
        given = {name: function for name, function in given.items() if function is not None}
        speechmix.register(
            replace(family, name=model_type, model_types=(model_type,), stacks=stacks, **given)
        )

    return changed


DIRECT = ("gpt2", "llama", "mistral", "qwen2", "gemma", "gemma3_text")
RESIDUAL = ("alti", "attention_norm_residual")


class TestFinalNorm:
    @pytest.mark.parametrize("name", DIRECT)
    @pytest.mark.parametrize("described", [True, False])
    def test_forgotten_where_the_layers_lie_in_the_base_model_itself(self, tables, name, described):
        tables(name, final_norm=None, **({} if described else {"feed_forwards": ()}))
        with pytest.raises(ModelError, match=r"output of the decoder.*no final norm"):
            speechmix.load(build(name))

    def test_another_one(self, tables):
        module = build("llama")
        module.model.other = transformers.models.llama.modeling_llama.LlamaRMSNorm(32)
        with torch.no_grad():
            module.model.norm.weight[3] = 1.01
        tables("llama", final_norm="other")
        with pytest.raises(ModelError, match=r"output of the decoder.*behind other"):
            speechmix.load(module)

    def test_pooled_outputs_are_no_reason_to_refuse(self, tables):
        """Qwen2-Audio's encoder halves its frames behind the last layer."""
        options = {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
        }
        config = transformers.Qwen2AudioEncoderConfig(
            num_mel_bins=16, max_source_positions=60, **options
        )
        plan = replace(
            family_of_type("whisper").stacks(None)[0], layers="layers", final_norm="layer_norm"
        )
        family = replace(
            family_of_type("whisper"),
            name="qwen2_audio_encoder",
            model_types=("qwen2_audio_encoder",),
            stacks=lambda config: (plan,),
            run=lambda base, inputs, stacks: base(**inputs),
            tiny_inputs=lambda config: {
                "input_features": torch.randn(
                    1, 16, 120, generator=torch.Generator().manual_seed(0)
                )
            },
        )
        speechmix.register(family)
        model = speechmix.load(transformers.Qwen2AudioEncoder(config), init="random", seed=0)
        maps = speechmix.mix(
            model, {"input_features": torch.randn(1, 16, 120)}, spans=[(0, 10), (20, 50)]
        )
        assert maps["value_zeroing", "encoder"].scores.shape == (2, 2, 2)


def with_norms_that_differ(module):
    """As they do in trained models."""
    with torch.no_grad():
        for index, part in enumerate(module.modules()):
            if type(part).__name__.endswith("Norm") and getattr(part, "weight", None) is not None:
                part.weight += 0.02 * index
    return module


class TestResidualSum:
    """Attention norms with the residual and ALTI count what attention is added to: it has to be
    that."""

    WRONG = types.MappingProxyType(
        {
            "order": ("wav2vec2-stable", {"norm_order": "post"}),
            "order of a post-norm model": ("bert", {"norm_order": "pre"}),
            "norm": ("wav2vec2-stable", {"attention": {"norm": "final_layer_norm"}}),
            "norm of a post-norm model": ("bert", {"attention": {"norm": "output.LayerNorm"}}),
            "norm of a decoder": ("llama", {"attention": {"norm": "post_attention_layernorm"}}),
            "norm of a branch": ("gemma3_text", {"attention": {"branch_norm": None}}),
            "another norm of a branch": (
                "gemma3_text",
                {"attention": {"branch_norm": "post_feedforward_layernorm"}},
            ),
        }
    )

    @pytest.mark.parametrize("which", WRONG)
    def test_wrong_in_a_table_that_describes_the_whole_layer(self, tables, which):
        name, changes = self.WRONG[which]
        module = with_norms_that_differ(build(name))
        tables(module.config.model_type, **changes)
        with pytest.raises(ModelError):
            speechmix.load(module)

    @pytest.mark.parametrize("which", WRONG)
    def test_wrong_in_a_table_without_feed_forwards(self, tables, which):
        name, changes = self.WRONG[which]
        tables(build(name).config.model_type, feed_forwards=(), **changes)
        with pytest.raises(ModelError, match="table does not fit"):
            speechmix.load(build(name))

    @pytest.mark.parametrize("name", ["wav2vec2-stable", "bert", "llama", "gemma3_text", "gpt2"])
    def test_right_without_feed_forwards(self, tables, name):
        module = build(name).double()
        model = speechmix.load(module)
        inputs = inputs_of(model)
        expected = speechmix.mix(model, inputs, measures=RESIDUAL)
        tables(module.config.model_type, feed_forwards=())
        found = speechmix.mix(speechmix.load(module), inputs, measures=RESIDUAL)
        for key in expected:
            np.testing.assert_allclose(
                found[key].scores, expected[key].scores, rtol=1e-9, atol=1e-13
            )

    @pytest.mark.parametrize("check", [True, False])
    def test_norm_left_out(self, tables, check):
        tables("wav2vec2", attention={"norm": None}, feed_forwards=())
        model = speechmix.load(build("wav2vec2-stable").double(), check=check)
        inputs = inputs_of(model)
        assert speechmix.mix(
            model, inputs, measures=["value_zeroing", "attention_norm"], spans=[(0, 9), (9, 30)]
        )
        for measure in RESIDUAL:
            with pytest.raises(ModelError, match="names no norm"):
                speechmix.mix(model, inputs, measures=measure)

    def test_globenc_needs_the_second_norm(self, tables):
        tables("bert", feed_forwards=())
        model = speechmix.load(build("bert"))
        with pytest.raises(InputError, match=r"passes 2 layer norms.*describes 1"):
            speechmix.mix(model, inputs_of(model), measures="globenc")

    def test_attention_and_feed_forward_side_by_side(self, tables):
        """GPT-NeoX: replayed, and its residual measures refused."""
        plan = AttentionSpec(
            "attention",
            "attention.query_key_value",
            "attention.query_key_value",
            "attention.dense",
            norm="input_layernorm",
        )
        tables(
            "gpt_neox",
            like="gpt2",
            layers="layers",
            blocks=(plan,),
            final_norm="final_layer_norm",
            feed_forwards=(),
        )
        config = transformers.GPTNeoXConfig(
            num_attention_heads=4, num_hidden_layers=2, hidden_size=32, intermediate_size=48, **_IDS
        )
        model = speechmix.load(transformers.GPTNeoXForCausalLM(config), init="random", seed=0)
        ids = {"input_ids": torch.arange(4, 12)[None]}
        assert speechmix.mix(model, ids)["value_zeroing", "decoder"].scores.shape == (2, 8, 8)
        with pytest.raises(ModelError, match="side by side"):
            speechmix.mix(model, ids, measures="alti")


class TestLeaks:
    """What takes positions to others behind attention, near or far, is found in whichever layer it
    first is."""

    @pytest.mark.parametrize("layers", [(0, 1, 2), (2,)])
    @pytest.mark.parametrize("lag", [1, 2, 5, 6, -1, -3, -6])
    def test_a_feed_forward_that_looks_at_other_positions(self, layers, lag):
        module = build("wav2vec2-stable")
        plain = type(module.encoder.layers[0].feed_forward)

        class Leaking(plain):
            def forward(self, hidden_states):
                moved = hidden_states.roll(lag, 1)
                moved[:, slice(0, lag) if lag > 0 else slice(lag, None)] = 0
                return super().forward(hidden_states) + 0.2 * moved

        for layer in layers:
            module.encoder.layers[layer].feed_forward.__class__ = Leaking
        with pytest.raises(
            ModelError,
            match=rf"encoder layer {layers[0]} .* something besides attention mixes positions",
        ):
            speechmix.load(module)


class TestPartsAndVariants:
    @pytest.mark.parametrize(
        ("config_class", "model_class", "options"),
        [
            ("BartConfig", "BartForCausalLM", _SEQ2SEQ),
            ("MBartConfig", "MBartForCausalLM", _SEQ2SEQ),
            ("MarianConfig", "MarianForCausalLM", _SEQ2SEQ),
            ("WhisperConfig", "WhisperForCausalLM", WHISPER),
        ],
    )
    @pytest.mark.parametrize("check", [True, False])
    def test_a_decoder_without_its_encoder(self, config_class, model_class, options, check):
        module = getattr(transformers, model_class)(getattr(transformers, config_class)(**options))
        with pytest.raises(
            ModelError, match=rf"{model_class} is the decoder alone.*load the whole model"
        ):
            speechmix.load(module, check=check)

    def test_an_encoder_without_its_decoder(self):
        module = transformers.WhisperForAudioClassification(transformers.WhisperConfig(**WHISPER))
        assert list(speechmix.load(module).stacks) == ["encoder"]

    def test_a_model_that_does_not_run(self, tables):
        def run(base, inputs, stacks):
            raise KeyError("nothing")

        tables("bert", run=run)
        with pytest.raises(
            ModelError, match=r"cannot be run and replayed on a tiny input \(KeyError: 'nothing'\)"
        ):
            speechmix.load(build("bert"))


class TestMoreThanStatesIsPassedOn:
    """Rotary tables and lengths beside the states of an encoder: they cannot be cut to a few
    positions with them."""

    def test_moonshine(self):
        plan = StackSpec(
            name="encoder",
            layers="encoder.layers",
            blocks=(AttentionSpec.of("self_attn", output="o_proj", norm="input_layernorm"),),
            feed_forwards=(
                FeedForwardSpec(
                    "post_attention_layernorm", "mlp.fc1", "mlp.fc2", "mlp.activation_fn"
                ),
            ),
            norm_order="pre",
            final_norm="encoder.layer_norm",
        )
        register_like_wav2vec2(
            "moonshine", plan, lambda base, inputs, stacks: base.encoder(**inputs)
        )
        sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
        sizes = {
            f"{side}_{name}": size
            for side in ("encoder", "decoder")
            for name, size in sizes.items()
        }
        config = transformers.MoonshineConfig(
            hidden_size=32,
            intermediate_size=48,
            decoder_start_token_id=1,
            pad_head_dim_to_multiple_of=None,
            **sizes,
            **_IDS,
        )
        model = speechmix.load(transformers.MoonshineModel(config).double())
        self.assert_engines_agree(model)

    def test_sew(self):
        """Its layers see every second frame; what it returns has all of them again."""
        options = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
        }
        config = transformers.SEWConfig(
            conv_dim=(16,) * 13,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=2,
            vocab_size=20,
            **options,
        )
        plan = family_of_type("wav2vec2").stacks(config)[0]
        register_like_wav2vec2("sew", plan, lambda base, inputs, stacks: base(**inputs))
        self.assert_engines_agree(speechmix.load(transformers.SEWModel(config).double()))

    @staticmethod
    def assert_engines_agree(model):
        audio = {
            "input_values": torch.randn(
                1, 16_000, dtype=torch.double, generator=torch.Generator().manual_seed(1)
            )
        }
        measures = ["value_zeroing", "value_zeroing:engine=replay"]
        maps = speechmix.mix(model, audio, spans=[(0, 9), (10, 20)], measures=measures)
        delta, replay = (maps[measure, "encoder"].scores for measure in measures)
        assert (delta > 0).all()
        np.testing.assert_allclose(delta, replay, rtol=1e-6)


def register_like_wav2vec2(model_type, plan, run):
    noise = torch.randn(1, 8_000, generator=torch.Generator().manual_seed(0))
    speechmix.register(
        replace(
            family_of_type("wav2vec2"),
            name=model_type,
            model_types=(model_type,),
            stacks=lambda config: (plan,),
            run=run,
            tiny_inputs=lambda config: {"input_values": noise},
            heads=lambda config, stack: 4,
        )
    )


@pytest.fixture(autouse=True)
def families_of_one_test(monkeypatch):
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))


_DEBERTA = AttentionSpec(
    "attention.self",
    "attention.self.value_proj",
    "attention.self.key_proj",
    "attention.output.dense",
)


class TestAttentionOfItsOwn:
    """DeBERTa-v2, BLOOM, GPT-Neo: no advice that leads nowhere."""

    CASES = types.MappingProxyType(
        {
            "deberta-v2": (
                lambda: transformers.DebertaV2Model(transformers.DebertaV2Config(**_ENCODER)),
                (
                    "bert",
                    "encoder.layer",
                    _DEBERTA,
                ),
            ),
            "bloom": (
                lambda: transformers.BloomModel(
                    transformers.BloomConfig(n_layer=2, n_head=4, hidden_size=32, **_IDS)
                ),
                (
                    "gpt2",
                    "h",
                    AttentionSpec.of(
                        "self_attention",
                        value="query_key_value",
                        key="query_key_value",
                        output="dense",
                    ),
                ),
            ),
            "gpt_neo": (
                lambda: transformers.GPTNeoModel(
                    transformers.GPTNeoConfig(
                        hidden_size=32,
                        num_layers=2,
                        num_heads=4,
                        attention_types=[[["global"], 2]],
                        **_IDS,
                    )
                ),
                ("gpt2", "h", AttentionSpec.of("attn.attention")),
            ),
        }
    )

    @pytest.mark.parametrize("name", CASES)
    def test_the_error_says_so(self, tables, name):
        make, (like, layers, plan) = self.CASES[name]
        tables(name, like=like, layers=layers, blocks=(plan,), feed_forwards=())
        expected = "layer 0.*attention by code of its own, which cannot be read"
        if (
            name == "bloom"
            # whose own code lets positions see later ones under "sdpa", so that it is read off its
            # softmax
        ):
            expected = "layer 0.*running the layer's modules.*Value Zeroing cannot be replayed"
        with pytest.raises(ModelError, match=expected) as error:
            speechmix.load(make())
        assert "Load the model with" not in str(error.value)


class TestTolerance:
    @pytest.mark.parametrize(
        ("attention", "convolution"),
        [(1, 1), (1, 1e-3), (1, 3e-4), (1e-2, 1e-4), (1e-4, 1e-4), (1e-5, 1e-6)],
    )
    def test_a_weak_convolution_is_found(self, attention, convolution):
        """What counts is its size beside what attention changes, not beside the states."""
        speechmix.register(own_family())
        module = own_model(fault="convolution")
        with torch.no_grad():
            for block in module.tower.blocks:
                for part, strength in ((block.mixer.wo, attention), (block.blur, convolution)):
                    part.weight *= strength
                    part.bias *= strength
        with pytest.raises(ModelError, match="mixes positions"):
            speechmix.load(module)

    @pytest.mark.every_family
    @pytest.mark.parametrize("strength", [pytest.param(1e-2, marks=pytest.mark.long), 1e-3])
    @pytest.mark.parametrize("name", ALL_FAMILIES)
    def test_weak_attention_is_no_fault(self, name, strength):
        module = build(name).double()
        for stack in speechmix.load(module, check=False).stacks.values():
            for layer in stack.layers:
                with torch.no_grad():
                    output = layer.attention.output
                    output.weight *= strength
        for dtype in (torch.float32, torch.float64):
            speechmix.load(module.to(dtype))

    @pytest.mark.parametrize(
        "name",
        [
            *("llama", "bert", "whisper-80"),
            *(pytest.param(name, marks=pytest.mark.long) for name in ("wav2vec2-stable", "gpt2")),
        ],
    )
    def test_wide_layers_and_large_states_are_no_fault(self, name):
        """Rounding in float32 is a few units of the largest state's last place."""
        widths = {"hidden_size": 512, "intermediate_size": 2048}
        if name == "whisper-80":
            widths = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
        elif name == "gpt2":
            widths = {"n_embd": 512}
        small = {"init_std": 0.05} if name == "whisper-80" else {"initializer_range": 0.05}
        module = build(name, **widths, **small, **({"head_dim": 128} if name == "llama" else {}))
        with (
            torch.no_grad()
        ):  # a few states a thousand times the others, as in trained language models
            for path, weight in module.named_parameters():
                if path.endswith(("fc2.bias", "mlp.c_proj.bias", "output_dense.bias")):
                    weight[7] += 300.0
        for dtype in (torch.float32, torch.bfloat16):
            speechmix.load(module.to(dtype))


def test_the_check_is_quick_for_a_full_window_of_whisper():
    module = build(
        "whisper-80", d_model=256, max_source_positions=1500, encoder_ffn_dim=1024, init_std=0.05
    )
    speechmix.load(module)
    begun = time.perf_counter()
    speechmix.load(module)
    assert time.perf_counter() - begun < 2.0


@pytest.mark.long  # each in double precision by the tests of its own
def test_every_family_of_the_library_passes_in_every_precision():
    assert len(families()) >= 15
    for name in ALL_FAMILIES:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            model = speechmix.load(build(name).to(dtype))
            assert not any(stack.unknown_sum_reason for stack in model.stacks.values()), name
