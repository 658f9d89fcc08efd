"""Margin between two spellings of a CTC model without any words in the sound.

In: a `Writing` of a CTC model and its choices. Out: `SpellingMargins`. A CTC model puts its blank
on frames in which it hears nothing, so each further letter costs: on digital silence 22 nats for a
letter on average and 9 for the *s* of the plural (72 bundled clips). The margin between the text as
written and with another spelling holds that preference, too:

    margin   = log p(text | sound) - log p(other text | sound),    summed over all CTC paths
    prior    = the same margin with every word of the sound replaced, median over fills
    evidence = margin - prior,    what the sound contributes (the pointwise mutual information with the model's own prior)

All words are replaced, not the word's own sound alone: a cue that is still there would be
subtracted with the bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...interventions.runner import Reader
from ...mixing.maps.numerics import ctc_log_probability
from ...mixing.measures.token_objectives import token_logits
from .fills import SOUND, Fill
from .removals import make_removals, read_without

if TYPE_CHECKING:
    from torch import Tensor

    from .choices import Choice
    from .generated_tokens import Writing

PRIOR_FILLS = ("zeros", "room", "noise")  # "word" says something, and here there is no other word


@dataclass(frozen=True, eq=False)
class SpellingMargins:
    """Margins between the text as written and with another spelling, in nats; NaN for a choice
    without one.

    Parameters
    ----------
    margin : ndarray [C]
    prior_by_fill : ndarray [P, C]
        With every word of the sound replaced by silence, the room's tone, noise; the room's only
        where it can be heard.
    """

    margin: np.ndarray
    prior_by_fill: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """Median over fills [C]."""
        return (
            np.median(self.prior_by_fill, axis=0)
            if len(self.prior_by_fill)
            else np.full(self.margin.shape, np.nan)
        )

    @property
    def evidence(self) -> np.ndarray:
        """What the sound contributes [C]: the margin less the bonus of the spelling that needs
        fewer letters."""
        evidence: np.ndarray = self.margin - self.prior
        return evidence


def spelling_margins(writing: Writing, choices: Sequence[Choice]) -> SpellingMargins:
    """The margins of all choices that have another spelling; none for other models than CTC, which
    write their own end."""
    spelled = [
        index
        for index, choice in enumerate(choices)
        if choice.contrast is not None and choice.contrast.texts
    ]
    margin, prior = np.full(len(choices), np.nan), list[np.ndarray]()
    if not spelled:
        return SpellingMargins(margin, np.empty((0, len(choices))))
    read = _spelling_reader(writing, [choices[index] for index in spelled])
    margin[spelled] = read_without(writing, [()], read)[0]
    every_word = tuple(
        index for index, source in enumerate(writing.sources) if source.side == SOUND
    )
    for name in PRIOR_FILLS:
        of_fill = np.full(len(choices), np.nan)
        try:
            removals = make_removals(writing, every_word, [Fill(SOUND, name, name)])
            of_fill[spelled] = read_without(writing, [removals], read)[0]
        except InputError:  # no 30 ms of the room's own tone
            continue
        prior.append(of_fill)
    return SpellingMargins(margin, np.array(prior))


def _spelling_reader(writing: Writing, choices: Sequence[Choice]) -> Reader:
    """A function that reads the margin of each choice's texts over all paths."""
    tokenizer, blank = writing.model.tokenizer, writing.model.config.pad_token_id
    ids = [
        [tokenizer(text).input_ids for text in choice.contrast.texts]
        for choice in choices
        if choice.contrast
    ]

    def log_probability(scores: Tensor, labels: Sequence[int]) -> Tensor:
        return (
            ctc_log_probability(scores, labels, blank=blank) if labels else scores[:, blank].sum()
        )

    def read(output: ModelOutput) -> Tensor:
        scores = token_logits(output).log_softmax(dim=-1)
        return torch.stack(
            [
                torch.stack(
                    [
                        log_probability(s, wording_ids) - log_probability(s, other)
                        for wording_ids, other in ids
                    ]
                )
                for s in scores
            ]
        )

    return read
