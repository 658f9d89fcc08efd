"""Tiny models of the families that come to the first ones of `conftest.py`: how each is built, fed, and where its values are made.

A new family is one entry of `MORE_FAMILIES`; `tests/measures/test_oracle_families.py` runs all of it against the oracle.
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
    no_sum : bool
        Whether measures that count the residual stream refuse.
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
    no_sum: bool = False


def _modelled(class_name: str, config: transformers.PretrainedConfig) -> Callable[[], torch.nn.Module]:
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
_CONVOLUTIONS = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
_BERT = Where("encoder.layers", "self_attn.linear_v")


def _wav2vec2_bert(**options):
    config = transformers.Wav2Vec2BertConfig(**_SPEECH, feature_projection_input_dim=16, **options)
    return Entry(_modelled("Wav2Vec2BertModel", config), features(16), {"encoder": _BERT})


def _conformer(**options):
    config = transformers.Wav2Vec2ConformerConfig(**_SPEECH, **_CONVOLUTIONS, **options)
    where = Where("encoder.layers", "self_attn.linear_v", "encoder.layer_norm")
    return Entry(_modelled("Wav2Vec2ConformerModel", config), waveform, {"encoder": where})


def _seamless(chunk):
    from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import SeamlessM4Tv2SpeechEncoder

    sizes = {"hidden_size": 32, "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 7}
    own = {"layers": 2, "attention_heads": 4, "intermediate_size": 48, "chunk_size": chunk, "left_chunk_num": 0}
    config = transformers.SeamlessM4Tv2Config(**sizes, **{f"speech_encoder_{name}": size for name, size in own.items()})
    where = Where("encoder.layers", "self_attn.linear_v", "encoder.layer_norm")
    return Entry(lambda: SeamlessM4Tv2SpeechEncoder(config), features(16), {"encoder": where})


def _parakeet():
    encoder = {"num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 7}
    encoder |= {name: size for name, size in _SPEECH.items() if name not in ("vocab_size", "conv_depthwise_kernel_size")}
    config = transformers.ParakeetCTCConfig(vocab_size=20, pad_token_id=0, encoder_config=encoder)
    where = Where("encoder.layers", "self_attn.v_proj")
    return Entry(_modelled("ParakeetForCTC", config), features(16, each=8), {"encoder": where}, eager=_ROUNDED)


def _granite():
    from transformers.models.granite_speech import configuration_granite_speech, modeling_granite_speech

    sizes = {"input_dim": 16, "num_layers": 2, "hidden_dim": 32, "num_heads": 4, "output_dim": 12, "conv_kernel_size": 6}
    config = configuration_granite_speech.GraniteSpeechEncoderConfig(**sizes, context_size=80, max_pos_emb=90)
    where = Where("layers", "attn.to_kv", values=lambda width: slice(width // 2, None))
    return Entry(
        lambda: modeling_granite_speech.GraniteSpeechCTCEncoder(config),
        lambda length: {"hidden_states": _noise(1, length, 16)},
        {"encoder": where},
        shown=False,
    )


MORE_FAMILIES = {
    "wav2vec2-bert": _wav2vec2_bert(),
    "wav2vec2-bert, rotary": _wav2vec2_bert(position_embeddings_type="rotary"),
    "wav2vec2-bert, relative": _wav2vec2_bert(position_embeddings_type="relative"),
    "wav2vec2-conformer": _conformer(),
    "wav2vec2-conformer, rotary": _conformer(position_embeddings_type="rotary"),
    "seamless-m4t-v2": _seamless(20_000),
    # its eager path adds the mask of chunks as ones, so that only the path that is measured keeps them apart
    "seamless-m4t-v2, in chunks": replace(_seamless(60), shown=False),
    "parakeet": _parakeet(),
    "granite-speech": _granite(),
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
