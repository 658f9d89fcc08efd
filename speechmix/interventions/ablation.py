"""Ablation as the judge: does the model still spell the target right when the cue gives nothing in a whole stack?

A source's value vectors are zeroed in all layers of one stack (`knock_out` with ``window="all"``), and the model chooses
between the target as it is spelled and its foil (livres / livre):

    margin = log p(target) - log p(foil)        right if margin > 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..adapters.intervene import Branch
from ..errors import InputError
from ..inputs.clips import Clip
from .decision import Decision

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.sentences import Sentence


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
    has_words = not isinstance(clip, Clip) or bool(clip.text and clip.words)
    if not has_words or clip.target is None or clip.foil is None or not isinstance(word, int):
        raise InputError(
            f"{clip.name}: ablation needs text, words with times, a cue (or source=), a target and its foil"
        )
    if model.hears and not model.can_spell:
        raise InputError(f"{model.label} cannot spell: ablation needs a CTC or language-model head and the processor")
    decision = Decision.of(model, clip)
    names = tuple(model.stacks) if stacks is None else tuple(stacks)
    branches = []
    for name in names:
        positions = [place for held in decision.sources_of(name, [word]) for place in held.positions]
        branches.append(Branch(name, range(len(model.stacks[name])), positions))
    clean, margins = decision.of_branches(branches)
    return pd.DataFrame(
        [
            {"ablated": name, "margin": margin, "right": margin > 0}
            for name, margin in zip(("none", *names), (clean, *margins), strict=True)
        ]
    )
