"""Explain a decision by cells of time x frequency band of the sound.

In: a speech model and a clip. Out: a `SpectralExplanation`: for each cell its Shapley value among all cells, and what is lost
without it alone (occlusion), once with each fill. Cells are removed from the waveform, so any model can be explained.

Integrated gradients of a decision by the log-mel spectrogram x that a model reads, summed over cells of time x band.

    sum of (x - x0) * integral over a in [0, 1] of df/dx at x0 + a (x - x0)

x0 is the spectrogram of the sound without any cell. A mel band belongs to the band that its centre lies in. The sum over the
whole spectrogram is f(x) - f(x0). Some of it may lie outside the cells: a model may normalise.

Remove cells of time x frequency band from the sound of a clip.

In: a clip, times (words, phones, windows) and bands. Out: `SpectralCells`, the fill of a `Removal` whose indices are cells:
cell t x bands + b is band b at time t. A cell is what a filter makes of the sound, faded in and out at the ends of its time;
the cells, and what lies outside them, add up to the sound. So a sound with nothing removed is itself. Fills:

    zeros  silence
    noise  noise with the cell's spectrum and loudness (random phases)
    mean   noise with the speaker's mean spectrum and loudness in this band
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from ...errors import InputError
from ...inputs.audio.spectrograms import BandEdges, band_edges, smooth_step, split_bands
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import segment_clip
from ...inputs.words.timed_words import Word
from ...interventions.decision import Decision
from ...interventions.removals import (
    FILL_SAMPLE_RATE,
    SOUND,
    Removal,
    SoundRemover,
    prepare_sound_inputs,
    random_phase_noise,
    replace_sound,
)
from ...interventions.runner import InterventionCache
from ..occlusion.shapley import MAX_EXACT_PLAYERS, shapley_values
from .spectral_explanation import WHOLE_SOUND, SpectralExplanation, SpectralGame

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.passes.request import ObjectiveOption

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def spectral_gradients(
    decision: Decision, baseline: Mapping[str, Tensor], times: Sequence[Word], edges: BandEdges
) -> tuple[np.ndarray, float]:
    """Sum the gradients of a decision over cells (as in `SpectralCells`); `baseline` are inputs without any cell.

    Returns
    -------
    values : array [times, bands]
    missed : float
        Nats by which the sum over all inputs misses f(x) - f(x0).

    Raises
    ------
    InputError
        If the model does not read a log-mel spectrogram.
    """
    name, filters = _find_log_mel(decision)
    x, x0 = (decision.move_inputs(inputs)[name] for inputs in (decision.prepared.inputs, baseline))
    steps = [_differentiate(decision, name, x0 + (node + 1) / 2 * (x - x0))[0] for node in _NODES]
    mean = sum(weight / 2 * step[0] for weight, step in zip(_WEIGHTS, steps, strict=True))
    spectrogram = ((x - x0)[0] * mean).double().cpu().numpy()
    full, empty = (_differentiate(decision, name, features)[1] for features in (x, x0))
    missed = abs(float(spectrogram.sum()) - (full - empty))
    spectrogram = spectrogram.T if len(spectrogram) == filters.shape[1] else spectrogram
    rate = decision.model.sample_rate
    weights = filters / np.maximum(filters.sum(axis=0), 1e-12)
    centres = np.linspace(0, rate / 2, len(filters)) @ weights
    hop = getattr(decision.model.feature_extractor, "hop_length", rate // 100)
    frames = np.arange(len(spectrogram)) * hop / rate
    in_band = [(centres >= low) & (centres < high) for low, high in pairwise(edges)]
    in_time = [sum((frames >= t0) & (frames < t1) for t0, t1 in unit.intervals) for unit in times]
    return np.array(in_time, float) @ spectrogram @ np.array(in_band, float).T, missed


def _differentiate(decision: Decision, name: str, features: Tensor) -> tuple[Tensor, float]:
    """Return the gradient by the features [1, ...] of a run, and its decision."""
    model, features = decision.model, features.detach().requires_grad_(True)
    is_sampling = decision.objective.is_custom
    with model.in_use(model.state_dtype, is_sampling=is_sampling), torch.enable_grad():
        inputs = {**decision.inputs, name: features}
        value = decision.compute_margins(model.run_with_head(inputs))
        return torch.autograd.grad(value.sum(), features)[0], float(value.detach())


def _find_log_mel(decision: Decision) -> tuple[str, np.ndarray]:
    """Return the name of the log-mel input, and the filters [frequency, mel band] that it is made with."""
    filters = getattr(decision.model.feature_extractor, "mel_filters", None)
    for name, tensor in decision.prepared.inputs.items():
        if filters is not None and tensor.ndim == 3 and np.shape(filters)[1] in tensor.shape[1:]:
            return name, np.asarray(filters, float)
    raise InputError(
        f"{decision.model.name} does not read a log-mel spectrogram, which gradients= needs: leave it out"
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


DEFAULT_FILLS = ("zeros", "mean")
_DEFAULT_ORDERS, _NOISE_DRAWS = 16, 2
_SETS_PER_STEP = 32  # of the progress bar


def spectral_explain(
    model: Model,
    clip: Clip,
    *,
    units: str | float = "word",
    bands: int | Sequence[float] = 6,
    scale: str = "mel",
    within: tuple[float, float] | None = None,
    fills: Sequence[str] = DEFAULT_FILLS,
    speaker: Sequence[Clip] = (),
    objective: ObjectiveOption | None = None,
    gradients: bool = False,
    samples: int | None = None,
    twins: Sequence[Model] = (),
    seed: int = 0,
    progress: bool = False,
) -> SpectralExplanation:
    """Measure which frequency band of which word, phone or window a decision rests on.

    Parameters
    ----------
    model : Model
        A speech model with its head.
    clip : Clip
        With a target, and a foil for a choice between two words; a classifier needs none.
    units : {"word", "clip"}, name of a tier or float
        Times of the cells: words, the whole clip, another tier ("phone"), or windows of so many milliseconds.
    bands : int or sequence of float
        Number of bands of equal width on the scale, or their edges in Hz.
    scale : {"mel", "erb"}
    within : (float, float), optional
        Seconds; only units whose middle lies between them are cells. Everything else stays.
    fills, speaker
        What replaces a cell, as in `SpectralCells`; what is noise is drawn twice.
    objective : optional
        As in `mix`: of a classifier (label,) or (label, other label).
    gradients : bool
        Also compute integrated gradients by the log-mel input of a model that has one.
    samples : int, optional
        Random orders of cells, each also in reverse. By default all sets are tried of up to 10 cells, and 16 orders of more.
    twins : sequence of Model
        Untrained twins: what leads must be larger than every cell (or band) of theirs, with the first fill.
    seed : int
        Of orders and noise.
    progress : bool
        Show a bar over the passes of the models, with the time that is left. By default, there are about 32 for each
        cell, fill and draw of noise.

    Raises
    ------
    InputError
        If a band lies beyond half the sampling rate, there is no band or no unit, or the clip is shorter than a window.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc")
    >>> clip = bundled.clips()[1]  # synthetic: "nos maisons"
    >>> result = speechmix.spectral_explain(model, clip, units="clip", bands=[0, 1000, 3000, 8000], fills=["zeros"])
    >>> result.scores.shape
    (1, 3)
    """
    if not fills or not set(fills) <= set(SPECTRAL_FILLS) or (samples is not None and samples < 2):
        raise InputError(
            f"fills should be some of {SPECTRAL_FILLS}, and samples at least 2 orders; found {list(fills)} and {samples}"
        )
    edges = band_edges(bands, scale=scale, nyquist=min(model.sample_rate, FILL_SAMPLE_RATE) / 2)
    times = _list_times(clip, units, within)
    item = clip if clip.words else segment_clip(clip, clip.duration)
    decision, *twin_decisions = (
        Decision.prepare(each, item, objective=objective) for each in (model, *twins)
    )
    all_cells = [
        SpectralCells(item, times, edges, fill, seed + draw, speaker)
        for fill in fills
        for draw in range(1 if fill == "zeros" else _NOISE_DRAWS)
    ]
    count = all_cells[0].count
    orders = samples or (_DEFAULT_ORDERS if count > MAX_EXACT_PLAYERS else 0)
    pass_count = _count_sets(count, orders) * (len(all_cells) + len(twins))
    with tqdm(total=pass_count, unit="pass", desc=clip.name, disable=not progress) as bar:
        games = tuple(
            _compute_values(decision, cells, orders, seed, bar.update) for cells in all_cells
        )
        twin_games = [
            _compute_values(twin, all_cells[0], orders, seed, bar.update) for twin in twin_decisions
        ]
    twin_values = [game.values for game in twin_games]
    provenance = {name: getattr(model, name) for name in ("name", "init", "seed", "fingerprint")}
    provenance |= {"objective": decision.objective.details, "units": units, "scale": scale}
    provenance |= {"fills": list(fills), "orders": orders, "noise_seed": seed, "twins": len(twins)}
    gradient = None
    if gradients:
        silent = SpectralCells(item, times, edges).remove(range(count))
        baseline = prepare_sound_inputs(model, silent)
        gradient, missed = spectral_gradients(decision, baseline, times, edges)
        provenance["gradients_missed"] = missed
    choice = _name_choice(decision)
    return SpectralExplanation(
        clip, times, edges, games, choice, orders, gradient, twin_values, provenance
    )


def _list_times(
    clip: Clip, units: str | float, within: tuple[float, float] | None
) -> tuple[Word, ...]:
    """Return the units that are cells."""
    start, end = within or (0.0, clip.duration)
    if not 0 <= start < end <= clip.duration:
        raise InputError(
            f"{clip.name}: expected within= as two times in the {clip.duration:g} s of the clip, found {within}"
        )
    tiers = {"clip": (Word(WHOLE_SOUND, start, end),), "word": clip.words or (), **clip.tiers}
    if isinstance(units, str):
        times = tiers.get(units, ())
    elif 0 < units / 1000 <= clip.duration:
        times = segment_clip(clip, units / 1000).words or ()
    else:
        raise InputError(
            f"{clip.name}: the clip of {1000 * clip.duration:.0f} ms is shorter than a window of {units:g} ms: give "
            "shorter windows, or units='clip'"
        )
    inside = tuple(time for time in times if start <= (time.start + time.end) / 2 <= end)
    if not inside:
        raise InputError(
            f"{clip.name}: there is no unit {units!r} with its middle within {start:g} to {end:g} s; the clip has "
            f"{[name for name in tiers if tiers[name]]}: align it (speechmix.align), or give a number of milliseconds"
        )
    return inside


def _count_sets(count: int, orders: int) -> int:
    """Count the sets of cells that one game reads: those of the Shapley values, all, none, and all but one."""
    return (2 * orders * (count + 1) if orders else 2**count) + 2 + count


def _compute_values(
    decision: Decision,
    cells: SpectralCells,
    orders: int,
    seed: int,
    advance: Callable[[int], object],
) -> SpectralGame:
    """Compute Shapley values and effects of cells with one fill."""
    cache, count = InterventionCache(decision), cells.count

    def margins(sets: np.ndarray) -> np.ndarray:
        margins_by_step = []
        for first in range(0, len(sets), _SETS_PER_STEP):
            absent = [
                tuple(np.flatnonzero(~present).tolist())
                for present in sets[first : first + _SETS_PER_STEP]
            ]
            margins_by_step.append(
                cache.read([(Removal(SOUND, cell, cells),) if cell else () for cell in absent])
            )
            advance(len(absent))
        return np.concatenate(margins_by_step)

    values, errors = shapley_values(count, margins, samples=orders or None, seed=seed)
    full, empty = margins(np.array([[True] * count, [False] * count])).tolist()
    alone = full - margins(~np.eye(count, dtype=bool))
    values, errors, alone = np.reshape([values, errors, alone], (3, len(cells.times), -1))
    return SpectralGame(cells.fill, cells.seed, values, errors, alone, full, empty)


def _name_choice(decision: Decision) -> tuple[str, ...]:
    """Name what is decided: target and foil, a label and another, or a text."""
    details, item = decision.objective.details, decision.item
    if isinstance(item, Clip) and decision.has_foil and item.foil and item.target is not None:
        return (item.words or ())[item.target].text, item.foil
    names = (details.get(name) for name in ("label", "foil_label"))
    return tuple(str(name) for name in names if name is not None) or ("the score",)
