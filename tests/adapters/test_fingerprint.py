"""The fingerprint of a model: everything that decides a result is in it, nothing else is, and edits
are noticed."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import pytest
import tokenizers
import torch
import transformers

import speechmix
from speechmix.adapters.loading.model_properties import fingerprint
from speechmix.errors import ModelError
from speechmix.inputs.bundled import models
from tests.conftest import build

NAMES = ("tiny-french-ctc", "tiny-french-whisper")


@pytest.fixture(params=NAMES)
def model(request):
    return speechmix.load(models()[request.param], device="cpu")


@pytest.mark.parametrize(
    "name", ["llama", pytest.param("whisper-80", marks=pytest.mark.long), "wav2vec2-stable"]
)
def test_every_single_number_counts(name):
    module = build(name)
    before = fingerprint(module)
    generator = torch.Generator().manual_seed(0)
    for tensor in [*module.parameters(), *module.buffers()]:
        if not tensor.is_floating_point():
            continue
        place = torch.randint(tensor.numel(), (), generator=generator)
        value = tensor.view(-1)[place].clone()
        with torch.no_grad():
            tensor.view(-1)[place] = torch.nextafter(value, torch.tensor(torch.inf))
            assert fingerprint(module) != before
            tensor.view(-1)[place] = value
    assert fingerprint(module) == before


def test_an_edit_between_any_places_is_noticed_by_a_loaded_model(model):
    before = model.fingerprint
    weight = next(w for w in model.module.parameters() if w.numel() > 1_000)
    with torch.no_grad():
        weight.view(-1)[777] += 1e-4
    assert model.fingerprint != before
    with torch.no_grad():
        weight.view(-1)[777] -= 1e-4


def test_exchanged_and_loaded_weights_are_noticed():
    model = speechmix.load(build("bert"))
    prints = [model.fingerprint]
    layer = model.module.bert.encoder.layer[0].output.dense
    layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)
    prints.append(model.fingerprint)
    model.module.load_state_dict(build("bert", seed=3).state_dict())
    prints.append(model.fingerprint)
    optimiser = torch.optim.SGD([layer.weight.requires_grad_(True)], lr=0.1)
    layer.weight.square().sum().backward()
    optimiser.step()
    prints.append(model.fingerprint)
    assert len(set(prints)) == 4


def test_buffers_that_no_checkpoint_stores_count():
    model = speechmix.load(build("llama"))
    before = model.fingerprint
    model.module.model.rotary_emb.inv_freq[2] *= 1.001
    assert model.fingerprint != before


def test_made_once_and_kept(model, monkeypatch):
    first = model.fingerprint
    calls = []
    monkeypatch.setattr(
        "speechmix.adapters.model.fingerprint", lambda *parts: calls.append(parts) or "again"
    )
    assert [model.fingerprint for _ in range(3)] == [first] * 3
    assert not calls


@pytest.mark.parametrize("name", ["bert", "llama", "whisper-80"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_measuring_does_not_change_it(name, dtype, monkeypatch):
    from tests.conftest import inputs_of

    model = speechmix.load(build(name).to(dtype).train().requires_grad_(True))
    before = model.fingerprint
    monkeypatch.setattr(
        "speechmix.adapters.model.fingerprint", lambda *parts: pytest.fail("made again")
    )
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs_of(model).items()}
    speechmix.mix(model, inputs)
    assert model.fingerprint == before


def test_config_class_precision_and_shape_count():
    module = build("bert")
    prints = [
        fingerprint(module),
        fingerprint(copy.deepcopy(module).double()),
        fingerprint(module.bert),
    ]
    module.config.layer_norm_eps *= 2
    prints.append(fingerprint(module))
    module.config.name_or_path = "/elsewhere"
    assert fingerprint(module) == prints[-1]
    assert len(set(prints)) == 4


@pytest.fixture(scope="module")
def elsewhere():
    """Fingerprints that another process finds."""
    code = (
        "import sys, json, speechmix; from speechmix.inputs.bundled import models; "
        "prints = {name: speechmix.load(models()[name], device='cpu', check=False).fingerprint for "
        "name in sys.argv[1:]}; "
        "print(json.dumps(prints))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *NAMES],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
    )
    return json.loads(done.stdout)


@pytest.mark.long
def test_the_same_in_another_process(model, elsewhere):
    assert elsewhere[model.name] == model.fingerprint


def test_feature_extractor_settings_count():
    model = speechmix.load(models()["tiny-french-ctc"], device="cpu")
    before = model.fingerprint
    model.feature_extractor.do_normalize = not model.feature_extractor.do_normalize
    assert model.fingerprint != before


def test_vocabulary_counts_but_not_what_a_call_asked_of_the_tokenizer(model):
    before = model.fingerprint
    model.tokenizer(
        ["un", "des livres"], padding=bool(model.tokenizer.pad_token), truncation=True, max_length=4
    )
    model._fingerprint = None
    assert model.fingerprint == before
    model.tokenizer.add_tokens(["chou"])
    assert model.fingerprint != before


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "vocabulary"])
def test_rules_of_a_fast_tokenizer_count(part):
    def made(**changes):
        options = {
            "normalizer": None,
            "vocabulary": {"a": 0, "padding": 1, "<unk>": 2},
            "pre_tokenizer": None,
            **changes,
        }
        plain = tokenizers.Tokenizer(
            tokenizers.models.WordLevel(options["vocabulary"], unk_token="<unk>")
        )
        for name in ("normalizer", "pre_tokenizer"):
            if options[name] is not None:
                setattr(plain, name, options[name])
        return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>")

    change = {
        "normalizer": tokenizers.normalizers.Lowercase(),
        "pre_tokenizer": tokenizers.pre_tokenizers.Whitespace(),
        "vocabulary": {"a": 0, "truncation": 1, "<unk>": 2},
    }[part]
    module = build("bert")
    plain, other = (
        fingerprint(module, None, made(**{part: value} if value else {}))
        for value in (None, change)
    )
    assert plain == fingerprint(module, None, made())
    assert plain != other


def test_large_and_odd_tensors(monkeypatch):
    """In pieces or in one, of any kind and layout."""
    module = torch.nn.Module()
    kinds = (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int8, torch.bool)
    for kind in kinds:
        module.register_buffer(f"of_{str(kind)[6:]}", torch.arange(1_000).to(kind).reshape(10, 100))
    module.register_buffer("turned", torch.arange(1_000).reshape(10, 100).T)
    module.register_buffer("empty", torch.zeros(0, 3))
    module.register_buffer("number", torch.tensor(3.0))
    whole = fingerprint(module)
    monkeypatch.setattr("speechmix.adapters.loading.model_properties._CHUNK_BYTES", 256)
    assert fingerprint(module) == whole
    with torch.inference_mode():
        module.number = module.number.clone()
    assert fingerprint(module) == whole


def test_weights_that_are_not_there_are_refused():
    with torch.device("meta"):
        module = torch.nn.Linear(3, 3)
    with pytest.raises(ModelError, match=r"'bias'.*not in memory"):
        fingerprint(module)


def test_config_with_nested_parts_and_keys_that_are_numbers(tmp_path):
    module = build("wav2vec2-post", id2label={0: "a", 1: "b"})
    module.save_pretrained(tmp_path)
    assert "id2label" in json.loads((tmp_path / "config.json").read_text())
    assert len(fingerprint(module)) == 16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_a_gpu(model):
    there = speechmix.load(models()[model.name], device="cuda")
    assert there.fingerprint == model.fingerprint
