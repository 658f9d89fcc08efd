"""Tiny models of the families beside those of `tests.models`: how each is built, fed, and where its
values are made.

A new family is one entry of `MORE_FAMILIES`; `tests/measures/test_oracle_families.py` runs all of
it against the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import transformers

from tests.oracle_by_path import Where

# What families keep whose norms or softmax compute in float32 whatever they are given.
_ROUNDED = 1e-5


@dataclass(frozen=True)
class Entry:
    """One family's tiny model.

    Parameters
    ----------
    build : callable
    inputs : callable
        ``inputs(length)`` gives inputs of about so many positions.
    stacks : dict of str to Where
    shown : bool
        Whether the model returns its attention weights.
    each_head : bool
        Whether a head has values of its own.
    length : int
        Positions that its inputs have in the tests.
    tokens : int
        Positions of a decoder behind an encoder.
    tolerance : float
        Of Value Zeroing, beside the largest score.
    eager : float
        Of attention beside the model's own eager path.
    unknown_sum_reason : tuple of str
        Stacks in which measures that count the residual stream refuse.
    heard : bool
        Whether sound stands among the tokens of a decoder: then its units are the positions that
        its map says.
    """

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int], dict[str, torch.Tensor]]
    stacks: dict[str, Where]
    shown: bool = True
    each_head: bool = True
    length: int = 211
    tokens: int = 7
    tolerance: float = 1e-10
    eager: float = 1e-10
    unknown_sum_reason: tuple[str, ...] = ()
    heard: bool = False


def _modelled(
    class_name: str, config: transformers.PretrainedConfig
) -> Callable[[], torch.nn.Module]:
    return lambda: getattr(transformers, class_name)(config)


def features(bins: int, each: int = 1):
    """Mel features, `each` frames for a position."""
    return lambda length: {"input_features": _noise(1, each * length, bins)}


def waveform(length):
    return {"input_values": _noise(1, 320 * length + 80)}


def _noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)


_SPEECH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 20,
    "conv_depthwise_kernel_size": 7,
}
_CONVOLUTIONS = {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_BERT = Where("encoder.layers", "self_attn.linear_v")


def _wav2vec2_bert(**options):
    config = transformers.Wav2Vec2BertConfig(**_SPEECH, feature_projection_input_dim=16, **options)
    return Entry(_modelled("Wav2Vec2BertModel", config), features(16), {"encoder": _BERT})


def _conformer(**options):
    config = transformers.Wav2Vec2ConformerConfig(**_SPEECH, **_CONVOLUTIONS, **options)
    where = Where("encoder.layers", "self_attn.linear_v", "encoder.layer_norm")
    return Entry(_modelled("Wav2Vec2ConformerModel", config), waveform, {"encoder": where})


def _seamless(chunk):
    from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import (
        SeamlessM4Tv2SpeechEncoder,
    )

    sizes = {"hidden_size": 32, "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 7}
    own = {
        "layers": 2,
        "attention_heads": 4,
        "intermediate_size": 48,
        "chunk_size": chunk,
        "left_chunk_num": 0,
    }
    config = transformers.SeamlessM4Tv2Config(
        **sizes, **{f"speech_encoder_{name}": size for name, size in own.items()}
    )
    where = Where("encoder.layers", "self_attn.linear_v", "encoder.layer_norm")
    return Entry(lambda: SeamlessM4Tv2SpeechEncoder(config), features(16), {"encoder": where})


def _parakeet():
    encoder = {"num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 7}
    encoder |= {
        name: size
        for name, size in _SPEECH.items()
        if name not in ("vocab_size", "conv_depthwise_kernel_size")
    }
    config = transformers.ParakeetCTCConfig(vocab_size=20, pad_token_id=0, encoder_config=encoder)
    where = Where("encoder.layers", "self_attn.v_proj")
    return Entry(
        _modelled("ParakeetForCTC", config),
        features(16, each=8),
        {"encoder": where},
        eager=_ROUNDED,
    )


def _granite():
    from transformers.models.granite_speech import (
        configuration_granite_speech,
        modeling_granite_speech,
    )

    sizes = {
        "input_dim": 16,
        "num_layers": 2,
        "hidden_dim": 32,
        "num_heads": 4,
        "output_dim": 12,
        "conv_kernel_size": 6,
    }
    config = configuration_granite_speech.GraniteSpeechEncoderConfig(
        **sizes, context_size=80, max_pos_emb=90
    )
    where = Where("layers", "attn.to_kv", values=lambda width: slice(width // 2, None))
    return Entry(
        lambda: modeling_granite_speech.GraniteSpeechCTCEncoder(config),
        lambda length: {"hidden_states": _noise(1, length, 16)},
        {"encoder": where},
        shown=False,
    )


_IDS = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = {
    **_IDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 300,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_SIDES = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers",)}
_SIDES |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
_SIDES |= {f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")}


def tokens(length):
    ids = torch.randint(4, 50, (1, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids}


def _seq2seq_stacks(inputs):
    return lambda length: {**inputs(length), "decoder_input_ids": tokens(7)["input_ids"]}


def _last(parts: int):
    """Columns of the last of so many parts, as fused projections have them one behind the other."""
    return lambda width: slice(width - width // parts, None)


def _of_heads(heads: int, parts: int):
    """Columns of values where each head has its query, key and value beside each other."""
    return lambda width: torch.arange(width).unflatten(0, (heads, parts, -1))[:, -1].flatten()


def _text(
    model: str,
    value: str,
    *,
    layers="model.layers",
    norm="model.norm",
    values=None,
    length=37,
    **options,
):
    """A language model's entry; its config class has the model's name."""
    changes = {
        name: options.pop(name)
        for name in ("shown", "each_head", "tolerance", "eager", "unknown_sum_reason")
        if name in options
    }
    config = getattr(transformers, f"{model.partition('For')[0].removesuffix('Model')}Config")(
        **options
    )
    where = Where(layers, value, norm, **({} if values is None else {"values": values}))
    stack = "encoder" if model == "ModernBertModel" else "decoder"
    return Entry(_modelled(model, config), tokens, {stack: where}, length=length, **changes)


def _rounded(model: str, value: str = "self_attn.v_proj", **options):
    """With RMS norms, which compute in float32, and heads that share values."""
    each = options.pop("each_head", False)
    return _text(
        model, value, each_head=each, tolerance=_ROUNDED, eager=_ROUNDED, **{**_GROUPED, **options}
    )


def _waveform_encoder(name: str, *, kernels=_CONVOLUTIONS, length=211, **options):
    sizes = {key: size for key, size in _SPEECH.items() if key != "conv_depthwise_kernel_size"}
    config = getattr(transformers, f"{name}Config")(**sizes, **kernels, **options)
    where = Where("encoder.layers", "attention.v_proj", "encoder.layer_norm" if options else None)
    return Entry(_modelled(f"{name}Model", config), waveform, {"encoder": where}, length=length)


def _sew():
    entry = _waveform_encoder("SEW", kernels={**_CONVOLUTIONS, "conv_dim": (16,) * 13})
    return replace(entry, inputs=lambda length: waveform(2 * length))


def _stacks_of(
    value: str,
    cross: str,
    norms=("layer_norm", "layer_norm"),
    layers="layers",
    root="model.",
    **options,
):
    shown = {
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    decoder, last = f"{root}decoder.{layers}", f"{root}decoder.{norms[1]}"
    return {
        "encoder": Where(
            f"{root}encoder.{layers}",
            value,
            f"{root}encoder.{norms[0]}",
            attentions=shown["encoder"],
        ),
        "decoder": Where(decoder, value, last, attentions=shown["decoder"]),
        "cross": Where(decoder, cross, last, attentions=shown["cross"]),
    }


def _moonshine():
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    sizes = {
        f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()
    }
    padded = {"pad_head_dim_to_multiple_of": 16, "decoder_start_token_id": 1}
    config = transformers.MoonshineConfig(
        hidden_size=32, intermediate_size=48, **padded, **sizes, **_IDS
    )
    return Entry(
        _modelled("MoonshineForConditionalGeneration", config),
        _seq2seq_stacks(lambda length: {"input_values": _noise(1, 384 * length + 600)}),
        _stacks_of("self_attn.v_proj", "encoder_attn.v_proj", norms=("layer_norm", "norm")),
        eager=_ROUNDED,
    )


def _speech_to_text():
    sizes = {
        "d_model": 32,
        "input_feat_per_channel": 16,
        "conv_channels": 24,
        "max_source_positions": 900,
    }
    config = transformers.Speech2TextConfig(**sizes, **_SIDES, **_IDS, decoder_start_token_id=2)
    return Entry(
        _modelled("Speech2TextForConditionalGeneration", config),
        _seq2seq_stacks(features(16, each=4)),
        _stacks_of("self_attn.v_proj", "encoder_attn.v_proj"),
    )


def _speecht5():
    sizes = {name: 48 if "ffn" in name else size for name, size in _SIDES.items()}
    near = {
        "encoder_max_relative_position": 40,
        "max_speech_positions": 300,
        "decoder_start_token_id": 2,
    }
    config = transformers.SpeechT5Config(
        hidden_size=32, **{**sizes, **near, **_CONVOLUTIONS, **_IDS}
    )
    return Entry(
        _modelled("SpeechT5ForSpeechToText", config),
        _seq2seq_stacks(waveform),
        {
            "encoder": Where(
                "speecht5.encoder.wrapped_encoder.layers",
                "attention.v_proj",
                attentions="encoder_attentions",
            ),
            "decoder": Where(
                "speecht5.decoder.wrapped_decoder.layers",
                "self_attn.v_proj",
                attentions="decoder_attentions",
            ),
            "cross": Where(
                "speecht5.decoder.wrapped_decoder.layers",
                "encoder_attn.v_proj",
                attentions="cross_attentions",
            ),
        },
    )


def _m2m_100():
    config = transformers.M2M100Config(
        d_model=32, max_position_embeddings=300, **_SIDES, **_IDS, decoder_start_token_id=2
    )
    where = _stacks_of("self_attn.v_proj", "encoder_attn.v_proj")
    return Entry(
        _modelled("M2M100ForConditionalGeneration", config),
        _seq2seq_stacks(tokens),
        where,
        length=37,
    )


def _t5(name: str, **options):
    sizes = {
        "vocab_size": 60,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
    }
    config = getattr(transformers, f"{name}Config")(**sizes, decoder_start_token_id=0, **options)
    where = _stacks_of(
        "layer.0.SelfAttention.v",
        "layer.1.EncDecAttention.v",
        norms=("final_layer_norm", "final_layer_norm"),
        layers="block",
        root="",
    )
    build = _modelled(f"{name}ForConditionalGeneration", config)
    return Entry(
        build, _seq2seq_stacks(tokens), where, length=211, tolerance=_ROUNDED, eager=_ROUNDED
    )


def _ast():
    sizes = {
        name: size
        for name, size in _SPEECH.items()
        if name not in ("vocab_size", "conv_depthwise_kernel_size")
    }
    config = transformers.ASTConfig(**sizes, max_length=216, num_mel_bins=64)
    inputs = lambda length: {"input_values": _noise(1, 216, 64)}  # noqa: E731
    where = Where("layers", "attention.v_proj", "layernorm")
    return Entry(
        _modelled("ASTModel", config), inputs, {"encoder": where}, length=107, eager=_ROUNDED
    )


def _falcon(columns, **options):
    sizes = {name: size for name, size in _TEXT.items() if name != "intermediate_size"}
    paths = {
        "layers": "transformer.h",
        "norm": "transformer.ln_f",
        "values": columns,
        "each_head": False,
    }
    return _text(
        "FalconForCausalLM",
        "self_attention.query_key_value",
        **paths,
        eager=_ROUNDED,
        **{**sizes, **options},
    )


def _deberta():
    config = transformers.DebertaV2Config(
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, **_TEXT
    )
    where = Where("deberta.encoder.layer", "attention.self.value_proj")
    return Entry(_modelled("DebertaV2ForMaskedLM", config), tokens, {"encoder": where}, length=37)


def _gemma3_with_eyes():
    """Its last layer attends to all, the others to the last nine positions."""
    text = {
        **_GROUPED,
        "num_hidden_layers": 3,
        "head_dim": 8,
        "sliding_window": 9,
        "query_pre_attn_scalar": 8,
    }
    text["layer_types"] = ["sliding_attention", "sliding_attention", "full_attention"]
    sees = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "image_size": 28,
    }
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config={"model_type": "siglip_vision_model", **sees},
        mm_tokens_per_image=4,
        image_token_index=58,
    )
    where = Where("model.language_model.layers", "self_attn.v_proj", "model.language_model.norm")
    rounded = {"each_head": False, "tolerance": _ROUNDED, "eager": _ROUNDED}
    build = _modelled("Gemma3ForConditionalGeneration", config)
    return Entry(build, tokens, {"decoder": where}, length=211, **rounded)


_SOUND = 59


def _of_sound(count):
    """Tokens with so many of sound among them."""
    ids = tokens(count + 9)["input_ids"]
    ids[:, 4 : 4 + count] = _SOUND
    return ids


def _conversing(model: str, config, encoder: Where, inputs, **options):
    """An audio language model: the attention weights that it returns are its decoder's."""
    stacks = {
        "encoder": encoder,
        "decoder": Where(
            "model.language_model.layers", "self_attn.v_proj", "model.language_model.norm"
        ),
    }
    build = _modelled(f"{model}ForConditionalGeneration", config)
    rounded = {"each_head": False, "tolerance": _ROUNDED, "eager": _ROUNDED}
    return Entry(build, inputs, stacks, heard=True, **rounded, **options)


_TOWER = {"num_mel_bins": 16, "max_source_positions": 220}
_TOWER_STACK = Where(
    "model.audio_tower.layers", "self_attn.v_proj", "model.audio_tower.layer_norm", attentions=""
)


def _qwen2_audio(length):
    """211 frames of the encoder's 220 are sound: 105 pairs."""
    inputs = {"input_features": _noise(1, 16, 440), "input_ids": _of_sound(length // 2)}
    mask = torch.zeros(1, 440, dtype=torch.long)
    mask[:, : 2 * length] = 1
    return {
        **inputs,
        "feature_attention_mask": mask,
        "attention_mask": torch.ones_like(inputs["input_ids"]),
    }


def _qwen2_audio_entry():
    tower = {
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "d_model": 32,
        **_TOWER,
    }
    config = transformers.Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **tower},
        text_config={"model_type": "qwen2", **_GROUPED},
        audio_token_index=_SOUND,
    )
    return _conversing("Qwen2Audio", config, _TOWER_STACK, _qwen2_audio)


def _omni():
    """Frames in chunks of 60, which attend within themselves; the last is shorter."""
    tower = {
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "d_model": 32,
        "num_mel_bins": 16,
    }
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    seen = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
    }
    config = transformers.Qwen2_5OmniThinkerConfig(
        audio_config={**tower, "n_window": 60, "output_dim": 32},
        text_config={**_GROUPED, "rope_parameters": rope},
        vision_config={**seen, "fullatt_block_indexes": [0]},
        audio_token_index=_SOUND,
        image_token_index=58,
        video_token_index=57,
        vision_start_token_id=56,
    )
    where = replace(_TOWER_STACK, final_norm="model.audio_tower.ln_post", attentions=None)
    return _conversing("Qwen2_5OmniThinker", config, where, _qwen2_audio)


def _voxtral():
    tower = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "hidden_size": 32,
        **_TOWER,
    }
    config = transformers.VoxtralConfig(
        audio_config={"model_type": "voxtral_encoder", **tower},
        text_config={"model_type": "llama", "head_dim": 8, **_GROUPED},
        audio_token_id=_SOUND,
    )
    inputs = lambda length: {"input_features": _noise(1, 16, 440), "input_ids": _of_sound(55)}  # noqa: E731
    return _conversing("Voxtral", config, _TOWER_STACK, inputs)


def _granite_speech(multiplier: float):
    encoder = {
        "input_dim": 16,
        "num_layers": 2,
        "hidden_dim": 32,
        "num_heads": 4,
        "output_dim": 12,
        "conv_kernel_size": 6,
    }
    sizes = {name: size for name, size in _TEXT.items() if name not in _IDS}
    config = transformers.GraniteSpeechConfig(
        encoder_config={**encoder, "context_size": 80, "max_pos_emb": 90},
        projector_config={"model_type": "blip_2_qformer", "encoder_hidden_size": 32, **sizes},
        text_config={"model_type": "granite", "residual_multiplier": multiplier, **_GROUPED},
        audio_token_index=_SOUND,
        has_lora_adapter=False,
    )
    where = Where(
        "model.encoder.layers",
        "attn.to_kv",
        values=lambda width: slice(width // 2, None),
        attentions=None,
    )
    inputs = lambda length: {  # noqa: E731
        "input_features": _noise(1, length, 16),
        "input_ids": _of_sound(3 * -(-length // 15)),
    }
    return _conversing("GraniteSpeech", config, where, inputs)


_OPT = {name: size for name, size in _TEXT.items() if name != "intermediate_size"} | {
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
    "eager": _ROUNDED,
}
_NEOX = {
    "layers": "gpt_neox.layers",
    "norm": "gpt_neox.final_layer_norm",
    "values": _of_heads(4, 3),
}

MORE_FAMILIES = {
    "wav2vec2-bert": _wav2vec2_bert(),
    "wav2vec2-bert, rotary": _wav2vec2_bert(position_embeddings_type="rotary"),
    "wav2vec2-bert, relative": _wav2vec2_bert(position_embeddings_type="relative"),
    "wav2vec2-conformer": _conformer(),
    "wav2vec2-conformer, rotary": _conformer(position_embeddings_type="rotary"),
    "seamless-m4t-v2": _seamless(20_000),
    # its eager path adds the mask of chunks as ones, so that only the path that is measured keeps
    # them apart
    "seamless-m4t-v2, in chunks": replace(_seamless(60), shown=False),
    "parakeet": _parakeet(),
    "granite-speech-encoder": _granite(),
    "qwen2-audio": _qwen2_audio_entry(),
    "qwen2.5-omni": _omni(),
    "voxtral": _voxtral(),
    "granite-speech": _granite_speech(1.0),
    "granite-speech, scaled": replace(_granite_speech(0.5), unknown_sum_reason=("decoder",)),
    "unispeech": _waveform_encoder("UniSpeech"),
    "unispeech-sat": _waveform_encoder(
        "UniSpeechSat", do_stable_layer_norm=True, feat_extract_norm="layer"
    ),
    "sew": _sew(),
    "moonshine": _moonshine(),
    "speech-to-text": _speech_to_text(),
    "speecht5": _speecht5(),
    "ast": _ast(),
    "m2m-100": _m2m_100(),
    "t5": _t5("T5"),
    "mt5": _t5("MT5"),
    "modernbert": _text(
        "ModernBertModel",
        "attn.Wqkv",
        layers="layers",
        norm="final_norm",
        values=_last(3),
        eager=_ROUNDED,
        **_TEXT,
    ),
    "deberta-v2": _deberta(),
    "gemma2": _rounded(
        "Gemma2ForCausalLM", head_dim=8, sliding_window=9, attn_logit_softcapping=2.0
    ),
    "gemma3, multimodal": _gemma3_with_eyes(),
    "olmo2": _rounded("Olmo2ForCausalLM"),
    "phi3": _rounded("Phi3ForCausalLM", "self_attn.qkv_proj", values=lambda width: slice(48, None)),
    "smollm3": _rounded("SmolLM3ForCausalLM"),
    "qwen3_moe": _rounded(
        "Qwen3MoeForCausalLM",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        head_dim=8,
        experts_implementation="eager",
    ),
    "opt": _text(
        "OPTForCausalLM",
        "self_attn.v_proj",
        layers="model.decoder.layers",
        norm="model.decoder.final_layer_norm",
        **_OPT,
    ),
    "opt, post-norm": _text(
        "OPTForCausalLM",
        "self_attn.v_proj",
        layers="model.decoder.layers",
        norm=None,
        do_layer_norm_before=False,
        **_OPT,
    ),
    "gpt_neox": _text(
        "GPTNeoXForCausalLM",
        "attention.query_key_value",
        unknown_sum_reason=("decoder",),
        eager=_ROUNDED,
        **_NEOX,
        **_TEXT,
    ),
    "gpt_neox, in order": _text(
        "GPTNeoXForCausalLM",
        "attention.query_key_value",
        use_parallel_residual=False,
        eager=_ROUNDED,
        **_NEOX,
        **_TEXT,
    ),
    "phi": _text(
        "PhiForCausalLM",
        "self_attn.v_proj",
        norm="model.final_layernorm",
        unknown_sum_reason=("decoder",),
        eager=_ROUNDED,
        **_TEXT,
    ),
    "falcon": _falcon(_last(6), unknown_sum_reason=("decoder",)),
    "falcon, two norms": _falcon(
        _of_heads(2, 4),
        new_decoder_architecture=True,
        num_kv_heads=2,
        multi_query=False,
        unknown_sum_reason=("decoder",),
    ),
    # with ALiBi its eager path computes other logits than the one that is measured
    "falcon, in order": _falcon(
        _of_heads(4, 3), parallel_attn=False, multi_query=False, alibi=True, shown=False
    ),
}


def built(name: str, dtype: torch.dtype = torch.double) -> torch.nn.Module:
    """Tiny model of a family, with weights and running statistics that make every part matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = MORE_FAMILIES[name].build().eval().requires_grad_(False)
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.25)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
        for path, buffer in module.named_buffers():
            if path.endswith("running_mean"):
                buffer.normal_(0, 0.2)
            elif path.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return module.to(dtype)
