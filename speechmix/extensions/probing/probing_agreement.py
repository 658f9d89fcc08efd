"""Agreement over layers between a measure's cue contribution and a probe.

A measure's cue contribution by layer, held against what a probe finds there (protocol E5).

    level:  correlation over layers of contribution[l] with accuracy[l]
    gain:   correlation over layers of contribution[l] with accuracy[l] - accuracy[l - 1]

If a layer brings the cue into the target, the label should become readable *there*: so the gain is
what should agree. A level can only rise with depth, and agrees with whatever rises (Mohebbi et al.
2023 show both curves, one above the other). Pearson and Spearman, each with a permutation test over
layers: contribution is put in random order of layers, in all orders where there are few layers.
Neighbouring layers are alike and the test takes them as exchangeable, so its p of two smooth curves
is too small; it is of one model, and says nothing of others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pandas as pd

from ...errors import InputError

_MIN_LAYERS, _MAX_EXACT_LAYERS, _PERMUTATIONS = 4, 7, 9999
_COLUMNS = ["against", "pearson", "pearson_p", "spearman", "spearman_p", "layers"]
_ROW_KEYS = ("model", "init", "stack", "measure")


def probing_agreement(
    contributions: pd.DataFrame,
    probes: pd.DataFrame,
    *,
    by: Sequence[str] = _ROW_KEYS,
    value: str = "accuracy",
    seed: int = 0,
) -> pd.DataFrame:
    """Correlate a measure's contribution over layers with a probe's level, and with its gain.

    Parameters
    ----------
    contributions : DataFrame
        Columns of `by`, layer, contribution; clips and seeds are averaged.
    probes : DataFrame
        The same columns but measure, and `value`; layer -1 is the input of the first layer, without
        which that layer has no gain. One position and label; seeds are averaged.
    by : sequence of str
        What makes a row of the result, e.g. also "side".
    value : str
        "accuracy", "compression".
    seed : int
        Of the permutations.

    Returns
    -------
    DataFrame
        Columns of `by`, against ("level" or "gain"), pearson, pearson_p, spearman, spearman_p,
        layers; correlations are missing where fewer than four layers are left or one curve does not
        vary.

    Raises
    ------
    InputError
        If a column is missing, or the probes are of several positions.

    Examples
    --------
    >>> layers = range(5)
    >>> mixing = pd.DataFrame({"model": "m", "measure": "value_zeroing", "layer": layers, "contribution": [1, 5, 2, 1, 0]})
    >>> probe_values = pd.DataFrame({"model": "m", "layer": range(-1, 5), "accuracy": [0.5, 0.55, 0.8, 0.9, 0.95, 0.95]})
    >>> table = probing_agreement(mixing, probe_values, by=["model", "measure"]).set_index("against")
    >>> table.pearson.round(2).to_dict(), round(float(table.spearman_p["gain"]), 2)
    ({'level': -0.13, 'gain': 1.0}, 0.03)
    """
    probe_keys = [name for name in by if name != "measure"]
    _check_columns(contributions, [*by, "layer", "contribution"])
    _check_columns(probes, [*probe_keys, "layer", value])
    for name in ("position", "label"):
        if name in probes and probes[name].nunique() > 1:
            raise InputError(
                f"expected the probes of one {name}, found "
                f"{', '.join(map(str, probes[name].unique()))}"
            )
    levels = {
        _as_tuple(key): table_part.groupby("layer")[value].mean()
        for key, table_part in probes.groupby(probe_keys, sort=False)
    }
    rows = []
    for key, table_part in contributions.groupby(list(by), sort=False, observed=True):
        keys = dict(zip(by, _as_tuple(key), strict=True))
        level = levels.get(tuple(keys[name] for name in probe_keys))
        if level is None:
            continue
        curve = table_part.groupby("layer")["contribution"].mean()
        gain = level - level.rename(lambda layer: layer + 1).reindex(level.index)
        for against, probe_values in (("level", level), ("gain", gain)):
            paired = (
                pd.concat([curve, probe_values], axis=1, join="inner")
                .dropna()
                .to_numpy(dtype=float)
            )
            rows.append(
                {**keys, "against": against, **_correlate_curves(paired[:, 0], paired[:, 1], seed)}
            )
    return pd.DataFrame(rows, columns=[*by, *_COLUMNS])


def _as_tuple(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)


def _check_columns(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing_columns = [name for name in columns if name not in table]
    if missing_columns:
        raise InputError(
            f"expected a table with the columns {', '.join(columns)}; {', '.join(missing_columns)} not "
            "found"
        )


def _correlate_curves(curve: np.ndarray, probe_values: np.ndarray, seed: int) -> dict[str, float]:
    """Compute both correlations with their p-values."""
    from scipy.stats import rankdata

    row: dict[str, float] = {"layers": len(curve)}
    # A curve that does not vary up to rounding has no correlation.
    has_variance = len(curve) >= _MIN_LAYERS and all(
        np.ptp(values) > 1e-12 * np.abs(values).max() for values in (curve, probe_values)
    )
    scalings: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
        ("pearson", np.asarray),
        ("spearman", rankdata),
    )
    for name, scale in scalings:
        row[name], row[f"{name}_p"] = (
            permutation_correlation(scale(curve), scale(probe_values), seed=seed)
            if has_variance
            else (np.nan, np.nan)
        )
    return row


def permutation_correlation(x: np.ndarray, y: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """Return Pearson's r and its two-sided permutation p-value (exact up to seven values).

    Examples
    --------
    >>> r, p = permutation_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 3, 4]))
    >>> round(r, 6), round(p, 6)  # 2 of 24 orders
    (1.0, 0.083333)
    """
    a, b = (
        values - values.mean()
        for values in (np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    )
    norm_product = float(np.linalg.norm(a) * np.linalg.norm(b))
    r = float(a @ b) / norm_product
    if len(a) <= _MAX_EXACT_LAYERS:
        orders = np.array(list(itertools.permutations(range(len(a)))))
        return r, float((np.abs(a[orders] @ b) >= abs(r) * norm_product * (1 - 1e-9)).mean())
    generator = np.random.default_rng(seed)
    permuted_products = np.array([generator.permutation(a) for _ in range(_PERMUTATIONS)]) @ b
    return r, float(
        (1 + (np.abs(permuted_products) >= abs(r) * norm_product * (1 - 1e-9)).sum())
        / (1 + _PERMUTATIONS)
    )
