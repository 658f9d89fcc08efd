"""Read which of some answers a model prefers, in one run wherever the answers part in one place.

In: the answers of an item as tokens. Out: `AnswerReading`: the tokens to feed behind the prompt, and the probability of
each answer from the logits. Answers are told apart where their tokens first differ: at such a branch the probability of
a token is its share among the tokens of all options there, and that of an option is the product over its branches. An
open answer is read token by token, among all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.generation.decoder_text import join_to_prefix, token_behind_text
from ...errors import InputError

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .items import ListeningItem

_Prefix = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AnswerReading:
    """How the answers of an item are read off logits.

    Parameters
    ----------
    options : tuple of str
        The open answer alone, of an open question.
    token_ids : tuple of tuple of int
        Of each option.
    right : int
        Index of the right one.
    end_id : int
        What follows an answer that another one begins with.
    is_open : bool
    """

    options: tuple[str, ...]
    token_ids: tuple[_Prefix, ...]
    right: int
    end_id: int
    is_open: bool

    @classmethod
    def of_item(cls, model: Model, item: ListeningItem) -> AnswerReading:
        """Tokenize the answers of an item.

        Raises
        ------
        InputError
            If two options have the same tokens, or an answer has none.
        """
        options = item.options or (item.answer,)
        ids = tuple(_tokenize_answer(model, option) for option in options)
        for index, sequence in enumerate(ids):
            if not sequence or sequence in ids[:index]:
                raise InputError(
                    f"{item.name}: the tokenizer of {model.name} cannot tell the option {options[index]!r} from "
                    f"{'nothing' if not sequence else repr(options[ids.index(sequence)])}: write the options as the "
                    "model writes them"
                )
        right = options.index(item.answer)
        return cls(options, ids, right, token_behind_text(model)[0], not item.options)

    @cached_property
    def branches(self) -> dict[_Prefix, list[int]]:
        """Tokens that may follow, by the tokens before them, wherever the answers part; of an open answer each token."""
        if self.is_open:
            [ids] = self.token_ids
            return {ids[:depth]: [token] for depth, token in enumerate(ids)}
        following: dict[_Prefix, dict[int, None]] = {}
        for ids in self.token_ids:
            for depth, token in enumerate((*ids, self.end_id)):
                following.setdefault(ids[:depth], {})[token] = None
        return {prefix: list(tokens) for prefix, tokens in following.items() if len(tokens) > 1}

    @cached_property
    def contexts(self) -> list[_Prefix]:
        """Tokens of the answer that are fed, a run for each; one that another begins with needs no run of its own."""
        return [
            prefix
            for prefix in self.branches
            if not any(
                other != prefix and other[: len(prefix)] == prefix for other in self.branches
            )
        ]

    def log_probabilities(
        self, log_probs: Sequence[Tensor], *, with_earlier: bool = True
    ) -> Tensor:
        """Return the log-probability of each option in each of R runs.

        Parameters
        ----------
        log_probs : sequence of Tensor [R, depths, V]
            For each context log-probabilities of the next token behind the prompt, and behind each token of the context.
        with_earlier : bool
            False: each token is read behind the prompt, as if the answer had no earlier tokens.

        Returns
        -------
        Tensor [R, options]
            In nats; among the options, or among all tokens for an open answer.
        """
        by_option: list[list[Tensor]] = [[] for _ in self.options]
        for prefix, tokens in self.branches.items():
            values = self._read_branch(log_probs, prefix, len(prefix) if with_earlier else 0)
            values = values if self.is_open else values.log_softmax(dim=-1)
            for ids, steps in zip(self.token_ids, by_option, strict=True):
                if ids[: len(prefix)] == prefix:
                    next_id = (*ids, self.end_id)[len(prefix)]
                    steps.append(values[:, tokens.index(next_id)])
        return torch.stack([torch.stack(steps).sum(dim=0) for steps in by_option], dim=1)

    def option_mass(self, log_probs: Sequence[Tensor]) -> float:
        """Probability that the first run goes on as one of the options where they first part; NaN for an open answer."""
        if self.is_open:
            return float("nan")
        prefix = min(self.branches, key=len)
        return float(self._read_branch(log_probs, prefix, len(prefix))[0].logsumexp(dim=-1).exp())

    def _read_branch(self, log_probs: Sequence[Tensor], prefix: _Prefix, depth: int) -> Tensor:
        """Log-probabilities of the tokens of a branch [R, tokens], in the run whose context holds it."""
        index = next(
            index for index, context in enumerate(self.contexts) if context[: len(prefix)] == prefix
        )
        return log_probs[index][:, depth, self.branches[prefix]]

    def preferred(self, model: Model, log_probs: Sequence[Tensor]) -> str:
        """Text that the first run prefers: the likeliest option; of an open question the likeliest tokens, up to the
        first that is not the answer's.
        """
        if not self.is_open:
            return self.options[int(self.log_probabilities(log_probs)[0].argmax())]
        if bool(self.is_right(log_probs)[0]):
            return self.options[0]
        [ids] = self.token_ids
        likeliest = log_probs[0][0, : len(ids)].argmax(dim=-1).tolist()
        depth = next(depth for depth, token in enumerate(ids) if likeliest[depth] != token)
        return str(model.tokenizer.decode(likeliest[: depth + 1])).strip()

    def is_right(self, log_probs: Sequence[Tensor]) -> Tensor:
        """Whether each of R runs prefers the right option [R]; an open answer, whether greedy decoding would write it."""
        if not self.is_open:
            return self.log_probabilities(log_probs).argmax(dim=1) == self.right
        ids = torch.tensor(self.token_ids[0])
        return (log_probs[0][:, : len(ids)].argmax(dim=-1) == ids).all(dim=1)

    def log_odds(self, log_probs: Sequence[Tensor]) -> Tensor:
        """Return the log-odds of the right option against the others [R]; of an open answer its log-probability."""
        values = self.log_probabilities(log_probs)
        if self.is_open:
            return values[:, 0]
        others = np.arange(len(self.options)) != self.right
        return values[:, self.right] - values[:, others].logsumexp(dim=-1)


def _tokenize_answer(model: Model, text: str) -> _Prefix:
    tokens = model.tokenizer(join_to_prefix(model, text.strip()), add_special_tokens=False)
    return tuple(int(token) for token in tokens["input_ids"])
