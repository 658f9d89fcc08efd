"""Ablation as the judge: does the model still spell the target right when the cue gives nothing in
a whole stack?

A source's value vectors are zeroed in all layers of one stack (`knock_out` with ``window="all"``),
and the model chooses between the target as it is spelled and its foil (livres / livre):

    margin = log p(target) - log p(foil)        right if margin > 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..adapters.editing.patches import Patch
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.words.cue_and_target import cue_words
from ..inputs.words.timed_words import Word
from .decision import Decision
from .knock_out import ALL_LAYERS, layer_windows
from .runner import NO_REMOVAL, Intervention, run_interventions

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.sentences.sentence import Sentence

# What is silenced: the cue, or, as a control, another word of about its length.
CUE, CONTROL = "cue", "another word"


def ablate(
    model: Model,
    clip: Clip | Sentence,
    *,
    stacks: Sequence[str] | None = None,
    source: int | Sequence[int] | None = None,
) -> pd.DataFrame:
    """Read the choice between target and foil, intact and with a source silenced in one stack after
    the other.

    Silenced are value vectors, in all layers of the stack. What goes round attention stays: in
    wav2vec2 models the positional convolution carries a word to the frames around it (0.2 s in the
    bundled model, 2.6 s in XLSR).

    Parameters
    ----------
    model : Model
        With its head.
    clip : Clip or Sentence
        A clip with text and words, or a sentence, with a target and its foil, the other spelling
        ("livre" for "livres").
    stacks : sequence of str, optional
        All the model has by default.
    source : int or sequence of int, optional
        Index of the word to silence, or of several, which are silenced together; the cue (all its
        words) by default.

    Returns
    -------
    DataFrame
        One row for "none" and for each stack: ablated, margin (nats), right.

    Raises
    ------
    InputError
        If the clip lacks what is needed, or the model cannot choose between two spellings.
    """
    words = clip.cue_words if source is None else cue_words(source)
    decision = _prepare_spelling(model, clip, words)
    stack_names = tuple(model.stacks) if stacks is None else tuple(stacks)
    return _ablate_sources(decision, {CUE: words}, stack_names)[["ablated", "margin", "right"]]


def ablate_with_control(
    model: Model, clip: Clip | Sentence, *, by_layer: bool = False
) -> pd.DataFrame:
    """`ablate` for the cue and, as its control, for another word; layer by layer too where that is
    asked for.

    Parameters
    ----------
    model, clip
        As for `ablate`.
    by_layer : bool
        Also silence the cue in each layer of each stack by itself.

    Returns
    -------
    DataFrame
        Columns source ("cue", "another word"; "" for the intact row), ablated, layer (missing: all
        of the stack), margin, right.
        No row for another word where there is none (`control_words`).
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
    """A row for the intact item, and one for each source and stack; for the cue and each layer."""
    rows: list[dict[str, object]] = [{"source": "", "ablated": "none", "layer": None}]
    interventions: list[Intervention] = []
    for source, word_indices in words.items():
        for stack in stacks if word_indices else ():
            sources = decision.select_sources(stack, word_indices)
            positions = [position for part in sources for position in part.positions]
            layer_count = len(decision.model.stacks[stack])
            rows.append({"source": source, "ablated": stack, "layer": None})
            interventions += [
                Patch(stack, layers, positions) for layers in layer_windows(layer_count, ALL_LAYERS)
            ]
            for layers in layer_windows(layer_count, 1) if by_layer and source == CUE else ():
                rows.append({"source": source, "ablated": stack, "layer": layers.start})
                interventions.append(Patch(stack, layers, positions))
    table = pd.DataFrame(rows)
    table["margin"] = run_interventions(decision, [NO_REMOVAL, *interventions])
    table["right"] = table["margin"] > 0
    return table.astype({"layer": "Int64"})


def control_words(item: Clip | Sentence) -> tuple[int, ...]:
    """Indices of as many words as the cue has, neither cue nor target, of about its words' lengths;
    none if they are fewer.

    For each of the cue's words, the longest first, the word nearest in length that is still free.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> sentence = Sentence("les gros livres rouges", cue="les", target="livres")
    >>> [sentence.words[index].text for index in control_words(sentence)]
    ['gros']
    >>> control_words(sentence.replace(cue="les gros"))
    ()
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
    """The choice between target and foil, with words to silence."""
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
        f"{message}; of an audio language model ask knock_out or ablate_input"
    )
    if model.hears and not model.can_spell:
        raise InputError(message)
    return Decision.of(model, item)
