"""Knock-out: zero the value vectors of a word in some layers, and read the decision at the output.

Value Zeroing measures one layer's step: how far the target's state moves. Here the change runs
through the rest of the model, so an edge that no later layer uses has no effect. All (layer, word)
pairs run together (`run_interventions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..adapters.patching.patches import Patch
from ..errors import InputError
from ..mixing.maps.decision_map import DecisionMap
from .decision import Decision
from .removable_sources import Source
from .runner import NO_REMOVAL, Intervention, run_interventions

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..mixing.passes.item_view import Item
    from ..mixing.passes.request import ObjectiveOption

ALL_LAYERS = "all"


def knock_out(
    model: Model,
    item: Item,
    *,
    stacks: Sequence[str] | None = None,
    window: int | str = 1,
    words: Sequence[int | Sequence[int]] | None = None,
    objective: ObjectiveOption | None = None,
    batch_size: int | None = None,
) -> DecisionMap:
    """Zero the value vectors of each word in each layer of each stack, and read the margin.

    Parameters
    ----------
    model : Model
        With its head.
    item : Clip, Sentence, str or dict
        A clip with words, target and (for a choice between two spellings) foil; a sentence
        likewise; or prepared inputs with ``objective=(position, token id, foil's id)``, whose
        tokens are the words.
    stacks : sequence of str, optional
        All by default.
    window : int or "all"
        Number of consecutive layers that are changed together; "all" for the whole stack (one row).
    words : sequence of int or of tuples of int, optional
        Indices of the words to knock out; all by default. A tuple of indices is knocked out
        together, in one row that is numbered as its first word: ``words=[clip.cue_words]``.
    objective : optional
        Another number to read than the margin, as in `mix`.
    batch_size : int, optional
        Runs that go together; as many as fit by default.

    Returns
    -------
    DecisionMap

    Raises
    ------
    InputError
        If the item has no target, or there is no such stack, word or window.
    ModelError
        If the model has no head.

    Examples
    --------
    >>> drops = speechmix.knock_out(model, clip)                                          # doctest: +SKIP
    >>> drops.scores("decoder").shape                                                     # doctest: +SKIP
    (12, 6)
    """
    decision = Decision.prepare(model, item, objective=objective)
    return knock_out_words(
        decision, stacks=stacks, window=window, words=words, batch_size=batch_size
    )


def knock_out_words(
    decision: Decision,
    *,
    stacks: Sequence[str] | None = None,
    window: int | str = 1,
    words: Sequence[int | Sequence[int]] | None = None,
    batch_size: int | None = None,
) -> DecisionMap:
    """Knock words out of a decision that has been prepared; parameters as of `knock_out`."""
    name = "knock-out" if window == 1 else f"knock-out ({window} layers)"
    rows, patches = [], list[Intervention]()
    for stack in tuple(decision.model.stacks) if stacks is None else stacks:
        for source, patch in list_knock_outs(decision, stack, words, window):
            rows.append(label_row(decision, name, stack, patch.layers.start, source))
            patches.append(patch)
    if not rows:
        raise InputError(
            f"{decision.name}: none of the words {list(words or ())} is a source of "
            f"{stacks or 'any stack'}"
        )
    intact_margin, *margins = run_interventions(
        decision, [NO_REMOVAL, *patches], batch_size=batch_size
    ).tolist()
    return build_decision_map(decision, rows, intact_margin, margins)


def list_knock_outs(
    decision: Decision,
    stack: str,
    words: Sequence[int | Sequence[int]] | None,
    window: int | str,
) -> list[tuple[Source, Patch]]:
    """List the patches that zero the values of words in one stack, source by source."""
    return [
        (source, Patch(stack, layers, source.positions))
        for source in decision.select_sources(stack, words)
        for layers in layer_windows(decision.layer_count(stack), window)
    ]


def layer_windows(layer_count: int, window: int | str) -> list[range]:
    """List the windows of layers that are changed together, in a stack of `layer_count` layers.

    Examples
    --------
    >>> layer_windows(4, 3)
    [range(0, 3), range(1, 4), range(2, 4), range(3, 4)]
    >>> layer_windows(4, "all")
    [range(0, 4)]
    """
    if window == ALL_LAYERS:
        return [range(layer_count)]
    if not isinstance(window, int) or window < 1:
        raise InputError(
            f"window should be a number of layers, at least 1, or 'all'; found {window!r}"
        )
    return [range(layer, min(layer + window, layer_count)) for layer in range(layer_count)]


def label_row(
    decision: Decision, intervention: str, stack: str, layer: float, source: Source
) -> dict[str, object]:
    """Return the columns of a `DecisionMap` that say where an intervention was made."""
    labels = {"item": decision.name, "intervention": intervention, "stack": stack, "layer": layer}
    return labels | {"word": source.index, "label": source.label}


def build_decision_map(
    decision: Decision,
    rows: Sequence[dict[str, object]],
    intact_margin: float,
    margins: Sequence[float],
) -> DecisionMap:
    """Build a `DecisionMap` of drops from labelled rows and their margins."""
    table = pd.DataFrame(rows)
    table["margin"] = margins
    table["drop"] = intact_margin - table["margin"]
    is_flipped = (table["margin"] > 0) != (intact_margin > 0)
    table["flipped"] = (
        is_flipped.astype("boolean")
        if decision.has_foil
        else pd.array([pd.NA] * len(table), "boolean")
    )
    model = decision.model
    provenance = {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        "item": decision.name,
        "read": decision.objective.details,
    }
    return DecisionMap(table, intact_margin, provenance)
