"""What a word gets because it is long: the baseline that word-level Value Zeroing needs.

Zeroing a whole word changes the target by an amount that grows with the word's frames, and cosine
distance grows with the square of the change; attention and attention norm are means per frame and
do not grow. So a word of n_j frames that is no different from others is expected to get

    share_j = n_j^b / sum_k n_k^b        b = 2: Value Zeroing, cosine;  1: euclidean, manhattan;  0: means over a word's frames

In random models b was measured as 1.9 to 2.0 for Value Zeroing; `length_exponent` measures it on
maps at hand. Where every unit is one token (decoders), all three are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..inputs.words.cue_and_target import CueRequest
from ..mixing.maps.measure_registry import find_facts
from .cue_contribution import cue_columns

if TYPE_CHECKING:
    from ..mixing.maps.mixing_map import MixingMap


def length_matched_share(mixing_map: MixingMap, *, cue: CueRequest) -> float:
    """Return the expected share of words of the cue's length.

    It is NaN for a measure without a known exponent. Silence and padding are left out, as in
    `cue_contribution`, whose cues it takes. The shares of several words, which are removed one by
    one, are summed.
    """
    facts = find_facts(mixing_map.measure)
    exponents = facts.length_exponent if facts else {}
    exponent = exponents.get(
        "", exponents.get(mixing_map.provenance.get("distance", "cosine"), np.nan)
    )
    units_map = mixing_map.without("silence", "padding")
    weights = np.array([float(len(source)) for source in units_map.sources]) ** exponent
    return float(weights[cue_columns(units_map, cue, mixing_map)].sum() / weights.sum())


def length_exponent(maps: Iterable[MixingMap]) -> float:
    """Fit the slope of log share against log frames, within rows, without the target; NaN if
    nothing varies.

    Parameters
    ----------
    maps : iterable of MixingMap
        Of one measure; several clips, all layers. Those of random twins show what length alone
        does.
    """
    log_lengths, log_shares = [], []
    for mixing_map in maps:
        words = mixing_map.without("silence", "padding").mean_heads().normalized()
        frames = np.log([max(len(source), 1) for source in words.sources])
        for row, target in enumerate(words.targets):
            other_columns = [
                j
                for j, source in enumerate(words.sources)
                if target.word is None or source.word != target.word
            ]
            if len(other_columns) < 2:
                continue
            for layer in words.scores[:, row, other_columns].astype(float):
                if (layer > 0).all() and np.isfinite(layer).all():
                    log_lengths.append(frames[other_columns] - frames[other_columns].mean())
                    log_shares.append(np.log(layer) - np.log(layer).mean())
    if not log_lengths or np.ptp(np.concatenate(log_lengths)) < 1e-9:
        return float("nan")
    from scipy.stats import linregress

    return float(linregress(np.concatenate(log_lengths), np.concatenate(log_shares)).slope)
