"""Words to explain, each with the alternative that it was preferred to.

In: a `Writing`, and what its words are to be held against (the runner-up, what was said instead, a
foil). Out: `Choice`s. A word is explained by its log-probability, the sum over its tokens; against
something else by the difference of two log-probabilities at the one position (of a CTC model:
frame) where both spellings part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.transformers_types import ModelOutput
from ...inputs.clips.clip import Clip
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...mixing.measures.token_objectives import label_index, label_names
from .contrasts import (
    Contrast,
    contrast_at_deletion,
    contrast_with_runner_up,
    contrast_with_wording,
)
from .generated_tokens import END
from .label_writing import contrast_with_label, label_rows
from .removals import make_reader
from .transcript_errors import TranscriptError

if TYPE_CHECKING:
    from torch import Tensor

    from .generated_tokens import Writing

AGAINST = ("reference", "runner_up", "foil")


@dataclass(frozen=True)
class Choice:
    """A written word (or token), by itself or against something else.

    Parameters
    ----------
    unit : int
        Its place among the units that were written.
    label : str
    tokens : tuple of int
        Its tokens, by their place in ``Writing.tokens``.
    word : int or None
        Index of the written word; None of the end of text.
    probability : float
        Of the word, given what stands before it: the product over its tokens.
    against : {"", "reference", "runner_up", "foil"}
    contrast : Contrast or None
    error : int or None
        Which transcript error this is.
    """

    unit: int
    label: str
    tokens: tuple[int, ...]
    word: int | None
    probability: float
    against: str = ""
    contrast: Contrast | None = None
    error: int | None = None

    @property
    def name(self) -> str:
        return (
            self.label
            if self.contrast is None
            else f"{self.label}: {self.contrast.label} not {self.contrast.foil_label}"
        )


def list_units(writing: Writing, *, by_token: bool) -> list[Choice]:
    """Every written word, and the end of the text; or every token."""
    tokens = writing.tokens
    if by_token:
        groups: list[tuple[str, tuple[int, ...]]] = [
            (token.label, (token_index,)) for token_index, token in enumerate(tokens)
        ]
    else:
        groups = [
            (
                word,
                tuple(
                    token_index for token_index, token in enumerate(tokens) if token.word == index
                ),
            )
            for index, word in enumerate(writing.words)
        ]
        groups += [
            (END, (token_index,))
            for token_index, token in enumerate(tokens)
            if token.word is None and token.label == END
        ]
    return [
        Choice(
            unit,
            label,
            token_indices,
            tokens[token_indices[-1]].word,
            float(np.prod([tokens[token_index].probability for token_index in token_indices])),
        )
        for unit, (label, token_indices) in enumerate(groups)
    ]


def list_choices(
    writing: Writing,
    units: Sequence[Choice],
    errors: Sequence[TranscriptError],
    against: Sequence[str],
) -> list[Choice]:
    """Errors first, then every unit by itself, then what else units are held against."""
    if writing.model.has_label_head:
        return [*units, *_list_label_choices(writing, units[0], against)]
    error_choices = (
        list(_list_error_choices(writing, units, errors)) if "reference" in against else []
    )
    contrast_choices = []
    if "runner_up" in against:
        contrast_choices += [
            _add_contrast(unit, "runner_up", contrast_with_runner_up(writing, unit.tokens))
            for unit in units
        ]
    if "foil" in against:
        contrast_choices += list(_list_foil_choices(writing, units))
    return [*error_choices, *units, *contrast_choices]


def _list_label_choices(writing: Writing, unit: Choice, against: Sequence[str]) -> Iterator[Choice]:
    """A label against the true one (``meta["label"]`` of the item), the runner-up, or named ones."""
    item, labels = writing.decision.item, label_names(writing.model)
    for name in against:
        if name == "runner_up":
            yield _add_contrast(unit, name, contrast_with_runner_up(writing, unit.tokens))
            continue
        other: object = name
        if name in AGAINST and item is not None:
            other = item.meta.get("label") if name == "reference" else item.foil
            if other not in labels:  # a foil is another spelling of a word
                continue
        foil = label_index(writing.model, str(other))
        if foil != writing.tokens[0].id:
            kind = name if name in AGAINST else "foil"
            yield _add_contrast(unit, kind, contrast_with_label(writing, foil))


def _add_contrast(
    unit: Choice, against: str, contrast: Contrast | None, error: int | None = None
) -> Choice:
    return Choice(
        unit.unit, unit.label, unit.tokens, unit.word, unit.probability, against, contrast, error
    )


def _list_error_choices(
    writing: Writing, units: Sequence[Choice], errors: Sequence[TranscriptError]
) -> Iterator[Choice]:
    for number, error in enumerate(errors):
        words = list(writing.words)
        words[error.written : error.written_stop] = (error.said or "").split()
        if writing.by_frame and error.kind == "deletion" and error.onset is not None:
            contrast = contrast_at_deletion(writing, error, words)
        else:
            contrast = contrast_with_wording(writing, words, error.written)
        yield from _choices_at_contrast(
            writing, units, contrast, error.written, "reference", number
        )


def _list_foil_choices(writing: Writing, units: Sequence[Choice]) -> Iterator[Choice]:
    item = writing.decision.item
    foil, target = getattr(item, "foil", None), getattr(item, "target", None)
    if foil is None or not isinstance(target, int):
        return
    target_word = (
        normalize_transcript((item.words or ())[target].text) if isinstance(item, Clip) else None
    )
    for index, word in enumerate(writing.words):
        if target_word is None or normalize_transcript(word) == target_word:
            words = [*writing.words[:index], foil, *writing.words[index + 1 :]]
            yield from _choices_at_contrast(
                writing, units, contrast_with_wording(writing, words, index), index, "foil"
            )


def _choices_at_contrast(
    writing: Writing,
    units: Sequence[Choice],
    contrast: Contrast | None,
    word_index: int,
    against: str,
    error: int | None = None,
) -> Iterator[Choice]:
    """The unit that is chosen where a contrast is, or follows it; none where the model spells both
    wordings alike."""
    if contrast is None:
        return
    holding = [
        unit
        for unit in units
        if any(writing.tokens[t].position == contrast.position for t in unit.tokens)
    ]
    later_units = [unit for unit in units if unit.word is not None and unit.word >= word_index]
    yield _add_contrast(next(iter([*holding, *later_units, *units[-1:]])), against, contrast, error)


@dataclass(frozen=True)
class Readings:
    """What is read of each run for all choices together: each token's log-probability, then each
    contrast.

    Parameters
    ----------
    read : callable
        Output of n runs to Tensor [n, R].
    of_choices, of_probabilities : ndarray [R, C]
        Which readings add up to what explains a choice, and to the log-probability of its word.
    """

    read: Callable[[ModelOutput], Tensor]
    of_choices: np.ndarray
    of_probabilities: np.ndarray

    @classmethod
    def of(cls, writing: Writing, choices: Sequence[Choice]) -> Readings:
        tokens, contrasts = (
            writing.tokens,
            [choice for choice in choices if choice.contrast is not None],
        )
        positions = [
            *(t.position for t in tokens),
            *(c.contrast.position for c in contrasts if c.contrast),
        ]
        ids = [*(t.id for t in tokens), *(c.contrast.id for c in contrasts if c.contrast)]
        foils = [*[None] * len(tokens), *(c.contrast.foil for c in contrasts if c.contrast)]
        of_probabilities = np.zeros((len(ids), len(choices)))
        for column, choice in enumerate(choices):
            of_probabilities[list(choice.tokens), column] = 1
        of_choices = of_probabilities.copy()
        for row, choice in enumerate(contrasts, start=len(tokens)):
            column = next(
                choice_index for choice_index, other in enumerate(choices) if other is choice
            )
            of_choices[:, column] = np.arange(len(ids)) == row
        return cls(make_reader(positions, ids, foils), of_choices, of_probabilities)


def reading_positions(writing: Writing, choice: Choice) -> list[int]:
    """Positions whose logits a choice is read from; of a label those whose states are."""
    if writing.model.has_label_head:
        return label_rows(writing)
    if choice.contrast is not None:
        return [choice.contrast.position]
    return [writing.tokens[token_index].position for token_index in choice.tokens]


def possible_sources(writing: Writing, choices: Sequence[Choice]) -> np.ndarray:
    """Whether each source stands before what is explained, [C, S]; a sound and a text that is read
    always do."""
    return np.array(
        [
            [
                source.side != "written"
                or max(source.source.positions) <= min(reading_positions(writing, choice))
                for source in writing.sources
            ]
            for choice in choices
        ]
    )
