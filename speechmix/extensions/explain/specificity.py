"""Part of a word's attribution that other words of the clip do not share.

In: what a measure assigns to the sources of each choice. Out: for each source its share for this
word less its mean share for the other written words, and one number that says whether the measure
tells words apart at all. A map that is composed from the input to the output can be nearly the same
for every output token: Value Zeroing composed without weights ranks one sound first for every word
of 9 in 10 bundled clips.

Margin between two spellings of a CTC model without any words in the sound.

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

# Mean total-variation distance below which a measure is called almost the same for every word.
# Measured on 72 bundled clips: Value Zeroing composed without weights .024 (both models), attention
# and its entropy-weighted form in the Whisper-style model .055 and .069, with one source first for
# every word in 81 to 92 % of clips; next is attention in the CTC model (.135, 15 %). Composed by
# mixing strength they have .33 and more.
LEAST_DISTANCE = 0.1


def positive_shares(values: np.ndarray) -> np.ndarray:
    """What supports each choice, as shares of one [C, S]; NaN where nothing does, or a value is
    unknown.

    Examples
    --------
    >>> positive_shares(np.array([[3.0, 1.0, -2.0]])).tolist()
    [[0.75, 0.25, 0.0]]
    """
    support = np.clip(values, 0, None)
    total = support.sum(axis=1, keepdims=True)
    shares = np.full(support.shape, np.nan)
    np.divide(support, total, out=shares, where=total > 0)
    return shares


def specific_shares(values: np.ndarray, choices: Sequence[Choice]) -> np.ndarray:
    """The share of each source for a choice less its mean share for the other written words, [C,
    S].

    Parameters
    ----------
    values : ndarray [C, S]
        NaN where a word cannot have come from a source.
    choices : sequence of Choice

    Returns
    -------
    ndarray [C, S]
        Shares are of the sources that all compared words have: of what was written before, the
        words behind it are compared. NaN where there is no other written word.
    """
    words = [
        row for row, choice in enumerate(choices) if not choice.against and choice.word is not None
    ]
    units = np.array([choice.unit for choice in choices], dtype=int)
    is_known, specific = np.isfinite(values), np.full(values.shape, np.nan)
    # Sources that the same words have are compared together: the sound by all words, an earlier
    # word by the later ones.
    for reached in np.unique(is_known[words].T, axis=0) if words else ():
        compared = [word for word, reaches in zip(words, reached, strict=True) if reaches]
        if not compared:
            continue
        columns = is_known[compared].all(axis=0)
        shares = positive_shares(np.where(columns, values, 0.0))
        shares[~is_known[:, columns].all(axis=1)] = np.nan
        of_group = columns & (reached[None] == is_known[words].T).all(axis=1)
        for row, unit in enumerate(units):
            others = [
                word for word in compared if units[word] != unit and np.isfinite(shares[word]).all()
            ]
            if others:
                specific[row, of_group] = shares[row, of_group] - shares[others][:, of_group].mean(
                    axis=0
                )
    return specific


def distance_between_words(values: np.ndarray, choices: Sequence[Choice]) -> float:
    """How far the shares of a word are from the mean of the others': the mean of their
    total-variation distances, 0 to 1.

    Over the sources that every written word has (words of the sound, of a text that is read, of a
    prompt).

    Returns
    -------
    float
        NaN for fewer than two written words, or sources.

    Examples
    --------
    >>> from speechmix.extensions.explain.choices import Choice
    >>> words = [Choice(unit, word, (unit,), unit, 1.0) for unit, word in enumerate(("nos", "maisons"))]
    >>> distance_between_words(np.array([[0.2, 0.8], [0.2, 0.8]]), words)
    0.0
    >>> distance_between_words(np.array([[1.0, 0.0], [0.0, 1.0]]), words)
    1.0
    """
    words = [
        row for row, choice in enumerate(choices) if not choice.against and choice.word is not None
    ]
    shared = np.isfinite(values[words]).all(axis=0)
    if len(words) < 2 or shared.sum() < 2:
        return float("nan")
    specific = specific_shares(values[words][:, shared], [choices[word] for word in words])
    distances = np.abs(specific).sum(axis=1) / 2
    finite_distances = distances[np.isfinite(distances)]
    return float(finite_distances.mean()) if len(finite_distances) else float("nan")


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
