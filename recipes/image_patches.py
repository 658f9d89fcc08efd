"""Which patches of an image contribute to which: a ViT as prepared inputs.

    python recipes/image_patches.py --out patches.png                                        # random weights, random image
    python recipes/image_patches.py --model google/vit-base-patch16-224 --image cat.jpg --out patches.png

Tested: the table of ViT's layers is that of AST (the same parts), and `load` checks it on every model. Not tested: whether
a measure is faithful on images. No trained ViT could be had where this was written, so no result on a real image is known.
"""

import argparse
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters import family_of_type
from speechmix.inputs.audio.frame_grid import FrameGrid

parser = argparse.ArgumentParser()
parser.add_argument(
    "--model", help="hub id or folder of a ViT (default: a small one with random weights)"
)
parser.add_argument("--image", help="with --model: a picture")
parser.add_argument("--out", default="patches.png")
options = parser.parse_args()


def tiny_inputs(config):
    return {
        "pixel_values": torch.zeros(1, config.num_channels, config.image_size, config.image_size)
    }


def patch_grid(config, n_samples):
    """Units of the map: [CLS] at position 0, then a patch a position."""
    count = (config.image_size // config.patch_size) ** 2 + 1
    return FrameGrid(
        count, stride=1.0, first_centre=0.5, width=1.0, duration=float(count), is_fixed_window=True
    )


ast = family_of_type("audio-spectrogram-transformer")
speechmix.register(
    replace(ast, name="vit", model_types=("vit",), grid=patch_grid, tiny_inputs=tiny_inputs)
)
if options.model:
    from PIL import Image

    module = transformers.ViTForImageClassification.from_pretrained(options.model)
    processor = transformers.AutoImageProcessor.from_pretrained(options.model)
    inputs = dict(processor(Image.open(options.image).convert("RGB"), return_tensors="pt"))
else:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 96,
    }
    module = transformers.ViTForImageClassification(transformers.ViTConfig(image_size=64, **shape))
    inputs = {"pixel_values": torch.rand(1, 3, 64, 64)}
maps = speechmix.mix(
    speechmix.load(module, device="cpu"), inputs, measures=["value_zeroing", "attention"]
)
print(maps)
side = module.config.image_size // module.config.patch_size
figure, axes = plt.subplots(1, len(maps), figsize=(3.4 * len(maps), 3.2), layout="constrained")
for ax, ((measure, _), m) in zip(axes, maps.items(), strict=True):
    shares = (
        100 * m.normalized().mean_heads().layer(m.layers[-1])[0]
    )  # the row of [CLS], position 0
    picture = ax.imshow(
        np.reshape(shares[1:] * len(shares), (side, side)), cmap="RdBu_r", vmin=0, vmax=2
    )
    ax.set_title(f"{measure}: share in [CLS] / even share", size=9)
    ax.set_axis_off()
    figure.colorbar(picture, ax=ax)
figure.savefig(options.out, dpi=110)
