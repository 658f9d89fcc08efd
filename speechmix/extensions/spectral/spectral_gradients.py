"""Integrated gradients of a decision by the log-mel spectrogram x that a model reads, summed over cells of time x band.

    sum of (x - x0) * integral over a in [0, 1] of df/dx at x0 + a (x - x0)

x0 is the spectrogram of the sound without any cell. A mel band belongs to the band that its centre lies in. The sum over the
whole spectrogram is f(x) - f(x0). Some of it may lie outside the cells: a model may normalise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError

if TYPE_CHECKING:
    from ...inputs.audio.spectrograms import BandEdges
    from ...inputs.words.timed_words import Word
    from ...interventions.decision import Decision

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
    with model.in_use(model.state_dtype), torch.enable_grad():
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
