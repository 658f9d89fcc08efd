#!/bin/sh
# torch 2.11.0 with transformers 5.23.0: nine untrained twins of a Whisper in one pass, by torch.func.
#
# One would guess: as PyTorch's page on ensembles shows it, weights are stacked by `stack_module_state`, and `vmap` calls a
# copy of the model without weights (`copy.deepcopy(model).to("meta")`). A weight that were missing would raise an error.
# True: Whisper's output layer has the weight of its embedding. Such a tied weight is in the stack once, under the
# embedding's name. `functional_call` gives it to the output layer too, but only while both are one parameter; `.to("meta")`
# makes two of them. The output layer then keeps a weight without data, and its product with data on the CPU raises no
# error. It returns memory that nobody wrote: logits of any size, others in each run. It needs no vmap; one call does so.
# What it costs: likelihoods and maps of a model with tied embeddings are noise that looks like numbers (tried with Whisper,
# and with an embedding and a linear layer alone). Logits below 1 in size were wrong by several thousand.
# Remedy: call a copy with its weights (`copy.deepcopy(model)`), or tie again after `.to("meta")` (`tie_weights()`), and
# compare one model of the stack with the model itself.
#
# Run: sh findings/torch_func_tied_weights_on_meta.sh   (downloads about 3 GB into a temporary folder; fails if it changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.11.0 transformers==5.23.0 numpy==2.4.6
"$folder/env/bin/python" - 2>/dev/null <<'PYTHON'
import copy

import torch
from torch.func import functional_call, stack_module_state, vmap
from transformers import WhisperConfig, WhisperForConditionalGeneration

sizes = {name: 16 for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")}
sizes |= {name: 2 for name in ("encoder_attention_heads", "decoder_attention_heads")}
sizes |= {"encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 10, "max_target_positions": 10}
tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
config = WhisperConfig(vocab_size=50, num_mel_bins=8, **sizes, **tokens)
torch.manual_seed(0)
models = [WhisperForConditionalGeneration(config).eval() for _ in range(9)]
inputs = {"input_features": torch.randn(1, 8, 20), "decoder_input_ids": torch.tensor([[3, 4, 5]])}
parameters, buffers = stack_module_state(models)
assert "proj_out.weight" not in parameters and "model.decoder.embed_tokens.weight" in parameters


def stacked(base):
    def call(*state):
        return functional_call(base, state, kwargs={**inputs, "use_cache": False}).logits

    return vmap(call)(parameters, buffers)


with torch.no_grad():
    expected = torch.stack([model(**inputs).logits for model in models])
    retied = copy.deepcopy(models[0]).to("meta")
    retied.tie_weights()
    bases = {
        "with its weights": copy.deepcopy(models[0]),
        "on meta": copy.deepcopy(models[0]).to("meta"),
        "on meta, tied again": retied,
    }
    for name, base in bases.items():
        logits = stacked(base)
        is_right = torch.allclose(logits, expected, atol=1e-5)
        print(f"{name}: {'right' if is_right else 'wrong'}, on {logits.device}, no error")
        assert is_right == (name != "on meta"), "it has changed"
PYTHON
