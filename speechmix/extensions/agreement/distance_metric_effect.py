"""Compare Value Zeroing scores under different distance metrics.

The target's row under each distance, held against the cosine's.

In: a model and a sentence with its cue and target. Out: cue alignment layer by layer for each
distance, and the rank correlation of the row with that of the cosine. Three distances are of the
states as they are (cosine, euclidean, manhattan), three of *normalised* states: "correlation" is
the cosine of centred ones, as a layer norm without gain leaves them; "unit_euclidean" and
"unit_manhattan" are of states at length 1. Mohebbi et al. 2023 (Quantifying Context Mixing in
Transformers, EACL) report that neither changes much.

"unit_euclidean" ranks the sources as the cosine does whatever the model: it is sqrt(2 (1 - cos)).
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...inputs.sentences.sentence import Sentence
from ...mixing.maps.numerics import DISTANCES
from ...mixing.passes.mix import mix_one
from .cue_alignment import RANK_CORRELATION, cue_alignment
from .map_correlations import map_correlations

REFERENCE_DISTANCE = "cosine"


def distance_effect(
    model: Model,
    sentence: Sentence,
    *,
    cue: Sequence[int],
    target: int,
    distances: Sequence[str] = tuple(DISTANCES),
    stack: str = "encoder",
    units: str = "token",
    drop: Sequence[str] = (),
    subtokens: str = "all",
    attractors: Sequence[int] = (),
) -> pd.DataFrame:
    """Compute the cue alignment of Value Zeroing under several distances.

    Parameters
    ----------
    model : Model
    sentence : Sentence
    cue : sequence of int
    target : int
    distances : sequence of str
        Of `speechmix.mixing.maps.numerics.DISTANCES`.
    stack : {"encoder", "decoder"}
    units, drop, subtokens, attractors
        As in `mix` and `cue_alignment`.

    Returns
    -------
    DataFrame
        Columns distance, those of `cue_alignment`, and rank_correlation: Spearman's r of the row
        with the cosine's (1 for the cosine itself; NaN where a row does not vary).

    Raises
    ------
    InputError
        If a distance is unknown, or cue or target cannot be found.
    """
    if not distances:
        raise InputError(f"expected one distance or more of {', '.join(DISTANCES)}, found none")
    maps = {
        distance: mix_one(
            model,
            sentence,
            measures=[f"value_zeroing:distance={distance}"],
            stacks=[stack],
            units=units,
            targets="target",
        )[f"value_zeroing:distance={distance}", stack].without(*drop)
        for distance in dict.fromkeys((REFERENCE_DISTANCE, *distances))
    }
    rows = map_correlations(maps, reference=REFERENCE_DISTANCE).set_index(["measure", "layer"])[
        "spearman"
    ]
    tables = []
    for distance in distances:
        table = cue_alignment(
            maps[distance], cue=cue, target=target, attractors=attractors, subtokens=subtokens
        )
        correlations = [
            1.0 if distance == REFERENCE_DISTANCE else rows[distance, layer]
            for layer in table["layer"]
        ]
        tables.append(table.assign(distance=distance, **{RANK_CORRELATION: correlations}))
    return pd.concat(tables, ignore_index=True)
