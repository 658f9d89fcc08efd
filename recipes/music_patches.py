"""Which patches of a piece of music contribute to which: an Audio Spectrogram Transformer on prepared inputs.

    python recipes/music_patches.py --out music.png                        # random weights, a scale of sine tones
    python recipes/music_patches.py --model FOLDER --audio song.wav --out music.png

For models of music that are ASTs, such as MAEST (genres). Units are patches: a band of mel frequencies over 160 ms. Tested:
AST is one of the supported families, with an oracle. Not tested: any model of music; none could be had where this was
written. A model that generates music (MusicGen) is refused: its layers could not be verified.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers

import speechmix

parser = argparse.ArgumentParser()
parser.add_argument(
    "--model", help="folder or hub id of an AST (default: a small one with random weights)"
)
parser.add_argument("--audio", help="with --model: a recording")
parser.add_argument("--out", default="music.png")
options = parser.parse_args()

if options.model:
    model = speechmix.load(options.model, device="cpu")
    audio = speechmix.Clip.from_file(options.audio).audio(model.sample_rate)
    features = model.feature_extractor(audio, sampling_rate=model.sample_rate, return_tensors="pt")
else:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 96,
    }
    module = transformers.ASTForAudioClassification(
        transformers.ASTConfig(max_length=128, num_mel_bins=32, **shape)
    )
    model = speechmix.load(module, device="cpu")
    seconds = np.arange(16_000) / 16_000
    tones = [np.sin(2 * np.pi * 262 * 2 ** (step / 12) * seconds[:6400]) for step in (0, 4, 7)]
    extractor = transformers.ASTFeatureExtractor(max_length=128, num_mel_bins=32)
    features = extractor(np.concatenate(tones), sampling_rate=16_000, return_tensors="pt")
inputs = {"input_values": features["input_values"]}
maps = speechmix.mix(model, inputs, measures=["value_zeroing", "attention"], units="frame")
print(maps)
config = model.config
bands = (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1
figure, axes = plt.subplots(1, len(maps), figsize=(4.2 * len(maps), 2.8), layout="constrained")
for ax, ((measure, _), m) in zip(axes, maps.items(), strict=True):
    shares = m.normalized().mean_heads().layer(m.layers[-1]).mean(axis=0)  # mean over all targets
    patches = (shares[2:] * len(shares)).reshape(
        bands, -1
    )  # behind two tokens of the model's own; a band after the other
    picture = ax.imshow(patches, origin="lower", aspect="auto", cmap="RdBu_r", vmin=0, vmax=2)
    ax.set(title=f"{measure}: mean share / even share", xlabel="patch in time", ylabel="band")
    figure.colorbar(picture, ax=ax)
figure.savefig(options.out, dpi=110)
