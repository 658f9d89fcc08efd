"""Remove cells of time x frequency band from the sound of a clip.

In: a clip, times (words, phones, windows) and bands. Out: `SpectralCells`, the fill of a `Removal` whose indices are cells:
cell t x bands + b is band b at time t. A cell is what a filter makes of the sound, faded in and out at the ends of its time;
the cells, and what lies outside them, add up to the sound. So a sound with nothing removed is itself. Fills:

    zeros  silence
    noise  noise with the cell's spectrum and loudness (random phases)
    mean   noise with the speaker's mean spectrum and loudness in this band
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...errors import InputError
from ...inputs.audio.spectrograms import BandEdges, smooth_step, split_bands
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...interventions.removals import (
    FILL_SAMPLE_RATE,
    SoundRemover,
    random_phase_noise,
    replace_sound,
)

SPECTRAL_FILLS = ("zeros", "noise", "mean")
_FADE_SECONDS = 0.0025  # before and after the edge of a time


@dataclass(frozen=True, eq=False)
class SpectralCells(SoundRemover):
    """Cells of a clip's sound, and what replaces them.

    Parameters
    ----------
    clip : Clip
    times : sequence of Word
        Labelled intervals that do not overlap.
    edges : tuple of float
        Of the bands, in Hz.
    fill : {"zeros", "noise", "mean"}
    seed : int
        Of the noise.
    speaker : sequence of Clip
        Further clips of the speaker, for the mean.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> clip = bundled.clips()[1]  # synthetic: "nos maisons"
    >>> cells = SpectralCells(clip, clip.words, (0, 1000, 8000))
    >>> cells.count, bool(np.abs(cells.remove([]).audio() - clip.audio()).max() < 1e-6)
    (4, True)
    """

    clip: Clip
    times: Sequence[Word]
    edges: BandEdges
    fill: str = "zeros"
    seed: int = 0
    speaker: Sequence[Clip] = ()

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.times) * (len(self.edges) - 1)

    def remove(self, cells: Sequence[int], clip: Clip | None = None) -> Clip:
        """Return the clip, or another version of it, with these cells replaced; refuse unknown ones."""
        clip = clip or self.clip
        if self.fill not in SPECTRAL_FILLS or not set(cells) <= set(range(self.count)):
            raise InputError(
                f"{clip.name}: expected a fill among {SPECTRAL_FILLS} and cells from 0 to {self.count - 1}, "
                f"found {self.fill!r} and {sorted(cells)}"
            )
        sound = clip.audio(FILL_SAMPLE_RATE).astype(float)
        for cell in cells:
            start, change = self._changes[cell]
            sound[start : start + len(change)] += change
        return replace_sound(clip, sound)

    @cached_property
    def _changes(self) -> list[tuple[int, np.ndarray]]:
        """For each cell the first sample, and the samples that are added to the sound to replace it."""
        band_sounds = split_bands(self.clip.audio(FILL_SAMPLE_RATE), FILL_SAMPLE_RATE, self.edges)
        mean_noise = self._make_mean_noise() if self.fill == "mean" else band_sounds
        changes = []
        for time_index, time in enumerate(self.times):
            gate = _make_gate(time, band_sounds.shape[1])
            start, gate = int(np.flatnonzero(gate)[0]), np.trim_zeros(gate)
            for band, band_sound in enumerate(band_sounds):
                rng = np.random.default_rng([self.seed, time_index, band])
                cell = gate * band_sound[start : start + len(gate)]
                filler = np.zeros_like(cell)
                if self.fill == "noise":
                    filler = gate * random_phase_noise(cell, rng)
                    filler *= np.linalg.norm(cell) / max(float(np.linalg.norm(filler)), 1e-12)
                elif self.fill == "mean":
                    noise = np.roll(mean_noise[band], rng.integers(mean_noise.shape[1]))
                    filler = gate * np.resize(noise, len(gate))
                changes.append((start, filler - cell))
        return changes

    def _make_mean_noise(self) -> np.ndarray:
        """Make steady noise with the mean spectrum of the speaker's words, by band [bands, samples]."""
        spoken = []
        for clip in (self.clip, *self.speaker):
            sound = clip.audio(FILL_SAMPLE_RATE)
            gates = [_make_gate(word, len(sound)) > 0 for word in clip.spoken_words]
            spoken.append(sound[np.any(gates, axis=0)] if gates else sound)
        noise = random_phase_noise(np.concatenate(spoken), np.random.default_rng(self.seed))
        return split_bands(noise, FILL_SAMPLE_RATE, self.edges)


def _make_gate(time: Word, length: int) -> np.ndarray:
    """Weight each sample: 1 within a time, 0 outside, with slopes that those of its neighbours complement."""
    seconds, gate = np.arange(length) / FILL_SAMPLE_RATE, np.zeros(length)
    for start, end in time.intervals:  # at the ends of the sound there is nothing to fade into
        rise = 1.0 if start <= 0 else smooth_step(seconds, start, _FADE_SECONDS)
        is_end = end >= length / FILL_SAMPLE_RATE - 0.001
        gate += rise - (0.0 if is_end else smooth_step(seconds, end, _FADE_SECONDS))
    return gate
