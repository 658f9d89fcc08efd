"""Ablation as the judge: does the model still spell the target right when the cue gives nothing in a whole stack?

A source's value vectors are zeroed in all layers of one stack (`knock_out` with ``window="all"``), and the model chooses
between the target as it is spelled and its foil (livres / livre):

    margin = log p(target) - log p(foil)        right if margin > 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..adapters.intervene import Branch
from ..errors import InputError
from ..inputs.clips import Clip
from ..inputs.spans import Word
from .decision import Decision

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.sentences import Sentence

# What is silenced: the cue, or, as a control, another word of about its length.
CUE, CONTROL = "cue", "another word"


def ablate(
    model: Model, clip: Clip | Sentence, *, stacks: Sequence[str] | None = None, source: int | None = None
) -> pd.DataFrame:
    """Read the choice between target and foil, intact and with a source silenced in one stack after the other.

    Silenced are value vectors, in all layers of the stack. What goes round attention stays: in wav2vec2 models the
    positional convolution carries a word to the frames around it (0.2 s in the bundled model, 2.6 s in XLSR).

    Parameters
    ----------
    model : Model
        With its head.
    clip : Clip or Sentence
        A clip with text and words, or a sentence, with a target and its foil, the other spelling ("livre" for "livres").
    stacks : sequence of str, optional
        All the model has by default.
    source : int, optional
        Index of the word to silence; the cue by default.

    Returns
    -------
    DataFrame
        One row for "none" and for each stack: ablated, margin (nats), right.

    Raises
    ------
    InputError
        If the clip lacks what is needed, or the model cannot choose between two spellings.
    """
    word = clip.cue if source is None else source
    decision = _spelling(model, clip, word)
    names = tuple(model.stacks) if stacks is None else tuple(stacks)
    clean, margins = decision.of_branches([_silenced(decision, name, word) for name in names])
    return pd.DataFrame(
        [
            {"ablated": name, "margin": margin, "right": margin > 0}
            for name, margin in zip(("none", *names), (clean, *margins), strict=True)
        ]
    )


def ablate_with_control(model: Model, clip: Clip | Sentence, *, by_layer: bool = False) -> pd.DataFrame:
    """`ablate` for the cue and, as its control, for another word; layer by layer too where that is asked for.

    Parameters
    ----------
    model, clip
        As for `ablate`.
    by_layer : bool
        Also silence the cue in each layer of each stack by itself.

    Returns
    -------
    DataFrame
        Columns source ("cue", "another word"; "" for the intact row), ablated, layer (missing: all of the stack), margin,
        right.
        No row for another word where there is none (`control_word`).
    """
    decision = _spelling(model, clip, clip.cue)
    rows: list[dict[str, Any]] = [{"source": "", "ablated": "none", "layer": None}]
    branches = []
    for source, word in ((CUE, clip.cue), (CONTROL, control_word(clip))):
        for stack in model.stacks if word is not None else ():
            layers = range(len(model.stacks[stack])) if by_layer and source == CUE else ()
            rows += [{"source": source, "ablated": stack, "layer": layer} for layer in (None, *layers)]
            branches += [_silenced(decision, stack, word, layer) for layer in (None, *layers)]
    clean, margins = decision.of_branches(branches)
    return pd.DataFrame(
        [{**row, "margin": margin, "right": margin > 0} for row, margin in zip(rows, (clean, *margins), strict=True)]
    ).astype({"layer": "Int64"})


def control_word(item: Clip | Sentence) -> int | None:
    """Index of the word that is nearest to the cue in length, and neither cue nor target; None if there is none.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> sentence = Sentence("les gros livres rouges", cue="les", target="livres")
    >>> sentence.words[control_word(sentence)].text
    'gros'
    """
    cue = item.cue
    if not isinstance(cue, int):
        return None
    lengths = [word.end - word.start if isinstance(word, Word) else len(word.text) for word in item.words or ()]
    others = [index for index in range(len(lengths)) if index not in (cue, item.target)]
    return min(others, key=lambda index: abs(lengths[index] - lengths[cue]), default=None)


def _spelling(model: Model, item: Clip | Sentence, word: object) -> Decision:
    """The choice between target and foil, with a word to silence."""
    has_words = not isinstance(item, Clip) or bool(item.text and item.words)
    if not has_words or item.target is None or item.foil is None or not isinstance(word, int):
        raise InputError(
            f"{item.name}: ablation needs text, words with times, a cue (or source=), a target and its foil"
        )
    if model.hears and not model.can_spell:
        raise InputError(f"{model.label} cannot spell: ablation needs a CTC or language-model head and the processor")
    return Decision.of(model, item)


def _silenced(decision: Decision, stack: str, word: object, layer: int | None = None) -> Branch:
    """The run with a word's values zeroed in all layers of a stack, or in one."""
    positions = [
        place for source in decision.sources_of(stack, None) if source.index == word for place in source.positions
    ]
    layers = range(len(decision.model.stacks[stack])) if layer is None else range(layer, layer + 1)
    return Branch(stack, layers, positions)
