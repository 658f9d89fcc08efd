"""Tiny audio language models with hand-set heads that carry the sound to the answer, and items about it.

A clip has four tones, of which one is the lowest or the highest ("low" or "high"). All weights are drawn. A planted head
looks at all positions alike, reads "low" against "high" off the states (a regression on other clips), and writes the
direction that tells the two answers apart. So it is known which heads carry the sound.
"""

from __future__ import annotations

import functools

import torch
import transformers

import speechmix
from recipes import tiny_audio_language_model as tones
from speechmix.extensions.listening.items import ListeningItem

LAYERS, HEADS, WIDTH, CHANNEL = 2, 4, 32, 5
OPTIONS = ("low", "high")


@functools.cache
def made_processor():
    return tones.processor()


def random_module(seed: int) -> transformers.Qwen2AudioForConditionalGeneration:
    """The model of the recipe with more heads."""
    config = tones.untrained().config
    text = {**config.text_config.to_dict(), "num_hidden_layers": LAYERS}
    text |= {"num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    text.pop("head_dim", None)
    config = transformers.Qwen2AudioConfig(
        audio_config=config.audio_config.to_dict(),
        text_config=text,
        audio_token_index=config.audio_token_id,
    )
    torch.manual_seed(seed)
    module = transformers.Qwen2AudioForConditionalGeneration(config).eval()
    module.generation_config.eos_token_id = tones.untrained().generation_config.eos_token_id
    return module


def load(module):
    return speechmix.load(module, processor=made_processor(), check=False)


@functools.cache
def drawn_clips(count: int, seed: int):
    return [
        (clip.replace(name=f"clip{seed}-{number}"), answer)
        for number, (clip, answer) in enumerate(tones.clips(count, seed=seed))
    ]


def items(count: int = 16, seed: int = 7, **fields) -> list[ListeningItem]:
    return [
        ListeningItem(clip, tones.PROMPT, answer, OPTIONS, **fields)
        for clip, answer in drawn_clips(count, seed)
    ]


@functools.cache
def training_inputs(count: int = 96):
    model = load(random_module(0))
    rows = []
    for clip, answer in drawn_clips(count, 1):
        asked = model.with_prompt(tones.PROMPT, answer=answer)
        rows.append(asked.family.prepare(asked, clip, ("encoder", "decoder")).inputs)
    inputs = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    inputs["input_ids"] = inputs["input_ids"][:, :-1]  # up to where the answer begins
    inputs["attention_mask"] = inputs["attention_mask"][:, :-1]
    target = torch.tensor([1.0 if answer == "low" else -1.0 for _, answer in drawn_clips(count, 1)])
    return inputs, target


def _set_head(module, index: int, head: int, weights, bias: float, gain: float):
    """Let a head look everywhere, read a direction of the states, and write the direction between the answers."""
    tokenizer = made_processor().tokenizer
    low, high = (tokenizer.convert_tokens_to_ids(option) for option in OPTIONS)
    direction = (
        module.get_output_embeddings().weight[low] - module.get_output_embeddings().weight[high]
    )
    direction = direction / direction.norm()
    attention, size = module.model.language_model.layers[index].self_attn, WIDTH // HEADS
    rows = slice(head * size, (head + 1) * size)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[rows] = 0
        projection.bias[rows] = 0
    attention.v_proj.weight[rows][0] = weights
    attention.v_proj.bias[rows][0] = bias
    attention.o_proj.weight[:, rows] = 0
    attention.o_proj.weight[:, rows][:, 0] = gain * direction


def _regress(read, target, penalty=1e-6):
    """Weights and bias of a ridge regression of "low" (1) against "high" (-1)."""
    read = torch.cat([read.double(), torch.ones(len(read), 1, dtype=torch.float64)], dim=1)
    gram = read.T @ read + penalty * torch.eye(read.shape[1], dtype=torch.float64)
    found = torch.linalg.solve(gram, read.T @ target.double()).float()
    return found[:-1], float(found[-1])


def _read(module, index: int):
    """What a layer's attention reads, mean over positions; and the sizes that its norm divides by."""
    inputs, _ = training_inputs()
    states = module(**inputs, output_hidden_states=True).hidden_states[index]
    norm = module.model.language_model.layers[index].input_layernorm
    return norm(states).mean(dim=1), states.pow(2).mean(dim=-1).sqrt()


@torch.no_grad()
def plant_head(module, index: int, head: int, gain: float = 1.0):
    """One head carries the sound: its values are a regression on what its layer reads."""
    _set_head(module, index, head, *_regress(_read(module, index)[0], training_inputs()[1]), gain)
    return module


@torch.no_grad()
def plant_redundant(module, heads, gain: float = 300.0):
    """Several heads, each of them enough: the projector writes the answer into one channel, which all of them read, and
    the final norm cancels how much of it there is.
    """
    inputs, target = training_inputs()
    module.get_input_embeddings().weight[:, CHANNEL] = 0
    linear, found = module.model.multi_modal_projector.linear, []
    hook = linear.register_forward_hook(lambda _, args, output: found.append(args[0]))
    module(**inputs)
    hook.remove()
    states = found[0].reshape(len(target), -1, found[0].shape[-1])
    weights, bias = _regress(states.mean(dim=1), target, 1e-8)
    scale = 0.03 / (states @ weights).std()  # small: the norm of a position hardly depends on it
    linear.weight[CHANNEL], linear.bias[CHANNEL] = scale * weights, scale * bias
    for _ in range(4):  # "low" above zero and "high" below it, behind the norm
        read, sizes = _read(module, 0)
        middle = (read[target > 0, CHANNEL].mean() + read[target < 0, CHANNEL].mean()) / 2
        is_sound = inputs["input_ids"] == module.config.audio_token_id
        linear.bias[CHANNEL] -= middle / (is_sound / sizes).mean()
    channel = torch.nn.functional.one_hot(torch.tensor(CHANNEL), WIDTH).float()
    for index, head in heads:
        _set_head(module, index, head, channel, 0.0, gain)
    return module


@torch.no_grad()
def make_deaf(module):
    """Whatever the sound, the decoder gets the same states in its place."""
    module.model.multi_modal_projector.linear.weight.zero_()
    return module
