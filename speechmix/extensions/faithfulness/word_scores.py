"""Word scores from a measure's maps, for every layer and aggregation; baselines.

In: the maps of one item and its decision. Out: vectors [W] (or [L, W]) of shares over the words
that compete. Those are the sources of a stack but the target: its own column says how much it
keeps, and no perturbation removes it. Special tokens and what belongs to no word are left out before rows
are normalised, for all measures alike; in a decoder so are words that the deciding row cannot see.

The row: in an encoder the target's (its mean over rows; over all rows for segments of a sound and its
label, which have no target); in a decoder and in cross-attention the one where the decision is read
(`Decision.read_positions`), of a classifier the one that its head reads, for gradient measures the
only one. Scores of measures that go to the output are in `to_output`.

Metrics: how well the scores of words agree with the effects of removing them.

Conventions: all words of one item, the target left out; `scores` [W] of a measure, `drops` [W] of a
perturbation (what the decision loses without the word); a *curve* [W + 1] is the probability of the
decision with 0, 1, ..., W words removed (or kept), most important first. Scores are compared by
their order alone. A measure that gives all words the same has no order: it gets 0 as a correlation,
and shares the hit. If the effects of all words are equal, there is no metric: NaN.

References
- top-1, Spearman, Kendall: rank agreement with ablation, as the blank-out evaluation of Mohebbi et
  al. 2023, EACL
- comprehensiveness, sufficiency: DeYoung et al. 2020, ERASER, ACL; over 1, 2, ... words as their
  area over the perturbation curve (AOPC), without the ends, where the order of words plays no part
- deletion, insertion: Petsiuk et al. 2018, RISE, BMVC
- soft versions: Zhao & Aletras 2023, Incorporating Attribution Importance for Improving
  Faithfulness Metrics, ACL
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import InputError
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS
from ...mixing.maps.measure_registry import is_weighted_by_strength, measure_facts
from ...mixing.maps.numerics import normalize_rows

if TYPE_CHECKING:
    from ...interventions.decision import Decision, Source
    from ...mixing.maps.map_set import Maps
    from ...mixing.maps.mixing_map import MixingMap

LAYER_ROW = "layer"  # of a row for one layer, out of which "best layer" is chosen
EACH_LAYER = "each layer"
N_RANDOM_ORDERS = 20  # of random orders, over which a baseline is the mean
RESIDUAL_ROLLOUT = "residual rollout"
STRENGTH_ROLLOUT = "strength rollout"
TO_THE_OUTPUT = "to the output"  # of measures that explain the margin itself; see `to_output`
COMPOSED = "composed"
AGGREGATIONS: tuple[str, ...] = (
    "best layer",
    EACH_LAYER,
    "mean",
    "last",
    "rollout",
    RESIDUAL_ROLLOUT,
)
AGGREGATIONS += (STRENGTH_ROLLOUT, COMPOSED, TO_THE_OUTPUT)


class WordScores(NamedTuple):
    """Scores of an item's words in one row of the table.

    Parameters
    ----------
    stack, measure : str
    aggregation : str
        Of `AGGREGATIONS`, `LAYER_ROW`, or "layer 3" of each layer by itself; "" of an order that no
        maps are behind.
    layer : int or None
    scores : ndarray [W]
    """

    stack: str
    measure: str
    aggregation: str
    layer: int | None
    scores: np.ndarray


def source_words(decision: Decision, stack: str) -> list[Source]:
    """List the competing sources of a stack: without the target and what the deciding row cannot
    attend to."""
    target = target_word(decision)
    sources = decision.sources["encoder" if stack == COMPOSED else stack]
    last_row = max(decision.deciding_rows, default=None) if stack == "decoder" else None
    return [
        source
        for source in sources
        if (target is None or source.word_index != target)
        and (last_row is None or min(source.positions) <= last_row)
    ]


def target_word(decision: Decision) -> int | None:
    """Return the index of the target among the item's words; None for a classifier."""
    target = (
        None if decision.item is None or decision.model.has_label_head else decision.item.target
    )
    return target if isinstance(target, int) else None


def length_scores(decision: Decision, stack: str) -> np.ndarray:
    """Return the baseline by length: frames (or tokens) of each word, letters of each token,
    [W]."""
    words = source_words(decision, stack)
    has_tokens = decision.units == "token"
    return np.array(
        [len(word.label) if has_tokens else len(word.positions) for word in words], dtype=float
    )


def nearness_scores(decision: Decision, stack: str) -> np.ndarray:
    """Return the baseline by position: nearness of each word to the target, [W]; the nearest has
    the highest number.

    Words are counted; tokens, and the words that a classifier reads, from the row that decides.
    """
    target, words = target_word(decision), source_words(decision, stack)
    if decision.units == "word" and not decision.model.has_label_head:
        return -np.array([abs(word.index - (target or 0)) for word in words], dtype=float)
    row = min(decision.deciding_rows, default=0)
    return -np.array([abs(min(word.positions) - row) for word in words], dtype=float)


def word_shares(mixing_map: MixingMap, decision: Decision, words: Sequence[Source]) -> np.ndarray:
    """Compute the share of each word in the target's row, layer by layer.

    Parameters
    ----------
    mixing_map : MixingMap
    decision : Decision
    words : sequence of Source [W]

    Returns
    -------
    ndarray [L, W]
        Rows that sum to one; a word's columns are added up.

    Raises
    ------
    InputError
        If the map has no row of the target, or no column of a word.
    """
    columns = [_source_columns(mixing_map, word, decision.units) for word in words]
    missing_labels = [
        word.label for word, word_columns in zip(words, columns, strict=True) if not word_columns
    ]
    if missing_labels:
        raise InputError(
            f"{decision.name}: no column of {', '.join(missing_labels)} in {mixing_map!r}"
        )
    row_scores = (
        mixing_map.mean_heads().scores[:, _target_rows(mixing_map, decision)].astype(float)
    )  # [L, R, K]
    by_word = np.stack(
        [row_scores[..., word_columns].sum(axis=-1) for word_columns in columns], axis=-1
    )  # [L, R, W]
    shares: np.ndarray = normalize_rows(by_word).mean(axis=1)
    return shares


def _source_columns(mixing_map: MixingMap, source: Source, units: str) -> list[int]:
    """List the columns of a word (its own, or those of its tokens), or of a token."""
    if units == "word":
        return [i for i, span in enumerate(mixing_map.sources) if span.word == source.index]
    return [i for i, span in enumerate(mixing_map.sources) if span.start == source.index]


def _target_rows(mixing_map: MixingMap, decision: Decision) -> list[int]:
    if measure_facts(mixing_map.measure).objective:
        return [0]
    target = target_word(decision)
    if mixing_map.stack == "encoder" and target is not None:
        rows = [i for i, span in enumerate(mixing_map.targets) if span.word == target]
    elif mixing_map.stack == "encoder" and (
        getattr(decision.item, "has_segments", False)
        or (decision.model.has_label_head and decision.model.hears)
    ):
        rows = [i for i, span in enumerate(mixing_map.targets) if span.word is not None]
    else:
        deciding_rows = set(decision.deciding_rows)
        rows = [
            i for i, span in enumerate(mixing_map.targets) if deciding_rows & set(span.positions)
        ]
    if not rows:
        raise InputError(f"{decision.name}: no row of the target in {mixing_map!r}")
    return rows


def word_scores(
    maps: Maps, measure: str, decision: Decision, aggregations: Sequence[str] = AGGREGATIONS
) -> Iterator[WordScores]:
    """Yield the scores of words by one measure, for each aggregation of its maps.

    Parameters
    ----------
    maps : Maps
        Of one item.
    measure : str
    decision : Decision
    aggregations : sequence of str
        Of `AGGREGATIONS`: "best layer" gives every layer by itself, from which it is chosen later;
        "each layer" gives them to be kept; "mean" of layers' shares; "last"; "rollout", where
        targets and sources are the same units; "residual rollout", the identity added for every
        measure; "strength rollout", layers weighted by their mixing strengths, for measures that do
        not hold the size of the residual stream themselves; "composed", encoder, cross and decoder
        in one, weighted likewise: a row of what the encoder is given, and one of what the decoder
        is fed.
    """
    stacks = [stack for name, stack in maps if name == measure]
    for stack in stacks:
        mixing_map, words = maps[measure, stack], source_words(decision, stack)
        if words and _has_row(mixing_map, decision):
            yield from scores_by_layers(
                mixing_map, partial(word_shares, decision=decision, words=words), aggregations
            )
    if (
        COMPOSED in aggregations
        and {"encoder", "cross", "decoder"} <= set(stacks)
        and _is_layerwise(measure)
    ):
        from ..logit_decompositions.input_attribution import (  # load PyTorch
            split_composed_map,
            sum_at_positions,
        )

        composed_map = maps.composed(measure)
        rows, columns = _target_rows(composed_map, decision), split_composed_map(composed_map)
        for stack, side in ((COMPOSED, "encoder"), ("decoder", "decoder")):
            words = source_words(decision, stack)
            if words:
                values = sum_at_positions(columns, [(side, word.positions) for word in words])[rows]
                yield WordScores(
                    stack, measure, COMPOSED, None, normalize_rows(values).mean(axis=0)
                )


def scores_by_layers(
    mixing_map: MixingMap, shares_of: Callable[[MixingMap], np.ndarray], aggregations: Sequence[str]
) -> Iterator[WordScores]:
    """Yield the scores of words by one map, for each aggregation of its layers; `shares_of` returns
    [L, W]."""
    stack, measure, by_layer = mixing_map.stack, mixing_map.measure, shares_of(mixing_map)
    layers = list(zip(mixing_map.layers, by_layer, strict=True))
    if "best layer" in aggregations:
        yield from (WordScores(stack, measure, LAYER_ROW, layer, row) for layer, row in layers)
    if EACH_LAYER in aggregations:
        yield from (
            WordScores(stack, measure, f"layer {layer}", layer, row) for layer, row in layers
        )
    scores_by_aggregation = {"mean": by_layer.mean(axis=0), "last": by_layer[-1]}
    for name, residual in (("rollout", None), (RESIDUAL_ROLLOUT, True)):
        if name in aggregations and stack != "cross" and _is_layerwise(measure):
            scores_by_aggregation[name] = shares_of(mixing_map.rollout(residual=residual))[-1]
    has_strength = mixing_map.mixing_strength is not None and is_weighted_by_strength(measure)
    if (
        STRENGTH_ROLLOUT in aggregations
        and stack != "cross"
        and has_strength
        and _is_layerwise(measure)
    ):
        scores_by_aggregation[STRENGTH_ROLLOUT] = shares_of(
            mixing_map.rollout(residual="strength")
        )[-1]
    for name in [name for name in scores_by_aggregation if name in aggregations]:
        yield WordScores(stack, measure, name, None, scores_by_aggregation[name])


def baseline_scores(decision: Decision, stack: str) -> list[WordScores]:
    """Return the baselines that need no model: by length and by position."""
    return [
        WordScores(stack, "length", "", None, length_scores(decision, stack)),
        WordScores(stack, "position", "", None, nearness_scores(decision, stack)),
    ]


def random_orders(
    decision: Decision, stack: str, n_random_orders: int = N_RANDOM_ORDERS
) -> list[np.ndarray]:
    """Draw random orders of the words, [W] each, always the same for an item."""
    return draw_random_orders(
        len(source_words(decision, stack)), f"{decision.name} {stack}", n_random_orders
    )


def draw_random_orders(
    count: int, seed_text: str, n_random_orders: int = N_RANDOM_ORDERS
) -> list[np.ndarray]:
    """Draw random orders of `count` words, [W] each, with a seed from a text."""
    generator = np.random.default_rng(zlib.crc32(seed_text.encode()))
    return [generator.permutation(count).astype(float) for _ in range(n_random_orders)]


def _has_row(mixing_map: MixingMap, decision: Decision) -> bool:
    """Whether the map has a row of the target: an encoder has none of a word of the translation."""
    target = target_word(decision)
    if (
        mixing_map.stack != "encoder"
        or measure_facts(mixing_map.measure).objective
        or target is None
    ):
        return True
    return any(span.word == target for span in mixing_map.targets)


def _is_layerwise(measure: str) -> bool:
    """Whether a measure's maps say what one layer does, so that they can be multiplied."""
    return measure_facts(measure).scope == "layer"


RANK_METRICS = ("top_1", "spearman", "kendall")
CURVE_METRICS = ("comprehensiveness", "sufficiency", "deletion", "insertion")
SOFT_METRICS = ("soft_comprehensiveness", "soft_sufficiency")
METRICS = (*RANK_METRICS, "average_precision", *CURVE_METRICS, *SOFT_METRICS)
# Smallest and largest value, where there are such.
METRIC_BOUNDS = {
    "top_1": (0.0, 1.0),
    "spearman": CORRELATION_BOUNDS,
    "kendall": CORRELATION_BOUNDS,
    "average_precision": (0.0, 1.0),
}
# Where a good measure has a small number.
LOWER_IS_BETTER = ("sufficiency", "soft_sufficiency", "deletion")


def top_1(scores: np.ndarray, drops: np.ndarray) -> float:
    """Return whether the measure's first word has the largest effect; tied first words share the hit.

    Chance is 1 / W.

    Examples
    --------
    >>> top_1(np.array([0.1, 0.7, 0.2]), np.array([0.0, 3.0, 1.0]))
    1.0
    >>> top_1(np.array([0.4, 0.4, 0.2]), np.array([0.0, 3.0, 1.0]))
    0.5
    """
    if not _has_order(drops):
        return float("nan")
    is_first, is_largest_effect = scores == scores.max(), drops == drops.max()
    return float((is_first & is_largest_effect).sum() / is_first.sum())


def spearman(scores: np.ndarray, drops: np.ndarray) -> float:
    """Rank correlation, -1 to 1.

    Examples
    --------
    >>> round(spearman(np.array([0.1, 0.7, 0.2]), np.array([0.0, 3.0, 1.0])), 6)
    1.0
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, scores, drops)


def kendall(scores: np.ndarray, drops: np.ndarray) -> float:
    """Return Kendall's tau-b, -1 to 1: concordant minus discordant pairs of words.

    Examples
    --------
    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 3)
    0.333
    """
    from scipy.stats import kendalltau

    return _correlation(kendalltau, scores, drops)


def _correlation(
    function: Callable[..., tuple[float, float]], scores: np.ndarray, drops: np.ndarray
) -> float:
    if not _has_order(drops):
        return float("nan")
    return float(function(scores, drops)[0]) if _has_order(scores) else 0.0


def _has_order(values: np.ndarray) -> bool:
    """Whether there is an order: more than one value, all of them finite."""
    return bool(np.isfinite(values).all() and np.ptp(values) > 0)


def rank_words(scores: np.ndarray) -> list[int]:
    """Return word indices, most important first; of equal ones the earlier.

    Examples
    --------
    >>> rank_words(np.array([0.2, 0.5, 0.2]))
    [1, 0, 2]
    """
    return [int(index) for index in np.argsort(-np.asarray(scores, dtype=float), kind="stable")]


def comprehensiveness(removal_curve: np.ndarray) -> float:
    """Return the mean drop of the probability with 1, ..., W - 1 words removed; large if the first
    removed words are needed.

    Examples
    --------
    >>> round(comprehensiveness(np.array([0.9, 0.5, 0.1, 0.1])), 6)
    0.6
    """
    return float(np.mean(removal_curve[0] - removal_curve[1:-1]))


def sufficiency(insertion_curve: np.ndarray) -> float:
    """Return the mean drop of the probability with only 1, ..., W - 1 words kept; small if the
    first kept words are enough.

    Examples
    --------
    >>> round(sufficiency(np.array([0.1, 0.8, 0.9, 0.9])), 6)
    0.05
    """
    return float(np.mean(insertion_curve[-1] - insertion_curve[1:-1]))


def deletion(removal_curve: np.ndarray) -> float:
    """Return the area under the curve of removal, over the share of words; small if it falls at
    once.

    Examples
    --------
    >>> deletion(np.array([1.0, 0.0, 0.0]))
    0.25
    """
    return float(np.trapezoid(removal_curve) / (len(removal_curve) - 1))


def insertion(insertion_curve: np.ndarray) -> float:
    """Return the area under the curve of insertion, over the share of words; large if it rises at
    once.

    Examples
    --------
    >>> insertion(np.array([0.0, 1.0, 1.0]))
    0.75
    """
    return float(np.trapezoid(insertion_curve) / (len(insertion_curve) - 1))


def rank_metrics(vectors: Sequence[np.ndarray], drops: np.ndarray) -> list[dict[str, float]]:
    """Compute the rank metrics of several vectors of scores [W]; vectors of one order are computed
    once."""
    from scipy.stats import rankdata

    ranks = [tuple(rankdata(scores)) for scores in vectors]
    by_order = {
        order: {
            name: function(np.array(order), drops)
            for name, function in _RANK_METRIC_FUNCTIONS.items()
        }
        for order in set(ranks)
    }
    return [by_order[order] for order in ranks]


def chance_value(metric: str, count: int) -> float:
    """Return the expected metric of a random order of words; NaN if it is not known."""
    return {"top_1": 1 / count, "spearman": 0.0, "kendall": 0.0}.get(metric, float("nan"))


_RANK_METRIC_FUNCTIONS = {"top_1": top_1, "spearman": spearman, "kendall": kendall}


def curve_metrics(
    removal_curve: np.ndarray, insertion_curve: np.ndarray, shares: np.ndarray | None = None
) -> dict[str, float]:
    """Compute the curve metrics of curves word by word, or at some shares of the words [P]."""
    if shares is not None:
        width = shares[-1] - shares[0]
        return {
            "comprehensiveness": float(np.mean(removal_curve[0] - removal_curve[1:])),
            "sufficiency": float(np.mean(removal_curve[0] - insertion_curve[1:])),
            "deletion": float(np.trapezoid(removal_curve, shares) / width),
            "insertion": float(np.trapezoid(insertion_curve, shares) / width),
        }
    return {
        "comprehensiveness": comprehensiveness(removal_curve),
        "sufficiency": sufficiency(insertion_curve),
        "deletion": deletion(removal_curve),
        "insertion": insertion(insertion_curve),
    }
