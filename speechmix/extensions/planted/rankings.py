"""Pairs (target, source) of a planted model, ranked by a map's scores, with the true ones marked.

The empty first position (a special token) and a position's own column are left out; so are pairs
that a causal mask forbids. Average precision judges the order alone. Precision and recall are of
the pairs reported as edges: those with more than an even share of their row (1 / sources that the
row sees), the row normalised with the target's own column and the first's in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...evaluation.cue_need import average_precision
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import normalize_rows
from .case_table import TARGET
from .planting import Planted


class Ranking(NamedTuple):
    """Scores of pairs, and which of them are true.

    Parameters
    ----------
    scores, shares : ndarray [...]
        Raw scores, and shares of their rows.
    is_edge, is_pair : ndarray of bool [...]
        True pairs, and those that are judged at all.
    even_share : ndarray [...]
        An even share of the pair's row.
    """

    scores: np.ndarray
    shares: np.ndarray
    is_edge: np.ndarray
    is_pair: np.ndarray
    even_share: np.ndarray

    def metrics(self) -> dict[str, float]:
        """Average precision, precision, recall and counts; NaN where there is nothing to divide by.

        Examples
        --------
        >>> yes = np.ones(4, dtype=bool)
        >>> shares = np.array([0.6, 0.1, 0.3, 0.0])
        >>> ranking = Ranking(shares, shares, np.array([True, True, False, False]), yes, np.full(4, 0.25))
        >>> {name: round(value, 2) for name, value in ranking.metrics().items()}
        {'average_precision': 0.83, 'precision': 0.5, 'recall': 0.5, 'n_pairs': 4, 'n_edges': 2,
        'n_reported': 2}
        """
        is_edge, scores = self.is_edge[self.is_pair], self.scores[self.is_pair]
        is_reported = (self.shares > self.even_share)[self.is_pair]
        n_edges, n_reported = int(is_edge.sum()), int(is_reported.sum())
        hit_count = int((is_edge & is_reported).sum())
        return {
            "average_precision": float(average_precision(scores, is_edge))
            if n_edges
            else float("nan"),
            "precision": hit_count / n_reported if n_reported else float("nan"),
            "recall": hit_count / n_edges if n_edges else float("nan"),
            "n_pairs": len(is_edge),
            "n_edges": n_edges,
            "n_reported": n_reported,
        }


def rank_layers(planted: Planted, mixing_map: MixingMap) -> Ranking:
    """Rank the pairs of all layers of the planted stack's map together."""
    scores, stack = mixing_map.scores, planted.stack
    is_edge = np.zeros(scores.shape, dtype=bool)
    for name, layer, target, source in planted.edges:
        if name == stack:
            is_edge[layer, target, source] = True
    is_causal = stack == "decoder"
    is_pair, n_seen = _valid_pairs(
        scores.shape[-2], scores.shape[-1], causal=is_causal, has_diagonal=stack == "cross"
    )
    is_pair, even_share = (
        np.broadcast_to(is_pair, scores.shape),
        np.broadcast_to(1 / n_seen, scores.shape),
    )
    return Ranking(
        scores, _row_shares(scores, mixing_map.measure, stack), is_edge, is_pair, even_share
    )


def rank_paths(
    planted: Planted, scores: np.ndarray, source_stacks: Sequence[str], measure: str
) -> Ranking:
    """Rank a map [W_t, W_s] from inputs to final states; columns are the inputs of one or several
    stacks."""
    target_stack = source_stacks[-1]
    n_targets, first_column = len(scores), 0
    is_edge, pair_masks = np.zeros(scores.shape, dtype=bool), []
    for stack in source_stacks:
        n_sources = len(planted.contents[stack])
        for path in planted.reached:
            if (path[0], path[2]) == (target_stack, stack):
                is_edge[path[1], first_column + path[3]] = True
        pair_masks.append(
            _valid_pairs(
                n_targets, n_sources, causal=stack == "decoder", has_diagonal=stack != target_stack
            )
        )
        first_column += n_sources
    is_pair = np.concatenate([pair_mask for pair_mask, _ in pair_masks], axis=1)
    even_share = np.broadcast_to(1 / sum(n_seen for _, n_seen in pair_masks), scores.shape)
    return Ranking(scores, _row_shares(scores, measure, target_stack), is_edge, is_pair, even_share)


def rank_decision(planted: Planted, row: np.ndarray) -> Ranking:
    """Rank the row of the output position over all inputs: [S], or those of the encoder, then the
    decoder."""
    inputs = [
        (stack, position)
        for stack, contents in planted.contents.items()
        for position in range(len(contents))
    ]
    output_stack = list(planted.contents)[-1]
    is_edge = np.array([input_key in planted.decisive for input_key in inputs])
    is_later = [
        stack == output_stack == "decoder" and position > TARGET for stack, position in inputs
    ]
    is_target = [(stack, position) == (output_stack, TARGET) for stack, position in inputs]
    is_first = [position == 0 for _, position in inputs]
    is_pair = ~np.any([is_later, is_target, is_first], axis=0)
    even_share = np.full(len(inputs), 1 / (len(inputs) - sum(is_later)))
    return Ranking(row, normalize_rows(row), is_edge, is_pair, even_share)


def _valid_pairs(
    n_targets: int, n_sources: int, *, causal: bool, has_diagonal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which pairs [T, S] count, and how many sources each row can attend to, [T, 1]."""
    target, source = np.ogrid[:n_targets, :n_sources]
    is_seen = (source <= target) if causal else np.ones((n_targets, n_sources), dtype=bool)
    is_pair = is_seen & (target > 0) & (source > 0)
    return is_pair if has_diagonal else is_pair & (target != source), is_seen.sum(
        axis=1, keepdims=True
    )


def _row_shares(scores: np.ndarray, measure: str, stack: str) -> np.ndarray:
    """Normalize rows, except those of a measure whose row is a share already."""
    is_share = stack == "cross" and measure_facts(measure).residual == "share"
    return scores if is_share else normalize_rows(scores)
