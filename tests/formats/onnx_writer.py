"""Export a Whisper to ONNX with the files and names that optimum gives them."""

from __future__ import annotations

from pathlib import Path

import torch


class _Encoder(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.encoder = module.model.encoder

    def forward(self, input_features):
        return self.encoder(input_features)[0]


class _Decoder(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.model, self.proj_out = module.model, module.proj_out
        self._module = [module]

    def forward(self, input_ids, encoder_hidden_states):
        length = input_ids.shape[
            1
        ]  # a mask of its own: transformers makes one of operators that ONNX lacks
        mask = torch.triu(torch.full((length, length), -1e9), 1)[None, None]
        output = self._module[0](
            encoder_outputs=(encoder_hidden_states,),
            decoder_input_ids=input_ids,
            decoder_attention_mask=mask,
            use_cache=False,
        )
        return output.logits


def write_onnx(module, folder: Path, *, is_quantised: bool = False) -> Path:
    """Write encoder_model.onnx and decoder_model.onnx (quantised ones too), and the files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    module.config.save_pretrained(folder)
    module.generation_config.save_pretrained(folder)
    config = module.config
    module.set_attn_implementation("eager")
    features = torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions)
    states = torch.zeros(1, config.max_source_positions, config.d_model)
    ids = torch.tensor([[config.decoder_start_token_id, 5, 6]])
    common = {"opset_version": 17, "dynamo": False}
    torch.onnx.export(
        _Encoder(module).eval(),
        (features,),
        folder / "encoder_model.onnx",
        input_names=["input_features"],
        output_names=["last_hidden_state"],
        **common,
    )
    torch.onnx.export(
        _Decoder(module).eval(),
        (ids, states),
        folder / "decoder_model.onnx",
        input_names=["input_ids", "encoder_hidden_states"],
        output_names=["logits"],
        dynamic_axes={"input_ids": {1: "length"}, "logits": {1: "length"}},
        **common,
    )
    if is_quantised:
        for name in ("encoder_model", "decoder_model"):
            quantise(folder / f"{name}.onnx")
    return folder


def quantise(path: Path) -> Path:
    """Write a file with weights of uint8 beside a file, and return its path."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantised = path.with_name(f"{path.stem}_quantized.onnx")
    quantize_dynamic(
        path,
        quantised,
        weight_type=QuantType.QUInt8,
        per_channel=False,
        extra_options={"EnableSubgraph": True},
    )
    return quantised
