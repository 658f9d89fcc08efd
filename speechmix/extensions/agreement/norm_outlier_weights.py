"""Outlier weights of a layer's two norms, and whether they cancel.

In: a loaded model, whose norms are read off its bound layers; nothing is run. Out: for each layer
Pearson's r between the gains of the first and of the second norm over *outlier dimensions*: those
whose gain is three standard deviations or more from the mean of its norm (Kovaleva et al. 2021,
BERT Busters, Findings of ACL). Modarressi et al. 2022 (GlobEnc, NAACL, Figure 5) find it negative
in BERT, and so explain why measures need the second norm. How they choose dimensions is not known
here.

Dimensions chosen because either gain is extreme are likely not extreme in the other, so r can be
below zero for gains that have nothing to do with each other. What r would then be is therefore
given beside it: the second norm's gains are permuted over dimensions, and outliers chosen anew.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...adapters.binding.bound_layers import norm_gain
from ...adapters.model import Model
from ...errors import InputError

OUTLIER_OPTIONS = ("either", "first", "second")
_MIN_DIMENSIONS = 3  # dimensions that a correlation needs to say anything
_COLUMNS = [
    "layer",
    "correlation",
    "outliers",
    "null",
    "null_low",
    "null_high",
    "all_dimensions",
    "dimensions",
]


def outlier_weights(
    model: Model,
    *,
    stack: str = "encoder",
    deviations: float = 3.0,
    outliers_of: str = "either",
    permutations: int = 499,
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate the gains of a layer's two norms over their outlier dimensions.

    The first norm is that of the studied attention block, the second that of the last feed-forward.
    In post-norm stacks (BERT) they come one after the other; in pre-norm ones they stand in front
    of different blocks, and r means something else. An outlier lies `deviations` standard
    deviations from the mean, in the "first", the "second" or "either" norm.

    The table has one row per layer: layer, correlation (NaN for fewer than three outliers or equal
    gains), outliers (their count), null (mean of the permutations that have three outliers),
    null_low, null_high (their middle 95 %), all_dimensions (the correlation over all), dimensions.
    InputError if there is no such stack, or its table names no two norms.
    """
    if outliers_of not in OUTLIER_OPTIONS:
        raise InputError(f"outliers_of must be one of {OUTLIER_OPTIONS}, found {outliers_of!r}")
    generator = np.random.default_rng(seed)
    rows = []
    for layer, (first_gains, second_gains) in enumerate(norm_gains(model, stack=stack)):
        correlation, outliers = _correlate_outliers(
            first_gains, second_gains, deviations, outliers_of
        )
        null_correlations = [
            _correlate_outliers(
                first_gains, generator.permutation(second_gains), deviations, outliers_of
            )[0]
            for _ in range(permutations)
        ]
        null_values = np.array([r for r in null_correlations if np.isfinite(r)])
        low, high = (
            np.quantile(null_values, [0.025, 0.975]) if len(null_values) else (np.nan, np.nan)
        )
        mean = null_values.mean() if len(null_values) else np.nan
        rows.append(
            [
                layer,
                correlation,
                outliers,
                mean,
                low,
                high,
                _pearson(first_gains, second_gains),
                len(first_gains),
            ]
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def norm_gains(model: Model, *, stack: str = "encoder") -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the gains [D] of the first and second norm of each layer.

    InputError if there is no such stack, or its table names no two norms.
    """
    if stack not in model.stacks:
        raise InputError(f"{model.name} has no stack {stack!r}; it has {', '.join(model.stacks)}")
    gains = []
    for index, layer in enumerate(model.stacks[stack].layers):
        attention_norm = layer.attention.norm
        if attention_norm is None or not layer.feed_forwards:
            raise InputError(
                f"layer {index} of the {stack} of {model.name}: expected two norms, but the "
                "family's table names none for the "
                f"{'attention' if attention_norm is None else 'feed-forward'}"
            )
        norms = (attention_norm, layer.feed_forwards[-1].norm)
        reference_tensor = (
            next(layer.module.parameters()).detach().new_zeros(model.stacks[stack].width)
        )
        first_gains, second_gains = (
            norm_gain(norm, reference_tensor).detach().double().cpu().numpy() for norm in norms
        )
        gains.append((first_gains, second_gains))
    return gains


def _correlate_outliers(
    first_gains: np.ndarray, second_gains: np.ndarray, deviations: float, selection: str
) -> tuple[float, int]:
    """Return the correlation over the outlier dimensions, and their number."""
    is_outlier = [
        np.abs(gain - gain.mean()) >= deviations * gain.std()
        if gain.std() > 0
        else np.zeros(len(gain), dtype=bool)
        for gain in (first_gains, second_gains)
    ]
    outliers = (
        is_outlier[0] | is_outlier[1]
        if selection == "either"
        else is_outlier[OUTLIER_OPTIONS.index(selection) - 1]
    )
    return _pearson(first_gains[outliers], second_gains[outliers]), int(outliers.sum())


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < _MIN_DIMENSIONS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
