"""Knock-out: zero the value vectors of a word in some layers, and read the decision at the output.

Value Zeroing measures one layer's step: how far the target's state moves. Here the change runs
through the rest of the model, so an edge that no later layer uses has no effect. All (layer, word)
pairs run together (`run_interventions`).

Zero the cue's values in a whole stack, and test whether the target is still right.

The value vectors of a source are zeroed in all layers of one stack (`knock_out` with
``window="all"``). Then the model chooses between the target and its foil (livres / livre):

    margin = log p(target) - log p(foil)        right if margin > 0
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..adapters.patching.patches import Patch
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.words.cue_and_target import CONTROL, CUE, cue_words
from ..inputs.words.timed_words import Word
from ..mixing.maps.decision_map import DecisionMap
from .decision import Decision, Source
from .runner import NO_REMOVAL, Intervention, run_interventions

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.sentences.sentence import Sentence
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


def ablate(
    model: Model,
    clip: Clip | Sentence,
    *,
    stacks: Sequence[str] | None = None,
    source: int | Sequence[int] | None = None,
) -> pd.DataFrame:
    """Ablate a source in one stack after the other, and read the choice between target and foil.

    As `knock_out` with ``window="all"`` and the source's words together, beside the intact model.
    Other paths than attention stay: in wav2vec2 models the positional convolution carries a word to
    the frames around it (0.2 s in the bundled model, 2.6 s in XLSR).

    Parameters
    ----------
    model : Model
        With its head.
    clip : Clip or Sentence
        With a target and its foil, the other spelling ("livre" for "livres"); a clip with text and
        words.
    stacks : sequence of str, optional
        All stacks of the model by default.
    source : int or sequence of int, optional
        Index of the word to ablate, or of several words, which are ablated together; the cue (all
        its words) by default.

    Returns
    -------
    DataFrame
        One row for "none" and for each stack: ablated, margin (nats), right.

    Raises
    ------
    InputError
        If the clip lacks a cue, target or foil, or the model cannot choose between two spellings.
    """
    words = clip.cue_words if source is None else cue_words(source)
    decision = _prepare_spelling(model, clip, words)
    stack_names = tuple(model.stacks) if stacks is None else tuple(stacks)
    return _ablate_sources(decision, {CUE: words}, stack_names)[["ablated", "margin", "right"]]


def ablate_with_control(
    model: Model, clip: Clip | Sentence, *, by_layer: bool = False
) -> pd.DataFrame:
    """Ablate the cue and, as a control, another word of about its length; with `by_layer`, also the
    cue in each layer of each stack by itself.

    The table has the columns source ("cue", "another word"; "" for the intact row), ablated, layer
    (missing: all of the stack), margin, right. It has no row for another word if there is none
    (`control_words`).
    """
    decision = _prepare_spelling(model, clip, clip.cue_words)
    word_indices = {CUE: clip.cue_words, CONTROL: control_words(clip)}
    return _ablate_sources(decision, word_indices, tuple(model.stacks), by_layer=by_layer)


def _ablate_sources(
    decision: Decision,
    words: Mapping[str, Sequence[int]],
    stacks: Sequence[str],
    *,
    by_layer: bool = False,
) -> pd.DataFrame:
    """Return a row for the intact item, and one for each source and stack; for the cue and each
    layer."""
    rows: list[dict[str, object]] = [{"source": "", "ablated": "none", "layer": None}]
    interventions: list[Intervention] = []
    for source, word_indices in words.items():
        windows: tuple[int | str, ...] = (
            (ALL_LAYERS, 1) if by_layer and source == CUE else (ALL_LAYERS,)
        )
        for stack, window in itertools.product(stacks if word_indices else (), windows):
            for _, patch in list_knock_outs(decision, stack, [word_indices], window):
                layer = None if window == ALL_LAYERS else patch.layers.start
                rows.append({"source": source, "ablated": stack, "layer": layer})
                interventions.append(patch)
    table = pd.DataFrame(rows)
    table["margin"] = run_interventions(decision, [NO_REMOVAL, *interventions])
    table["right"] = table["margin"] > 0
    return table.astype({"layer": "Int64"})


def control_words(item: Clip | Sentence) -> tuple[int, ...]:
    """Return control words: as many as the cue has, neither cue nor target, of about its lengths.

    For each of the cue's words, the longest first, the unused word nearest in length. Empty if
    there are too few.
    """
    lengths = [
        word.seconds if isinstance(word, Word) else len(word.text) for word in item.words or ()
    ]
    free_indices = [
        index for index in range(len(lengths)) if index not in (*item.cue_words, item.target)
    ]
    if len(free_indices) < len(item.cue_words):
        return ()
    control_indices = []
    for cue in sorted(item.cue_words, key=lambda index: -lengths[index]):
        control_indices.append(
            min(free_indices, key=lambda index: abs(lengths[index] - lengths[cue]))
        )
        free_indices.remove(control_indices[-1])
    return tuple(sorted(control_indices))


def _prepare_spelling(model: Model, item: Clip | Sentence, words: Sequence[int]) -> Decision:
    """Prepare the choice between target and foil."""
    has_words = not isinstance(item, Clip) or bool(item.text and item.words)
    if not has_words or item.target is None or item.foil is None or not words:
        raise InputError(
            f"{item.name}: ablation needs text, words with times, a cue (or source=), a target and "
            "its foil"
        )
    message = (
        f"{model.label} cannot spell: ablation needs a CTC or language-model head and the processor"
    )
    model.refuse_audio_tokens(
        f"{message}; for an audio language model use knock_out or ablate_input"
    )
    if model.hears and not model.can_transcribe:
        raise InputError(f"{message}{model.missing_processor}")
    return Decision.prepare(model, item)
