"""A speech encoder of its own: nothing is named as in transformers, and its attention is torch's
function."""

from __future__ import annotations

import types

import torch
import transformers

from speechmix.adapters import AttentionSpec, Family, PreparedInputs, StackSpec
from speechmix.inputs.audio.frame_grid import FrameGrid


class OwnConfig(transformers.PretrainedConfig):
    model_type = "own_speech"

    def __init__(self, width=24, depth=2, n_heads=3, fault="", bare=(), **kwargs):
        self.width, self.depth, self.n_heads, self.fault = width, depth, n_heads, fault
        self.bare = list(
            bare
        )  # which modules return a bare tensor, as plain torch modules do, and not a tuple
        super().__init__(**kwargs)


class Mixer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (
            torch.nn.Linear(config.width, config.width) for _ in range(4)
        )
        self.n_heads, self.fault, self.bare = (
            config.n_heads,
            config.fault,
            "attention" in config.bare,
        )

    def forward(self, x):
        q, k, v = (
            w(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        if self.fault == "by hand":
            mixed = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
        else:
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=self.fault == "causal"
            )
        mixed = self.wo(mixed.transpose(1, 2).flatten(2))
        return mixed if self.bare else (mixed, None)


class OwnLayer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.before, self.between = (
            torch.nn.LayerNorm(config.width),
            torch.nn.LayerNorm(config.width),
        )
        self.mixer = Mixer(config)
        self.up, self.down = torch.nn.Linear(config.width, 30), torch.nn.Linear(30, config.width)
        if config.fault == "convolution":
            self.blur = torch.nn.Conv1d(config.width, config.width, 3, padding=1)
        self.bare = "layer" in config.bare

    def forward(self, x):
        mixed = self.mixer(self.before(x))
        x = x + (mixed[0] if isinstance(mixed, tuple) else mixed)
        if hasattr(self, "blur"):
            x = x + self.blur(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(torch.nn.functional.gelu(self.up(self.between(x))))
        return x if self.bare else (x,)


class Tower(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = torch.nn.ModuleList(OwnLayer(config) for _ in range(config.depth))
        self.closing, self.unused = (
            torch.nn.LayerNorm(config.width),
            torch.nn.LayerNorm(config.width),
        )
        self.bare, self.skip = "tower" in config.bare, config.fault == "skip"

    def forward(self, x):
        for block in self.blocks[: -1 if self.skip else None]:
            x = block(x)
            x = x[0] if isinstance(x, tuple) else x
        x = self.closing(x)
        return x if self.bare else (x,)


class OwnModel(transformers.PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = ""

    def __init__(self, config):
        super().__init__(config)
        self.ears = torch.nn.Conv1d(1, config.width, 400, stride=320)
        self.tower = Tower(config)
        self.post_init()

    def _init_weights(self, module):
        for parameter in module.parameters(recurse=False):
            torch.nn.init.normal_(parameter, 0.1, 0.3)

    def forward(self, waveform):
        states = self.tower(self.ears(waveform[:, None]).transpose(1, 2))
        return types.SimpleNamespace(states=states[0] if isinstance(states, tuple) else states)


def own_family(**changes):
    plan = {
        "name": "encoder",
        "layers": "tower.blocks",
        "blocks": (AttentionSpec.of("mixer", value="wv", key="wk", output="wo"),),
        "norm_order": "pre",
        "final_norm": "tower.closing",
    }
    heads = changes.pop("heads", 3)
    return Family(
        name="own",
        model_types=("own_speech",),
        stacks=lambda config: (StackSpec(**{**plan, **changes}),),
        grid=lambda config, n_samples: FrameGrid.from_convolutions(n_samples, [400], [320]),
        prepare=lambda model, clip, stacks: PreparedInputs(
            {"waveform": torch.as_tensor(clip.audio(16_000))[None]}
        ),
        run=lambda base, inputs, stacks: base(**inputs),
        tiny_inputs=lambda config: {
            "waveform": torch.randn(1, 4_000, generator=torch.Generator().manual_seed(0))
        },
        auto_class=lambda config: "AutoModel",
        heads=lambda config, stack: heads,
    )


def own_model(**options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return OwnModel(OwnConfig(**options)).double().eval()
