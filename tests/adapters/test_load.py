"""load(): objects and folders of every family, random twins, precision, refusals, and a model that
stays as it was."""

from __future__ import annotations

import functools
import json
import shutil
import types

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import speechmix
from speechmix.adapters import families
from speechmix.errors import InputError, ModelError
from speechmix.inputs import bundled
from tests.adapters.own_model import own_family, own_model
from tests.conftest import FAMILIES, build, inputs_of, tiny

SPANS = [(3, 9), (12, 31), (40, 58)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder, in hub format, of a tiny model of a family; written once."""
    folders = {}

    def folder_of(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("models") / name
            build(name).save_pretrained(folders[name])
        return folders[name]

    return folder_of


@pytest.fixture(scope="module")
def loaded(saved):
    """Model of a tiny family from its folder, loaded once for tests that only look at it."""
    return functools.cache(lambda name: speechmix.load(saved(name), device="cpu"))


@pytest.fixture
def offline(monkeypatch):
    """No hub, whatever the machine's settings are."""
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def in_float32(inputs):
    return {name: x.float() if x.is_floating_point() else x for name, x in inputs.items()}


class TestSources:
    def test_object_is_wrapped_and_not_copied(self, family_name):
        module = build(family_name)
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        model = speechmix.load(module)
        assert model.module is module
        assert same_weights(weights(model), before)
        assert model.init == "trained"
        assert model.seed is None

    def test_folder_gives_the_saved_weights(self, family_name, loaded):
        model = loaded(family_name)
        expected = build(family_name).base_model.state_dict()
        found = model.base.state_dict()
        assert found.keys() >= expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)

    def test_folder_keeps_the_ctc_head_if_the_checkpoint_has_one(self, family_name, loaded):
        model = loaded(family_name)
        expected = FAMILIES[family_name][1]
        assert type(model.module).__name__ == (
            "WhisperForConditionalGeneration" if expected.startswith("Whisper") else expected
        )
        if expected.endswith("ForCTC"):
            assert torch.equal(model.module.lm_head.weight, build(family_name).lm_head.weight)

    @pytest.mark.every_family
    def test_folder_and_object_give_the_same_scores(self, family_name, saved):
        inputs = inputs_of(tiny(family_name))
        a = speechmix.mix(tiny(family_name), inputs, spans=SPANS)
        b = speechmix.mix(
            speechmix.load(saved(family_name), device="cpu", dtype="float64"), inputs, spans=SPANS
        )
        assert list(a) == list(b)
        for key in a:
            np.testing.assert_allclose(a[key].scores, b[key].scores, rtol=1e-10)

    def test_path_may_be_a_string(self, saved):
        folder = saved("wav2vec2-post")
        assert same_weights(weights(speechmix.load(str(folder))), weights(speechmix.load(folder)))

    @pytest.mark.every_family
    def test_evaluation_mode_and_no_gradients(self, family_name, saved):
        """What load() made itself is so for good, an object while it is in use
        (tests/adapters/test_lending.py)."""
        for source in (build(family_name).train().requires_grad_(True), saved(family_name)):
            model = speechmix.load(source, device="cpu")
            for module in (model.module,) if source is not model.module else ():
                assert not any(part.training for part in module.modules())
                assert not any(parameter.requires_grad for parameter in module.parameters())
            with model.in_use():
                assert not any(part.training for part in model.module.modules())
                assert not any(parameter.requires_grad for parameter in model.module.parameters())

    def test_stacks_are_those_of_the_family(self, model, family_name):
        expected = (
            ["encoder", "decoder", "cross"] if family_name.startswith("whisper") else ["encoder"]
        )
        assert list(model.stacks) == expected
        for stack in model.stacks.values():
            assert (len(stack), stack.heads, stack.width) == (3, 4, 32)

    @pytest.mark.parametrize("name", [name for name in FAMILIES if not name.startswith("whisper")])
    def test_norm_order_and_final_norm_of_encoders(self, name):
        stack = speechmix.load(build(name)).stacks["encoder"]
        stable = getattr(build(name).config, "do_stable_layer_norm", False)
        assert stack.spec.norm_order == ("pre" if stable else "post")
        assert (stack.final_norm is not None) == stable

    def test_whisper_of_80_and_128_mel_bins(self, loaded):
        for name, bins in (("whisper-80", 80), ("whisper-128", 128)):
            model = loaded(name)
            assert model.config.num_mel_bins == bins
            scores = speechmix.mix(model, in_float32(inputs_of(model)), spans=SPANS)[
                "value_zeroing", "cross"
            ].scores
            assert scores.shape == (3, 7, 3)
            assert (scores > 0).all()

    def test_full_window_whisper_gets_an_extractor_with_its_number_of_mel_bins(self):
        for name, bins in (("whisper-80", 80), ("whisper-128", 128)):
            model = speechmix.load(build(name, max_source_positions=50))
            assert model.feature_extractor.feature_size == bins
            assert model.feature_extractor.n_samples == 16_000

    def test_description_says_what_was_found(self, model):
        text = model.describe()
        assert model.family.name in text
        assert "float64" in text
        for stack in model.stacks:
            assert stack in text


@pytest.mark.every_family
class TestRandomTwin:
    @pytest.mark.parametrize("origin", ["object", "folder"])
    def test_seed_decides_the_weights(self, family_name, saved, origin):
        source = build(family_name) if origin == "object" else saved(family_name)
        trained = speechmix.load(source, device="cpu", check=False)
        first, again, other = (
            speechmix.load(source, init="random", seed=s, device="cpu", check=False)
            for s in (3, 3, 4)
        )
        assert same_weights(weights(first), weights(again))
        assert not same_weights(weights(first), weights(other))
        assert not same_weights(weights(first), weights(trained))
        assert (first.init, first.seed) == ("random", 3)

    @pytest.mark.parametrize("origin", ["object", "folder"])
    def test_architecture_is_that_of_the_trained_model(self, family_name, saved, origin):
        source = build(family_name) if origin == "object" else saved(family_name)
        trained = speechmix.load(source, device="cpu", check=False)
        twin = speechmix.load(source, init="random", device="cpu", check=False)
        assert type(twin.module) is type(trained.module)
        assert {n: x.shape for n, x in weights(twin).items()} == {
            n: x.shape for n, x in weights(trained).items()
        }
        differing = {"_name_or_path", "dtype", "transformers_version", "architectures"}
        a, b = (
            {k: v for k, v in m.config.to_dict().items() if k not in differing}
            for m in (trained, twin)
        )
        assert a == b

    def test_folder_and_object_give_the_same_twin(self, family_name, saved):
        folder = speechmix.load(
            saved(family_name), init="random", seed=5, device="cpu", check=False
        )
        module = speechmix.load(saved(family_name), device="cpu", check=False).module
        assert same_weights(
            weights(folder), weights(speechmix.load(module, init="random", seed=5, check=False))
        )

    def test_given_object_stays_as_it_is(self):
        module = build("wav2vec2-stable")
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        speechmix.load(module, init="random", seed=1)
        assert same_weights(module.state_dict(), before)

    @pytest.mark.parametrize(
        ("origin", "init"),
        [
            ("folder", "trained"),
            ("object", "random"),
            pytest.param("object", "trained", marks=pytest.mark.long),  # reads no weights
            pytest.param("folder", "random", marks=pytest.mark.long),
        ],
    )
    def test_random_state_of_the_caller_is_untouched(self, family_name, saved, origin, init):
        source = build(family_name) if origin == "object" else saved(family_name)
        torch.manual_seed(7)
        before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        speechmix.load(source, init=init, device="cpu")
        assert torch.equal(torch.get_rng_state(), before)
        assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002

    def test_seed_is_zero_if_not_given(self):
        twin = speechmix.load(build("wav2vec2-post"), init="random")
        assert twin.seed == 0
        assert same_weights(
            weights(twin),
            weights(speechmix.load(build("wav2vec2-post"), init="random", seed=0, check=False)),
        )

    def test_callers_seed_has_no_influence(self):
        torch.manual_seed(1)
        first = speechmix.load(build("wav2vec2-post"), init="random", seed=0, check=False)
        torch.manual_seed(2)
        assert same_weights(
            weights(first),
            weights(speechmix.load(build("wav2vec2-post"), init="random", seed=0, check=False)),
        )

    def test_twin_keeps_the_precision_of_an_object(self):
        assert speechmix.load(build("wav2vec2-post").double(), init="random").dtype == torch.float64

    @pytest.mark.parametrize("name", ["wav2vec2-post", "wav2vec2-stable", "whisper-80"])
    def test_float32_twin_of_a_half_precision_checkpoint_is_not_rounded_to_half(
        self, tmp_path, name
    ):
        build(name).half().save_pretrained(tmp_path)
        twin = speechmix.load(tmp_path, init="random", seed=0, device="cpu")
        weight = (
            twin.stacks["encoder"]
            .layers[0]
            .module.get_parameter(
                "self_attn.v_proj.weight" if name == "whisper-80" else "attention.v_proj.weight"
            )
        )
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, weight.half().float())
        build(name).save_pretrained(tmp_path / "float32")
        assert same_weights(
            weights(twin),
            weights(speechmix.load(tmp_path / "float32", init="random", seed=0, device="cpu")),
        )


class TestPrecisionAndDevice:
    def test_float32_by_default_from_a_folder(self, saved):
        assert speechmix.load(saved("wav2vec2-post"), device="cpu").dtype == torch.float32

    @pytest.mark.parametrize("dtype", ["float64", torch.float64])
    def test_asked_precision(self, saved, dtype):
        model = speechmix.load(saved("whisper-80"), device="cpu", dtype=dtype)
        assert {p.dtype for p in model.module.parameters()} == {torch.float64}

    def test_device(self, saved):
        assert speechmix.load(saved("wav2vec2-post"), device="cpu").device == torch.device("cpu")
        assert speechmix.load(
            build("wav2vec2-post"), device=torch.device("cpu")
        ).device == torch.device("cpu")

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_cuda_scores_are_those_of_the_cpu(self, family_name):
        inputs = inputs_of(speechmix.load(build(family_name)))
        found = speechmix.mix(
            speechmix.load(build(family_name).double(), device="cuda"), inputs, spans=SPANS
        )
        expected = speechmix.mix(speechmix.load(build(family_name).double()), inputs, spans=SPANS)
        for key in expected:
            np.testing.assert_allclose(found[key].scores, expected[key].scores, rtol=1e-8)

    @pytest.mark.every_family
    @pytest.mark.parametrize(  # what is given back of bfloat16: test_lending.py
        "dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.long)]
    )
    def test_half_precision_model_is_scored_in_float32_and_given_back_bit_by_bit(
        self, family_name, tmp_path, dtype
    ):
        build(family_name).to(getattr(torch, dtype)).save_pretrained(tmp_path)
        half = speechmix.load(tmp_path, device="cpu", dtype=dtype)
        full = speechmix.load(tmp_path, device="cpu", dtype="float32")
        assert half.dtype == getattr(torch, dtype)
        before, inputs = weights(half), in_float32(inputs_of(half))
        measures = ["value_zeroing", "attention", "attention_norm"]
        found = speechmix.mix(half, inputs, spans=SPANS, measures=measures)
        expected = speechmix.mix(full, inputs, spans=SPANS, measures=measures)
        for key in expected:
            assert found[key].scores.dtype == np.float32
            np.testing.assert_allclose(found[key].scores, expected[key].scores, rtol=1e-4)
        assert same_weights(weights(half), before)
        assert half.dtype == getattr(torch, dtype)
        assert {p.dtype for p in half.module.parameters()} == {half.dtype}

    def test_float64_model_cannot_be_run_in_float32_and_given_back(self):
        model = speechmix.load(build("wav2vec2-post").double())
        with pytest.raises(ModelError, match="load it with dtype="):
            speechmix.mix(model, inputs_of(model), dtype="float32")
        assert model.dtype == torch.float64

    def test_unknown_precision_says_what_there_is(self):
        with pytest.raises(InputError, match="dtype"):
            speechmix.load(build("wav2vec2-post"), dtype="float12")


class TestRefusals:
    def test_seed_without_random_init(self):
        with pytest.raises(InputError, match="init='random'"):
            speechmix.load(build("wav2vec2-post"), seed=1)

    def test_unknown_init(self):
        with pytest.raises(InputError, match=r"trained.*random.*'fresh'"):
            speechmix.load(build("wav2vec2-post"), init="fresh")

    @pytest.mark.parametrize("origin", ["object", "folder"])
    @pytest.mark.parametrize("init", ["trained", "random"])
    def test_unsupported_architecture_names_the_part_and_what_to_do(self, tmp_path, origin, init):
        config = transformers.XLNetConfig(
            d_model=16, n_layer=1, n_head=2, d_inner=16, vocab_size=20
        )
        source = transformers.XLNetModel(config)
        if origin == "folder":
            source.save_pretrained(tmp_path)
            source = tmp_path
        with pytest.raises(ModelError) as error:
            speechmix.load(source, init=init)
        for known in (
            "'xlnet'",
            "no table of the layers",
            "describe-architecture",
            "new_architecture.md",
            "register",
        ):
            assert known in str(error.value)

    def test_an_architecture_of_unknown_inputs_names_what_takes_inputs(self):
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=8,
            patch_size=4,
        )
        module = transformers.ViTModel(config)
        with pytest.raises(ModelError, match=r"speechmix\.infer_family\(module, inputs=\.\.\.\)"):
            speechmix.load(module)

    def test_a_whisper_object_without_its_processor_says_so(self):
        """Whatever it is used for that needs the tokenizer."""
        clip = next(clip for clip in bundled.clips() if clip.foil)
        folder = bundled.models()["tiny-french-whisper"]
        model = speechmix.load(speechmix.load(folder, device="cpu").module)
        untimed = clip.replace(words=None, cue=None, target=None, foil=None)
        for use in (
            lambda: speechmix.explain(model, clip),
            lambda: speechmix.ground(model, clip),
            lambda: speechmix.ablate(model, clip),
            lambda: speechmix.align(untimed, model=model, method="whisper"),
            lambda: speechmix.mix(model, clip, stacks="decoder"),
            lambda: model.with_prefix(task="translate"),
        ):
            with pytest.raises(speechmix.SpeechmixError, match=r"without a tokenizer.*processor="):
                use()

    def test_folder_without_a_model(self, tmp_path):
        with pytest.raises(ModelError, match=r"config\.json"):
            speechmix.load(tmp_path)

    def test_folder_that_does_not_exist(self, tmp_path, offline):
        with pytest.raises(ModelError, match="hub id or a folder"):
            speechmix.load(tmp_path / "nowhere")

    def test_hub_id_that_cannot_be_reached(self, offline):
        with pytest.raises(ModelError, match=r"nobody/no-such-model.*hub id or a folder"):
            speechmix.load("nobody/no-such-model")

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("vocab.json", b'{"<pad>": 0, "a'),
            ("vocab.json", b'{"<pad>": 0, "a": "x"}'),
            ("tokenizer_config.json", b""),
            ("preprocessor_config.json", b"[1]"),
            ("generation_config.json", b"\0" * 20),
        ],
    )
    def test_damaged_file_beside_the_weights(self, tmp_path, name, content):
        """transformers leaves it out and goes on."""
        folder = tmp_path / "model"
        shutil.copytree(bundled.models()["tiny-french-ctc"], folder)
        (folder / name).write_bytes(content)
        with pytest.raises(ModelError, match=rf"{name} is damaged \(.*fetch or save it again"):
            speechmix.load(folder, device="cpu")

    def test_a_tokenizer_that_lacks_most_tokens_is_left_out_with_a_warning(self, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(bundled.models()["tiny-french-ctc"], folder)
        (folder / "vocab.json").write_text('{"a": 0, "b": 1}')
        with pytest.warns(
            UserWarning, match="its tokenizer has . tokens and the model .., so it is left"
        ):
            model = speechmix.load(folder, device="cpu")
        clip = bundled.clips()[0].replace(words=None, text=None, cue=None, target=None, foil=None)
        with pytest.raises(InputError, match="without a tokenizer: load it with processor="):
            speechmix.explain(model, clip)

    def test_tokenizer_that_cannot_be_loaded_is_said(self, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(bundled.models()["tiny-french-ctc"], folder)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NoSuchTokenizer"}')
        with pytest.warns(UserWarning, match="model: no Tokenizer"):
            assert speechmix.load(folder, device="cpu", check=False).tokenizer is None

    def test_folder_with_a_config_but_no_weights(self, tmp_path, saved):
        (tmp_path / "config.json").write_text((saved("wav2vec2-post") / "config.json").read_text())
        with pytest.raises(ModelError, match="weights"):
            speechmix.load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "missing"),
        [
            ("wav2vec2-post", "wav2vec2.encoder.layers.1.attention.v_proj.weight"),
            ("wav2vec2-stable", "encoder.layer_norm.weight"),
            ("whisper-80", "model.decoder.layers.2.encoder_attn.out_proj.bias"),
        ],
    )
    def test_missing_weights_are_named_and_never_drawn_at_random(self, tmp_path, name, missing):
        build(name).save_pretrained(tmp_path)
        tensors = load_file(tmp_path / "model.safetensors")
        key = next(key for key in tensors if key.endswith(missing))
        del tensors[key]
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelError, match=missing.replace(".", r"\.")):
            speechmix.load(tmp_path, device="cpu")

    def test_checkpoint_without_the_head_its_config_names(self, tmp_path):
        build("wav2vec2-stable").save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(
            json.dumps({**config, "architectures": ["Wav2Vec2ForCTC"]})
        )
        with pytest.raises(ModelError, match="lm_head"):
            speechmix.load(tmp_path, device="cpu")

    def test_weights_of_another_shape(self, tmp_path):
        build("wav2vec2-stable").save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 40}))
        with pytest.raises(ModelError, match="weights"):
            speechmix.load(tmp_path, device="cpu")

    def test_part_of_a_model(self):
        with pytest.raises(ModelError, match="whole model"):
            speechmix.load(build("wav2vec2-stable").encoder, check=False)


@pytest.mark.every_family
class TestNothingIsLeftBehind:
    """The model object is the caller's: load() and mix() look, and change nothing."""

    @staticmethod
    def forward(module, inputs):
        options = {"use_cache": False} if "decoder_input_ids" in inputs else {}
        with torch.no_grad():
            output = module(**inputs, **options)
        return output[0]

    @staticmethod
    def attention_of(module):
        """What every part's config says; WavLM stays "eager" whatever is asked."""
        return [
            part.config._attn_implementation for part in module.modules() if hasattr(part, "config")
        ]

    @staticmethod
    def assert_untouched(module):
        for name, part in module.named_modules():
            assert not part._forward_hooks, name
            assert not part._forward_pre_hooks, name
            assert "forward" not in part.__dict__, name

    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_after_loading_and_mixing(self, family_name, attention):
        module = build(family_name).double()
        module.set_attn_implementation(attention)
        configured = self.attention_of(module)
        inputs = inputs_of(tiny(family_name))
        before = self.forward(module, inputs)
        model = speechmix.load(module)
        measures = ["value_zeroing", "attention", "attention_norm"]
        for heads in ("mean", "each"):
            speechmix.mix(model, inputs, spans=SPANS, measures=measures, heads=heads)
        self.assert_untouched(module)
        assert self.attention_of(module) == configured
        assert torch.equal(self.forward(module, inputs), before)

    @pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.long)])
    def test_after_an_error_in_the_middle_of_the_pass(self, family_name, attention):
        module = build(family_name).double()
        module.set_attn_implementation(attention)
        configured = self.attention_of(module)
        model = speechmix.load(module)
        inputs = inputs_of(model)
        before = self.forward(module, inputs)
        with pytest.raises(InputError):
            speechmix.mix(model, inputs, spans=[(0, 10_000)])
        self.assert_untouched(module)
        assert self.attention_of(module) == configured
        assert torch.equal(self.forward(module, inputs), before)

    def test_eager_and_sdpa_models_give_the_same_scores(self, family_name):
        maps = []
        for attention in ("sdpa", "eager"):
            module = build(family_name).double()
            module.set_attn_implementation(attention)
            model = speechmix.load(module)
            maps.append(
                speechmix.mix(
                    model, inputs_of(model), spans=SPANS, measures=["value_zeroing", "attention"]
                )
            )
        for key in maps[0]:
            np.testing.assert_array_equal(maps[0][key].scores, maps[1][key].scores)

    def test_loading_twice_and_mixing_twice_gives_the_same(self, family_name):
        module = build(family_name).double()
        inputs = inputs_of(speechmix.load(module))
        first, second = (
            speechmix.mix(speechmix.load(module), inputs, spans=SPANS) for _ in range(2)
        )
        for key in first:
            np.testing.assert_array_equal(first[key].scores, second[key].scores)

    def test_hooks_of_the_caller_stay(self):
        module, calls = build("wav2vec2-post").double(), []
        handle = module.encoder_hooked = module.base_model.encoder.register_forward_hook(
            lambda *_: calls.append(1)
        )
        model = speechmix.load(module)
        speechmix.mix(model, inputs_of(model), spans=SPANS)
        assert list(module.base_model.encoder._forward_hooks) == [handle.id]
        assert len(calls) == 2


@pytest.fixture
def registered(monkeypatch):
    """Register a table of the own model for one test."""
    from speechmix.adapters.families import registry

    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    return lambda **changes: speechmix.register(own_family(**changes))


def unpacked(output):
    return output[0] if isinstance(output, tuple) else output


def by_rerunning(module, inputs, spans):
    """Value Zeroing of the own model: each layer run again per source, values zeroed by a hook."""
    tower, maps = module.tower, []
    with torch.no_grad():
        x = module.ears(inputs["waveform"][:, None]).transpose(1, 2)
        for index, block in enumerate(tower.blocks):
            norm = tower.closing if index == len(tower.blocks) - 1 else torch.nn.Identity()
            clean, columns = unpacked(block(x)), []
            for start, stop in spans:

                def zero(_, args, output, start=start, stop=stop):
                    output = output.clone()
                    output[:, start:stop] = 0
                    return output

                handle = block.mixer.wv.register_forward_hook(zero)
                moved = 1 - torch.nn.functional.cosine_similarity(
                    norm(clean)[0], norm(unpacked(block(x)))[0], dim=-1
                )
                handle.remove()
                columns.append(torch.stack([moved[a:b].mean() for a, b in spans]))
            maps.append(torch.stack(columns, dim=1))
            x = clean
    return torch.stack(maps).numpy()


class TestRegister:
    spans = ((0, 4), (4, 5), (9, 17))
    inputs = types.MappingProxyType(
        {
            "waveform": torch.randn(
                1, 6_480, generator=torch.Generator().manual_seed(3), dtype=torch.double
            )
        }
    )

    @pytest.mark.parametrize(
        "bare",
        [(), ("attention",), ("layer",), ("tower",), ("attention", "layer", "tower")],
        ids="-".join,
    )
    def test_own_architecture_gives_the_scores_of_rerunning_its_layers(self, registered, bare):
        """Attention, layer and the module that holds the layers may return a tuple or a bare
        tensor."""
        registered()
        model = speechmix.load(own_model(bare=bare))
        found = speechmix.mix(model, self.inputs, spans=self.spans)[
            "value_zeroing", "encoder"
        ].scores
        expected = by_rerunning(model.module, self.inputs, self.spans)
        assert np.abs(found - expected).max() <= 1e-9 * expected.max()

    def test_own_architecture_scores_a_clip_and_has_a_random_twin(self, registered):
        registered()
        twin = speechmix.load(own_model(), init="random", seed=2)
        audio = np.random.default_rng(0).normal(size=16_000)
        clip = speechmix.Clip.from_array(audio, 16_000, words=[("un", 0.1, 0.3), ("mot", 0.3, 0.9)])
        maps = speechmix.mix(twin, clip, measures=["value_zeroing", "attention", "attention_norm"])
        assert maps["value_zeroing", "encoder"].scores.shape == (2, 2, 2)
        assert all((m.scores > 0).all() for m in maps.values())

    def test_registered_family_is_listed_and_described(self, registered):
        registered()
        assert "own" in [family.name for family in families()]
        assert "final norm: tower.closing" in speechmix.load(own_model()).describe()

    def test_unregistered_model_object_is_refused(self):
        with pytest.raises(ModelError, match=r"'own_speech'.*register"):
            speechmix.load(own_model())


class TestSelfCheck:
    """A table that does not fit, or a model that cannot be replayed, is an error on loading that
    names the place."""

    def found(self, registered, pattern, module=None, **changes):
        registered(**changes)
        with pytest.raises(ModelError, match=pattern):
            speechmix.load(module or own_model())

    def test_right_table_passes(self, registered):
        registered()
        speechmix.load(own_model())

    @pytest.mark.parametrize("part", ["value", "key", "output"])
    def test_wrong_path_of_a_projection(self, registered, part):
        from speechmix.adapters import AttentionSpec

        paths = {"value": "wv", "key": "wk", "output": "wo", part: "nowhere"}
        self.found(
            registered,
            r"mixer\.nowhere.*Mixer has no 'nowhere'",
            blocks=(AttentionSpec.of("mixer", **paths),),
        )

    def test_wrong_path_of_the_layers(self, registered):
        self.found(registered, "Tower has no 'layers'", layers="tower.layers")

    def test_final_norm_that_does_not_exist(self, registered):
        self.found(
            registered, "final norm of the encoder.*Tower has no 'norm'", final_norm="tower.norm"
        )

    @pytest.mark.parametrize("final_norm", [None, "tower.unused"])
    def test_final_norm_forgotten_or_another_one(self, registered, final_norm):
        self.found(registered, "output of the encoder.*final_norm", final_norm=final_norm)

    def test_attention_module_that_is_not_attention(self, registered):
        from speechmix.adapters import AttentionSpec

        plan = AttentionSpec("between", "mixer.wv", "mixer.wk", "mixer.wo")
        self.found(
            registered, "encoder layer 0.*'between'.*scaled_dot_product_attention", blocks=(plan,)
        )

    def test_output_projection_that_is_another_one(self, registered):
        from speechmix.adapters import AttentionSpec

        plan = AttentionSpec.of("mixer", value="wv", key="wk", output="wq")
        self.found(
            registered,
            "encoder layer 0.*something besides attention mixes positions",
            blocks=(plan,),
        )

    def test_attention_written_out_by_hand_cannot_be_read(self, registered):
        module = own_model(fault="by hand")
        self.found(registered, "encoder layer 0.*'mixer'.*scaled_dot_product_attention", module)

    def test_layer_that_mixes_positions_beside_attention(self, registered):
        self.found(registered, "encoder layer 0.*mixes positions", own_model(fault="convolution"))

    def test_layer_that_does_not_run(self, registered):
        self.found(registered, "encoder: only 1 of 2 layers ran", own_model(fault="skip"))

    def test_wrong_number_of_heads(self, registered):
        self.found(registered, "encoder layer 0.*expected 4 heads", heads=4)

    def test_stack_called_causal_that_is_not(self, registered):
        """Its scores above the diagonal would silently be left out."""
        self.found(registered, "causal", causal=True)

    def test_causal_attention_is_read_off_the_call(self, registered):
        registered(causal=True)
        model = speechmix.load(own_model(fault="causal"))
        scores = speechmix.mix(model, TestRegister.inputs)["value_zeroing", "encoder"].scores
        assert (np.triu(scores, 1) == 0).all()
        assert (np.tril(scores) + np.triu(np.ones_like(scores), 1) > 0).all()

    def test_zero_output_projection_is_noticed(self):
        module = build("wav2vec2-stable")
        torch.nn.init.zeros_(module.encoder.layers[1].attention.out_proj.weight)
        with pytest.raises(ModelError, match=r"encoder layer 1.*changes nothing"):
            speechmix.load(module)

    def test_check_can_be_left_out(self, registered):
        registered(final_norm=None)
        assert speechmix.load(own_model(), check=False).stacks["encoder"].final_norm is None
