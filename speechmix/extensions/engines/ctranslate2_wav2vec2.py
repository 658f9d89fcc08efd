"""Read a wav2vec2 with a CTC head that CTranslate2 runs, as its converter writes it.

In: the variables of model.bin; vocab.json and preprocessor_config.json of transformers beside it. Out: a
`Wav2Vec2ForCTC`. All such models have norms before their sublayers, and convolutions with norms and
biases; strides are not stored: 5, then 2. The weight of the positions' convolution is stored whole,
transformers has length and direction. The file's own vocabulary.json has lost the ids, so it is not
read.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ...adapters.loading.checkpoints import transformers_class
from ...adapters.loading.foreign_checkpoint import ForeignCheckpoint
from ...adapters.transformers_types import Config, Tokenizer
from ...errors import ModelError
from .ctranslate2_variables import StoredWeights
from .module_checkpoint import load_beside, module_checkpoint

_NO_VOCABULARY = (
    "it has no vocab.json of transformers, so texts cannot be read or written: put it beside the file, "
    "or give processor="
)
_NO_FRONT_END = "it has no preprocessor_config.json of transformers: it gets sound of 16 kHz with mean 0 and variance 1"


def open_wav2vec2(path: Path, weights: StoredWeights) -> ForeignCheckpoint:
    """Find sizes and weights; a KeyError or ValueError for what no such model has."""
    folder, fronts = path.parent, ("preprocessor_config.json", "processor_config.json")
    tokenizer = load_beside(folder, "Wav2Vec2CTCTokenizer", "vocab.json")
    extractor = load_beside(folder, "Wav2Vec2FeatureExtractor", *fronts)
    config = _read_config(weights, tokenizer)
    if type(blank := config.pad_token_id) is not int or not 0 <= blank < config.vocab_size:
        raise ModelError(f"{folder / 'vocab.json'}: its pad token, the blank, is {blank!r:.20}")
    _collect_weights(weights, config)
    return module_checkpoint(
        path,
        f"CTranslate2 (wav2vec2), {weights.types()}",
        config,
        weights.parts,
        load_tokenizer=lambda: tokenizer,
        load_extractor=lambda: (
            extractor
            or transformers_class("Wav2Vec2FeatureExtractor")(
                do_normalize=True, return_attention_mask=True
            )
        ),
        remarks=(_NO_VOCABULARY,) * (tokenizer is None) + (_NO_FRONT_END,) * (extractor is None),
    )


def _convolutions(weights: StoredWeights) -> list[str]:
    count = sum(name.endswith("/conv/weight") for name in weights.variables) - 1  # less positions
    return ["encoder/feat_layer0", *(f"encoder/feat_layer_{index}" for index in range(count - 1))]


def _read_config(weights: StoredWeights, tokenizer: Tokenizer) -> Config:
    """Return the config that follows from the shapes of the weights."""
    variables, convolutions = weights.variables, _convolutions(weights)
    layers = {name.split("/")[1] for name in variables if name.startswith("encoder/layer_")}
    vocab_size, width = variables["encoder/lm_head/weight"].shape
    kernels = [variables[f"{name}/conv/weight"] for name in convolutions]
    positions = variables["encoder/pos_conv_embed/conv/weight"]
    config: Config = transformers_class("Wav2Vec2Config")(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=len(layers - {"layer_norm"}),
        num_attention_heads=int(variables["encoder/num_heads"]),
        intermediate_size=len(variables["encoder/layer_0/ffn/linear_0/bias"]),
        conv_dim=[len(kernel) for kernel in kernels],
        conv_kernel=[kernel.shape[2] for kernel in kernels],
        conv_stride=[5, *[2] * (len(kernels) - 1)],
        num_conv_pos_embeddings=positions.shape[2],
        num_conv_pos_embedding_groups=width // positions.shape[1],
        conv_bias=True,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        mask_time_prob=0.0,  # in training alone
        pad_token_id=0 if tokenizer is None else tokenizer.pad_token_id,
    )
    config.architectures, config.dtype = ["Wav2Vec2ForCTC"], torch.float32
    return config


def _collect_weights(weights: StoredWeights, config: Config) -> None:
    base = "wav2vec2.encoder"
    for index, name in enumerate(_convolutions(weights)):
        target = f"wav2vec2.feature_extractor.conv_layers.{index}"
        weights.add_layer(f"{target}.conv", f"{name}/conv")
        weights.add_layer(f"{target}.layer_norm", f"{name}/layer_norm")
    projection = "wav2vec2.feature_projection"
    weights.add_layer(f"{projection}.layer_norm", "encoder/fp_layer_norm")
    weights.add_layer(f"{projection}.projection", "encoder/fp_projection")
    _add_positions(weights, f"{base}.pos_conv_embed.conv", "encoder/pos_conv_embed/conv")
    weights.add_layer(f"{base}.layer_norm", "encoder/layer_norm")
    weights.add_layer("lm_head", "encoder/lm_head")
    for index in range(config.num_hidden_layers):
        layer, target = f"encoder/layer_{index}", f"{base}.layers.{index}"
        queries, keys, values, output = (
            f"{target}.attention.{part}_proj" for part in ("q", "k", "v", "out")
        )
        weights.add_stacked([queries, keys, values], f"{layer}/self_attention/linear_0")
        weights.add_layer(output, f"{layer}/self_attention/linear_1")
        weights.add_layer(f"{target}.layer_norm", f"{layer}/self_attention/layer_norm")
        weights.add_layer(f"{target}.feed_forward.intermediate_dense", f"{layer}/ffn/linear_0")
        weights.add_layer(f"{target}.feed_forward.output_dense", f"{layer}/ffn/linear_1")
        weights.add_layer(f"{target}.final_layer_norm", f"{layer}/ffn/layer_norm")


def _add_positions(weights: StoredWeights, target: str, name: str) -> None:
    """Take the convolution of positions as length and direction for each place of its kernel."""
    weights.add_layer(target, name)
    readers, shapes = weights.parts.readers, weights.parts.shapes
    read, shape = readers.pop(f"{target}.weight"), shapes.pop(f"{target}.weight")
    lengths, direction = (f"{target}.parametrizations.weight.original{part}" for part in (0, 1))

    def read_length() -> Tensor:
        length: Tensor = torch.linalg.vector_norm(read().float(), dim=(0, 1), keepdim=True)
        return length

    readers[lengths], shapes[lengths] = read_length, [1, 1, shape[2]]
    readers[direction], shapes[direction] = read, shape
