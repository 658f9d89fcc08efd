"""Log-probabilities of the words of a window, with and without each source.

Out of a reader (`decoder_reader`, `readers`): `WordReadings`, one number for each word and
removal. A word's log-probability is the sum over its tokens, each given what the model wrote before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ..explain.generated_tokens import Draft
    from .windows import DecodedWindow

# What is removed. All sound is replaced twice: by digital silence and by white noise.
INTACT, SILENCE, NOISE = "intact", "sound replaced by silence", "sound replaced by noise"
NO_PADDING, NO_PROMPT, NO_PREVIOUS = "no padding", "no prompt", "no text of the window before"
NOISE_LEVEL = 0.01  # root mean square of the white noise; full scale is 1


def make_fill(fill: str, count: int) -> np.ndarray:
    """Return the silence or the white noise that replaces a sound, [samples]."""
    if fill == SILENCE:
        return np.zeros(count, dtype=np.float32)
    return np.random.default_rng(0).normal(0, NOISE_LEVEL, count).astype(np.float32)


@dataclass(frozen=True, eq=False)
class WordReadings:
    """What was read of the words of one window.

    Parameters
    ----------
    window : DecodedWindow
    words : tuple of str [W]
    intervals : tuple of (float, float) or None [W]
        Seconds from the start of the recording; None where the model's times are not known.
    log_probabilities : dict of str to ndarray [W]
        For the intact input and for each removal that the model has, in nats; NaN where it does not apply.
    lowest : ndarray [W]
        Log-probability of the word's least likely token.
    runners_up : tuple of (str, float) [W]
        The likeliest other token where the word's own was least likely, and its probability.
    token_counts : ndarray [W]
    without_prompt : tuple of str [W]
        The token that is likeliest in a word's place without the prompt (or the text of the window before), where that is
        another; empty otherwise.
    """

    window: DecodedWindow
    words: tuple[str, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    log_probabilities: Mapping[str, np.ndarray]
    lowest: np.ndarray
    runners_up: tuple[tuple[str, float], ...]
    token_counts: np.ndarray
    without_prompt: tuple[str, ...] = ()

    def effect(self, removal: str) -> np.ndarray:
        """Return what each word's log-probability loses by a removal, [W] in nats; NaN if it was not made."""
        missing = np.full(len(self.words), np.nan)
        changed = self.log_probabilities.get(removal, missing)
        return np.asarray(self.log_probabilities[INTACT] - changed)


class TokenTable:
    """The tokens of a window's words: where each was chosen, and the word that it belongs to.

    Parameters
    ----------
    drafts : sequence of Draft
        Tokens of the text; those of no word are left out.
    """

    def __init__(self, drafts: Sequence[Draft], words: Sequence[str]):
        in_words = [draft for draft in drafts if draft.word is not None]
        self.words = tuple(words)
        self.ids = np.array([draft.id for draft in in_words], dtype=int)
        self.rows = np.array([draft.position for draft in in_words], dtype=int)
        self.owners = np.array([draft.word for draft in in_words], dtype=int)

    def of_word(self, word: int) -> np.ndarray:
        """Return the indices of a word's tokens."""
        return np.flatnonzero(self.owners == word)

    def sum_by_word(self, token_values: np.ndarray) -> np.ndarray:
        """Sum values [..., tokens] over the tokens of each word, [..., W]."""
        sums = np.zeros((*token_values.shape[:-1], len(self.words)))
        for word in range(len(self.words)):
            sums[..., word] = token_values[..., self.owners == word].sum(axis=-1)
        return sums

    def token_log_probabilities(self, log_probabilities: Tensor) -> np.ndarray:
        """Read the tokens [..., tokens] off log-probabilities [..., T, V]."""
        values: np.ndarray = log_probabilities[..., self.rows, self.ids].cpu().numpy()
        return values

    def other_choices(self, model: Model, log_probabilities: Tensor) -> tuple[str, ...]:
        """Return for each word the likeliest token [T, V] where its own tokens are not the likeliest; "" elsewhere."""
        from ..explain.generated_tokens import token_label

        choices = []
        for word in range(len(self.words)):
            others = [
                int(best)
                for token in np.flatnonzero(self.owners == word)
                if (best := log_probabilities[self.rows[token]].argmax()) != self.ids[token]
            ]
            choices.append(token_label(model, others[0]) if others else "")
        return tuple(choices)

    def runners_up(
        self, model: Model, log_probabilities: Tensor
    ) -> tuple[np.ndarray, tuple[tuple[str, float], ...]]:
        """Return the lowest log-probability of each word's tokens, and what else could be there."""
        from ..explain.generated_tokens import token_label

        token_log_probs = self.token_log_probabilities(log_probabilities)
        lowest, others = [], []
        for word in range(len(self.words)):
            tokens = np.flatnonzero(self.owners == word)
            token = tokens[int(np.argmin(token_log_probs[tokens]))]
            row = log_probabilities[self.rows[token]].clone()
            row[self.ids[token]] = -float("inf")
            best = int(row.argmax())
            lowest.append(float(token_log_probs[token]))
            others.append((token_label(model, best), round(float(row[best].exp()), 6)))
        return np.array(lowest), tuple(others)
