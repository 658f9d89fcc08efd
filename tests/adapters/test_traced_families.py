"""Models without a written table: `load` traces one and verifies it, or says what it did not
understand."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters import family_of_type
from speechmix.adapters.binding.bound_layers import layer_modules
from speechmix.adapters.capture.model_use import run_encoder
from speechmix.adapters.families.conformers import granite_grid
from speechmix.adapters.model import Model
from speechmix.extensions.tracing import traced_family
from speechmix.extensions.tracing.input_search import InputForm, find_input_form
from speechmix.extensions.tracing.measured_grid import MeasuredGrid
from speechmix.extensions.tracing.replay_oracle import _ZeroedValues, compare_with_replay
from tests import families_measured, mapping_coverage, oracle_by_path
from tests.models import audio_language_models, build
from tests.models.traced_models import TRACED_MODELS, build_traced_model
from tests.oracle_by_path import Where

# Model types that load: the stacks of the traced table, and by what the inputs that tracing tries are
# longer in the comparison, so that the encoder has 200 positions or more.
LOADED = {
    "lasr_ctc": (("encoder",), 3),
    "sew-d": (("encoder",), 9),
    "moonshine_streaming": (("encoder", "decoder", "cross"), 5),
    "cohere_asr": (("encoder", "decoder", "cross"), 5),
    "canary": (("encoder", "decoder", "cross"), 5),
    "seamless_m4t": (("encoder",), 1),
    "speech-encoder-decoder": (("encoder", "decoder", "cross"), 5),
    "nemotron_asr_streaming": (("encoder",), 5),
    "nemotron3_5_asr": (("encoder",), 5),
    "qwen3_asr": (("encoder", "decoder"), 5),
    "glmasr": (("encoder", "decoder"), 1),
    "voxtral_realtime": (("encoder", "decoder"), 1),
    "granite_speech_plus": (("encoder", "decoder"), 1),
    "moss_transcribe_diarize": (("encoder", "decoder"), 1),
    "kyutai_speech_to_text": (("decoder",), 27),
    "qwen3_omni_moe_thinker": (("encoder", "decoder"), 5),
    "phi4_multimodal": (("decoder",), 27),
    "audioflamingo3": (("encoder", "decoder"), 1),
    "pop2piano": (("encoder", "decoder", "cross"), 1),
    "dia": (("encoder", "decoder", "cross"), 27),
    "vibevoice": (("decoder",), 45),
    "vibevoice_asr": (("decoder",), 45),
    "fun_asr_nano": (("decoder",), 1),
    "gemma4": (("decoder",), 27),
    "gemma4, shared values": (("decoder",), 27),
    "gemma4_unified": (("decoder",), 1),
    "muse_spark": (("decoder",), 1),
    "dots3_note": (("decoder",), 27),
}
_SINGLE_PRECISION = (
    "qwen3_omni_moe_thinker",
    "muse_spark",
    "dots3_note",
)  # its products of experts run in no other
# Model types that are refused, and words of the reason.
REFUSED = {
    "granite_speech5_ctc": "layer 1 makes 200 positions of 400",
}


pytestmark = pytest.mark.filterwarnings("ignore:.*the table has the (en|de)coder alone")


def load_traced(name: str) -> speechmix.Model:
    return speechmix.load(copy.deepcopy(build_traced_model(name)).float())


_LONG = (  # others have like layers
    # Other tests here or of transducers trace these three, too.
    *("canary", "nemotron_asr_streaming", "dots3_note"),
    *("gemma4", "gemma4_unified", "vibevoice", "vibevoice_asr", "seamless_m4t", "cohere_asr"),
    *("nemotron3_5_asr", "glmasr", "granite_speech_plus", "moss_transcribe_diarize", "muse_spark"),
    *("qwen3_omni_moe_thinker", "audioflamingo3", "dia", "fun_asr_nano"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in _LONG)) for name in LOADED],
)
def test_a_traced_model_gives_what_the_definition_gives(name):
    stacks, longer = LOADED[name]
    model = load_traced(name)
    assert tuple(model.stacks) == stacks
    assert model.capabilities.family == f"{model.config.model_type} (traced)"
    module = copy.deepcopy(build_traced_model(name))
    module = module.float() if name in _SINGLE_PRECISION else module
    model = Model(module, model.family, name)
    # Of this model the search takes 3 s, and `load` has searched before.
    is_text = name == "gemma4, shared values"
    form = InputForm("text") if is_text else find_input_form(module.base_model)
    length = longer * (form.length if form.hears else 8)
    inputs = form.make(module.base_model, length=length, padding=form.padding)
    comparisons = compare_with_replay(model, inputs)
    assert comparisons[0].source_count >= 200
    assert not [found for found in comparisons if not found.agrees]


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_not_understood_is_refused_with_the_part(name):
    with pytest.raises(speechmix.SpeechmixError) as error:
        load_traced(name)
    for words in (REFUSED[name], "describe-architecture", "new_architecture.md"):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param(
            "vibevoice_asr", "no attention was found in what hears", marks=pytest.mark.long
        ),
        ("dots3_note", "it runs on no form of sound that was tried"),
        ("fun_asr_nano", "audio_tower.layers: the residual stream passes self_attn.v_proj"),
    ],
)
def test_a_sound_that_is_not_understood_leaves_the_decoder_with_the_reason(
    name, reason, monkeypatch
):
    monkeypatch.setattr(traced_family, "_traced_families", {})
    with pytest.warns(UserWarning, match=f"the table has the decoder alone .*{reason}"):
        model = load_traced(name)
    assert not model.hears  # a clip is refused: give prepared inputs


def _mobilebert(**sizes):
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    shape |= {"num_hidden_layers": 2, "vocab_size": 50, "intra_bottleneck_size": 16}
    config = transformers.MobileBertConfig(**{**shape, "embedding_size": 16, **sizes})
    return transformers.MobileBertForMaskedLM(config).eval()


def test_a_config_of_unusual_sizes_is_refused_with_the_part():
    reason = (
        r"MobileBertSelfAttention raised RuntimeError: (addmm: )?mat1"  # torch 2.15 names addmm
    )
    with pytest.raises(speechmix.SpeechmixError, match=reason):
        speechmix.load(_mobilebert(key_query_shared_bottleneck=False))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sums_that_are_not_understood_leave_layers_to_be_run_as_a_whole():
    """The head has a projection to no units at all."""
    model = speechmix.load(_mobilebert(embedding_size=32))
    spec = model.stacks["encoder"].spec
    assert spec.blocks[0].is_rerun
    assert not spec.feed_forwards


@pytest.mark.parametrize(
    "name",
    # An encoder alone, and two stacks in one model; a cross-attention differs in no part of it.
    ["lasr_ctc", pytest.param("canary", marks=pytest.mark.long), "qwen3_asr"],
)
def test_a_traced_family_does_not_hold_the_model_that_was_traced(name, monkeypatch):
    modules: list[weakref.ref] = []
    original = traced_family.build_small_model

    def build_small_model(*arguments):
        module = original(*arguments)
        modules.append(weakref.ref(module))
        return module

    monkeypatch.setattr(traced_family, "build_small_model", build_small_model)
    module = build_traced_model(name)
    family = traced_family.trace_family(copy.deepcopy(module.config), type(module), None)
    gc.collect()
    assert modules
    assert not any(reference() for reference in modules)
    assert family.is_traced


_WHERE = {
    "lasr_ctc": Where("encoder.layers", "self_attn.v_proj", "encoder.out_norm"),
    "canary": Where("model.encoder.layers", "self_attn.v_proj"),
    "sew-d": Where("sew_d.encoder.encoder.layer", "attention.self.value_proj"),
}


@pytest.mark.parametrize("name", _WHERE)
def test_maps_are_those_of_an_oracle_that_reads_no_table(name):
    """The oracle of the tests, whose paths are written here by hand."""
    module = copy.deepcopy(build_traced_model(name))
    model = Model(module, load_traced(name).family, name)
    form = find_input_form(module.base_model)
    inputs = form.make(module.base_model, length=form.length)
    inputs = {key: x for key, x in inputs.items() if not key.startswith("decoder")}
    scores = speechmix.mix(model, inputs, stacks=["encoder"])["value_zeroing", "encoder"].scores
    positions = list(range(0, scores.shape[1], 13))
    single = [[position] for position in positions]
    alone = {**inputs, "decoder_input_ids": torch.tensor([[5, 6]])} if name == "canary" else inputs
    expected = oracle_by_path.value_zeroing(module, alone, _WHERE[name], single, single)
    found = scores[:, positions][:, :, positions]
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_an_architecture_is_traced_once_for_all_its_twins(monkeypatch):
    traced: list[str] = []
    original = traced_family.trace_family
    monkeypatch.setattr(traced_family, "_traced_families", {})
    monkeypatch.setattr(
        traced_family,
        "trace_family",
        lambda config, *rest: traced.append(config.model_type) or original(config, *rest),
    )
    module = copy.deepcopy(build_traced_model("lasr_ctc"))
    for seed in range(3):
        module.config._name_or_path = f"moved/to/folder-{seed}"  # says nothing of the architecture
        speechmix.load(module, init="random", seed=seed)
    assert traced == ["lasr_ctc"]


def test_a_traced_model_goes_through_pickle_and_a_folder(tmp_path):
    module = copy.deepcopy(build_traced_model("canary")).float()
    module.save_pretrained(tmp_path)
    model = speechmix.load(tmp_path)
    again = pickle.loads(pickle.dumps(model))
    assert again.describe() == model.describe()
    assert tuple(model.stacks) == ("encoder", "decoder", "cross")


def test_text_models_without_a_table_are_traced():
    shape = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.BioGptConfig(num_hidden_layers=4, vocab_size=50, **shape)
    model = speechmix.load(transformers.BioGptForCausalLM(config), init="random", seed=0)
    assert model.describe().splitlines()[1].split()[:6] == "decoder 4 layers x 4 heads,".split()
    scores = speechmix.mix(model, {"input_ids": torch.arange(4, 12)[None]})
    assert scores["value_zeroing", "decoder"].scores.shape == (4, 8, 8)
    assert model.family.can_batch(config)  # padding behind a text changes nothing: that was tried


@pytest.mark.parametrize("wrong", ["scale", "output", "window"])
def test_the_comparison_refuses_a_wrong_table(wrong):
    model = load_traced("cohere_asr")
    spec = model.family.stacks(model.config)[0]
    feed_forward = spec.feed_forwards[0]
    changes = {
        "scale": {"feed_forwards": (replace(feed_forward, scale=0.25),)},
        "output": {"feed_forwards": (replace(feed_forward, norm=spec.blocks[0].norm),)},
        "window": {"convolution": replace(spec.convolution, causal=True)},
    }[wrong]
    sabotaged = replace(spec, **changes)
    module = copy.deepcopy(build_traced_model("cohere_asr"))
    family = replace(model.family, stacks=lambda config: (sabotaged,))
    form = find_input_form(module.base_model)
    inputs = form.make(module.base_model, padding=form.padding)
    (found,) = compare_with_replay(Model(module, family, "wrong"), inputs)
    assert not found.agrees


def _tiny(name: str, **values):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return getattr(transformers, f"{name}Model")(
            getattr(transformers, f"{name}Config")(**values)
        ).eval()


_GRIDS = {
    "wav2vec2": (lambda: build("wav2vec2-post"), transformers.Wav2Vec2FeatureExtractor),
    "wav2vec2-bert": (
        lambda: _tiny("Wav2Vec2Bert", hidden_size=32, num_hidden_layers=1, num_attention_heads=4),
        transformers.SeamlessM4TFeatureExtractor,
    ),
}


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (1.37, "wav2vec2-bert"),
        (4.0, "wav2vec2"),
        pytest.param(1.37, "wav2vec2", marks=pytest.mark.long),  # both lengths and models are above
        pytest.param(4.0, "wav2vec2-bert", marks=pytest.mark.long),
    ],
)
def test_frames_found_by_experiment_are_those_of_the_written_table(name, seconds):
    build_module, extractor = _GRIDS[name]
    module = copy.deepcopy(build_module()).float().eval()
    family = family_of_type(module.config.model_type)
    base, n_samples = module.base_model, round(16_000 * seconds)
    layer = layer_modules(family.stacks(module.config)[0], base)[0]
    grid = MeasuredGrid(lambda: (base, layer), find_input_form(base), extractor())
    found = grid(module.config, n_samples)
    written = family.grid(module.config, n_samples)
    assert found.n_frames == written.n_frames
    assert found.stride == pytest.approx(written.stride)
    assert found.first_centre == pytest.approx(written.first_centre, abs=0.002)


class _PadsNothing(transformers.Wav2Vec2FeatureExtractor):
    """Whose waveforms have any number of samples."""


def test_a_clip_goes_through_a_traced_recogniser_with_its_words():
    """Moonshine Streaming takes samples by 80, and its decoder writes into the encoder's output."""
    module = copy.deepcopy(build_traced_model("moonshine_streaming")).float()
    model = speechmix.load(module, processor=_PadsNothing())
    audio = np.random.default_rng(0).standard_normal(16_123).astype(np.float32)
    words = [("le", 0.0, 0.3), ("chat", 0.3, 0.6), ("dort", 0.6, 1.0)]
    clip = speechmix.Clip.from_array(audio, 16_000, text="le chat dort", words=words)
    found = speechmix.mix(model, clip, stacks=["encoder"])["value_zeroing", "encoder"]
    assert found.scores.shape == (3, 3, 3)
    with model.unchanged(), model.in_use(), torch.no_grad():
        inputs = model.family.prepare(model, clip, ("encoder",)).inputs
        first, again = (run_encoder(model, inputs, "sound")[0].clone() for _ in range(2))
        ids = {"decoder_input_ids": torch.tensor([[1, 5, 6]])}
        logits = [
            model.run_with_head(ids, encoder_outputs=run_encoder(model, inputs, "sound")).logits
            for _ in range(2)
        ]
    assert torch.equal(first, again)
    assert torch.equal(*logits)


def test_a_clip_goes_through_a_traced_audio_language_model_with_its_prompt():
    pytest.importorskip("torchaudio", reason="Granite's feature extractor needs torchaudio")
    config = TRACED_MODELS["granite_speech_plus"][1]()
    config.encoder_config.input_dim = 160
    config.text_config.vocab_size = len(audio_language_models.VOCABULARY)
    config.audio_token_id = audio_language_models.GRANITE_SOUND
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.GraniteSpeechPlusForConditionalGeneration(config).eval()
    processor = transformers.GraniteSpeechProcessor(
        transformers.GraniteSpeechFeatureExtractor(),
        audio_language_models.tokenizer(),
        chat_template=audio_language_models.GRANITE_CHAT,
    )
    model = speechmix.load(module, processor=processor)
    found, written = model.grid(24_000), granite_grid(config, 24_000)
    assert (model.projector_step, found.n_frames) == ((15, 3), written.n_frames)
    assert found.first_centre == pytest.approx(written.first_centre, abs=0.0005)
    maps = speechmix.mix(model, audio_language_models.clip())
    assert maps["value_zeroing", "encoder"].scores.shape == (3, 3, 3)
    labels = [span.label for span in maps["value_zeroing", "decoder"].sources]
    assert {"le", "chat", "dort"} <= set(labels)  # the words of the sound among the tokens


def test_the_comparison_refuses_a_layer_that_reads_values_twice():
    """Zeroing the first reading alone would leave the source in the second."""
    states = torch.randn(1, 2, 4, 3, generator=torch.Generator().manual_seed(0))
    attend = torch.nn.functional.scaled_dot_product_attention
    zeroed = states.index_fill(2, torch.tensor([1]), 0)
    with _ZeroedValues(1, 4, is_only_attention=True):
        context = attend(states, states, states)
        with pytest.raises(speechmix.SpeechmixError, match="reads values twice"):
            attend(states, states, states)
    torch.testing.assert_close(context, attend(states, states, zeroed))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param("CTC", "lasr_ctc", marks=pytest.mark.long),  # loads like the next one
        ("CTC", "sew-d"),
        pytest.param("CTC", "granite_speech5_ctc", marks=pytest.mark.long),
        ("audio language model", "inkling_mm_model"),  # a convolution over values
    ],
)
def test_the_stored_coverage_is_what_a_run_gives(kind, name):
    stored = json.loads(families_measured.COVERAGE_FILE.read_text(encoding="utf-8"))
    mapping = mapping_coverage.list_types(mapping_coverage.SPEECH_MAPPINGS)[kind, name]
    assert mapping_coverage.try_type(name, mapping) == stored[f"{kind}: {name}"]


def test_two_runs_of_the_coverage_are_compared():
    before = {"CTC: a": {"status": "loads"}, "CTC: b": {"status": "loads"}}
    after = {"CTC: a": {"status": "refused", "reason": "why"}, "CTC: c": {"status": "loads"}}
    assert mapping_coverage.compare(before, before) == []
    assert mapping_coverage.compare(after, before) == [
        "no longer loads: CTC: a (why)",
        "no longer there: CTC: b",
        "new: CTC: c, loads",
    ]
