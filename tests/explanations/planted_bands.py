"""A classifier of sound that reads set bands only, with a filter of its own; synthetic sounds for it."""

from __future__ import annotations

import numpy as np
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

import speechmix
from speechmix import Clip
from tests.adapters.own_model import OwnConfig, OwnModel, own_family

RATE, SECONDS = 16_000, 0.6
EDGES = (0.0, 800.0, 1800.0, 3200.0, 5000.0, 8000.0)
WORDS = [("aa", 0.02, 0.2), ("bb", 0.2, 0.38), ("cc", 0.38, 0.58)]


class BandReaderForAudioClassification(OwnModel):
    """Says "yes" by the level in the middle of its bands; a transformer runs beside, and says nothing.

    `ranges` are in Hz; `reading` is "sum", "product" or "either" of the levels, or "nothing".
    """

    ranges: tuple[tuple[float, float], ...] = ()
    window: tuple[float, float] = (0.0, SECONDS)  # seconds
    reading = "sum"

    def forward(self, waveform, return_dict=True):
        super().forward(waveform)
        start, stop = (round(RATE * second) for second in self.window)
        sound = waveform[:, start:stop].double()
        count = sound.shape[1]
        power = torch.fft.rfft(sound * torch.hann_window(count).double()).abs() ** 2
        hertz = torch.fft.rfftfreq(count, 1 / RATE)
        levels = torch.stack(
            [
                (1e-3 + power[:, (hertz >= low) & (hertz <= high)].mean(dim=1)).log10() + 3
                for low, high in self.ranges
            ]
            or [torch.zeros(len(sound), dtype=torch.double)],
            dim=1,
        )
        reader = {
            "sum": lambda: levels.sum(dim=1),
            "product": lambda: levels.prod(dim=1),
            "either": lambda: levels.max(dim=1).values,
            "nothing": lambda: torch.full((len(sound),), 0.7, dtype=torch.double),
        }[self.reading]
        logit = reader()[:, None]
        return SequenceClassifierOutput(logits=torch.cat([torch.zeros_like(logit), logit], dim=1))


def band_reader(ranges, *, window=(0.0, SECONDS), reading="sum"):
    """Return a loaded model that reads these ranges of frequency."""
    speechmix.register(own_family())
    config = OwnConfig(
        width=12, depth=1, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}
    )
    module = BandReaderForAudioClassification(config).double().eval()
    model = speechmix.load(module)
    module.ranges, module.window, module.reading = tuple(ranges), window, reading
    return model


def inner_range(band, edges=EDGES):
    """The middle 60 % of a band, in Hz."""
    low, high = edges[band], edges[band + 1]
    return low + 0.2 * (high - low), high - 0.2 * (high - low)


def noisy_clip(seed):
    """Noise with a random spectrum and random loudness in time; synthetic, no speech."""
    rng = np.random.default_rng(seed)
    count = round(SECONDS * RATE)
    shape = np.interp(
        np.arange(count // 2 + 1), np.linspace(0, count // 2, 9), rng.uniform(0.3, 1, 9)
    )
    loudness = np.interp(np.arange(count), np.linspace(0, count, 7), rng.uniform(0.3, 1, 7))
    sound = loudness * np.fft.irfft(shape * np.fft.rfft(rng.normal(size=count)), count)
    return Clip.from_array(0.1 * sound, RATE, name=f"noise{seed}", words=WORDS)
