"""A real trained model whose task is known exactly: a minGPT of three layers that sorts six digits
(MIT, bbycroft/llm-viz)."""

from __future__ import annotations

import base64
import functools
import itertools
import json

import numpy as np
import torch
import transformers

import speechmix

DIGITS = 6


def _arrays(path):
    """Arrays of a minGPT json file: {name: {shape, data in base64}}."""
    return {
        name: torch.from_numpy(
            np.frombuffer(base64.b64decode(item["data"]), "<f4").reshape(item["shape"]).copy()
        )
        for name, item in json.loads(path.read_text()).items()
        if name != "config"
    }


@functools.cache
def gpt_nano(folder):
    """The model, and arrays that its authors stored of a run: inputs, attention, probabilities."""
    weights = _arrays(folder / "gpt-nano-sort-model.json")
    config = transformers.GPT2Config(
        vocab_size=3,
        n_positions=11,
        n_embd=48,
        n_layer=3,
        n_head=3,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    module = transformers.GPT2LMHeadModel(config)
    turned = (
        "c_attn.weight",
        "c_proj.weight",
        "c_fc.weight",
    )  # GPT-2 in transformers keeps these [in, out]
    module.load_state_dict(
        {
            k: v.T if k.endswith(turned) else v
            for k, v in weights.items()
            if not k.endswith(".attn.bias")
        }
    )
    return speechmix.load(module.eval()), _arrays(folder / "gpt-nano-sort-t0-partials.json")


def sorting(step=7):
    """Every `step`-th list of six digits, followed by five of the six sorted ones; and the sorted
    six."""
    digits = np.array(list(itertools.product(range(3), repeat=DIGITS)))[::step]
    solution = np.sort(digits, axis=1)
    return np.concatenate([digits, solution[:, :5]], axis=1), solution
