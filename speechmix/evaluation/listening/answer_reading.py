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

from ...adapters.generation.decoder_prefix import token_behind_text
from ...adapters.generation.decoder_text import join_to_prefix
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
    end_id : int
        What follows an answer that another one begins with.
    is_open : bool
    """

    options: tuple[str, ...]
    token_ids: tuple[_Prefix, ...]
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
        return cls(options, ids, token_behind_text(model)[0], not item.options)

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

    @property
    def has_earlier_answer(self) -> bool:
        """Whether some token of the answer is read behind others of it."""
        return any(self.branches)

    def context_of(self, prefix: _Prefix) -> int:
        """Index of the context whose run reads a branch."""
        return next(
            index for index, context in enumerate(self.contexts) if context[: len(prefix)] == prefix
        )

    def option_steps(self, option: int) -> list[tuple[_Prefix, int]]:
        """Branches on the way of an option, each with the index of the token that it takes there."""
        ids = (*self.token_ids[option], self.end_id)
        return [
            (prefix, tokens.index(ids[len(prefix)]))
            for prefix, tokens in self.branches.items()
            if self.token_ids[option][: len(prefix)] == prefix
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
        at_branch = {}
        for prefix, tokens in self.branches.items():
            rows = log_probs[self.context_of(prefix)]
            values = rows[:, len(prefix) if with_earlier else 0, tokens]
            at_branch[prefix] = values if self.is_open else values.log_softmax(dim=-1)
        columns = [
            torch.stack(
                [at_branch[prefix][:, index] for prefix, index in self.option_steps(option)]
            ).sum(dim=0)
            for option in range(len(self.options))
        ]
        return torch.stack(columns, dim=1)

    def option_mass(self, log_probs: Sequence[Tensor]) -> float:
        """Probability that the first run goes on as one of the options where they first part; NaN for an open answer."""
        if self.is_open:
            return float("nan")
        prefix = min(self.branches, key=len)
        row = log_probs[self.context_of(prefix)][0, len(prefix), self.branches[prefix]]
        return float(row.logsumexp(dim=-1).exp())

    def preferred(self, model: Model, log_probs: Sequence[Tensor]) -> str:
        """Text that the first run prefers: the likeliest option; of an open question the likeliest tokens, up to the
        first that is not the answer's.
        """
        if not self.is_open:
            return self.options[int(self.log_probabilities(log_probs)[0].argmax())]
        [ids], written = self.token_ids, list[int]()
        for depth, token in enumerate(ids):
            written.append(int(log_probs[0][0, depth].argmax()))
            if written[-1] != token:
                break
        else:
            return self.options[0]
        return str(model.tokenizer.decode(written)).strip()

    def is_right(self, log_probs: Sequence[Tensor], option: int) -> Tensor:
        """Whether each of R runs prefers an option [R]; an open answer, whether greedy decoding would write it."""
        if not self.is_open:
            return self.log_probabilities(log_probs).argmax(dim=1) == option
        ids = torch.tensor(self.token_ids[0])
        return (log_probs[0][:, : len(ids)].argmax(dim=-1) == ids).all(dim=1)

    def log_odds(self, log_probs: Sequence[Tensor], option: int) -> Tensor:
        """Return the log-odds of an option among all of them [R]; of an open answer its log-probability."""
        values = self.log_probabilities(log_probs)
        if self.is_open:
            return values[:, 0]
        others = np.arange(len(self.options)) != option
        return values[:, option] - values[:, others].logsumexp(dim=-1)


def _tokenize_answer(model: Model, text: str) -> _Prefix:
    tokens = model.tokenizer(join_to_prefix(model, text.strip()), add_special_tokens=False)
    return tuple(int(token) for token in tokens["input_ids"])
