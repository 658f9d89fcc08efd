"""Attention flow: maximum flow from inputs to states (Abnar & Zuidema 2020).

    F_l[i, j] = max-flow from node (l, i) down to node (0, j);   capacity of (l, i) -> (l-1, k) is A_l[i, k]

A_l as in rollout. One max-flow problem per layer and pair (Dinic's method, scipy), so for short
inputs only. In: arrays [L, W, W] with rows summing to one. Out: [L, W, W], not normalised.
"""

from __future__ import annotations

import numpy as np

from ...errors import InputError

MAX_FLOW_UNITS = 64

# scipy's max-flow counts in 32-bit whole numbers: capacities are rounded to 2^-30.
_CAPACITY_STEPS = 2**30


def flow(maps: np.ndarray) -> np.ndarray:
    """Maximum flow from every state of every layer to every input.

    Parameters
    ----------
    maps : ndarray [L, W, W]
        Capacities; rows sum to one at most.

    Raises
    ------
    InputError
        For more than `MAX_FLOW_UNITS` units: there are L W^2 flows, each through a graph of L W^2
        edges.

    Examples
    --------
    >>> flow(np.array([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]]))[1]
    array([[1. , 0. ],
           [1. , 0.5]])
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    n_layers, n_units = maps.shape[:2]
    if n_units > MAX_FLOW_UNITS:
        raise InputError(
            "attention flow solves a max-flow problem for each pair of units and layer: at most "
            f"{MAX_FLOW_UNITS} units, this "
            f"map has {n_units} ({n_layers * n_units**2:,} problems). Pool to words first, or use "
            "rollout"
        )
    capacity_matrix = np.zeros(((n_layers + 1) * n_units,) * 2, dtype=np.int32)
    flows = np.empty(maps.shape)
    for layer, capacities in enumerate(maps):
        lower_start, upper_start = layer * n_units, (layer + 1) * n_units
        capacity_matrix[upper_start : upper_start + n_units, lower_start:upper_start] = np.rint(
            capacities * _CAPACITY_STEPS
        )
        graph = csr_array(capacity_matrix[: upper_start + n_units, : upper_start + n_units])
        for upper_unit in range(n_units):
            for input_unit in range(n_units):
                flows[layer, upper_unit, input_unit] = (
                    maximum_flow(
                        graph, upper_start + upper_unit, input_unit, method="dinic"
                    ).flow_value
                    / _CAPACITY_STEPS
                )
    return flows
