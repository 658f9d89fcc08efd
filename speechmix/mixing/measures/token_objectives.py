"""Objectives at one position: a logit, a probability, or the contrast of two tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from ...inputs.sentences.sentence import Sentence


def contrast_or_logit(kind: str, foil: object, clip: Clip | Sentence) -> str:
    """The kind that "auto" stands for; a contrast needs a foil."""
    if kind == "auto":
        return "logit" if foil is None else "contrast"
    if kind == "contrast" and foil is None:
        raise InputError(
            f"{clip.name}: objective='contrast' needs foil=, the target's other spelling"
        )
    return kind


def require_head(model: Model) -> None:
    """Raise ModelError for a model that predicts nothing, or whose table lacks the decoder that does."""
    if not model.has_head:
        raise ModelError(
            f"{model.name} is a {type(model.module).__name__}, without a head that predicts anything, so "
            "there is no scalar to differentiate or explain: load the checkpoint with its head "
            "(...ForMaskedLM, ...ForCausalLM, ...ForConditionalGeneration, ...ForCTC, "
            "...ForSequenceClassification). Of SeamlessM4T, the encoder alone is supported"
        )


def require_target(clip: Clip | Sentence) -> int:
    if not isinstance(clip.target, int):
        raise InputError(
            f"{clip.name}: a gradient needs a number to differentiate, and there is no target: "
            "give target= (and foil= for a "
            "contrast), or objective=(position, token id)"
        )
    return clip.target


@dataclass(frozen=True)
class Objective:
    """A scalar of a model's output.

    `function` maps the output of a batch of n to a Tensor [n]. `span` is the row's label: the
    target word or token, at the position that predicts it (in a CTC model it has its times).
    `details` are kind, position, tokens or texts, for a map's provenance.
    """

    function: Callable[[ModelOutput], Tensor]
    span: Span
    details: JsonObject = field(default_factory=dict)

    def __call__(self, output: ModelOutput) -> Tensor:
        return self.function(output)


def token_logits(output: ModelOutput) -> Tensor:
    """Logits [n, T, V] of a model's output."""
    logits = getattr(output, "logits", None)
    if logits is None or logits.ndim != 3:
        shape = "none" if logits is None else f"of shape {tuple(logits.shape)}"
        raise ModelError(
            "expected logits [batch, position, token] from a language-model or CTC head, found "
            f"{shape}: give objective= as "
            "a function of the model's output"
        )
    token_scores: Tensor = logits
    return token_scores


def token_objective(
    kind: str,
    model: Model,
    position: int,
    token: int,
    foil: int | None = None,
    *,
    label: str = "",
    word: int | None = None,
) -> Objective:
    """Logit, probability, log-probability or contrast (with a foil) of a token at one position."""

    def function(output: ModelOutput) -> Tensor:
        logits = token_logits(output)
        if position >= logits.shape[1] or max(token, foil or 0) >= logits.shape[2]:
            raise InputError(
                f"objective at position {position}, tokens {token} and {foil}: the model gives "
                "logits for "
                f"{logits.shape[1]} positions and {logits.shape[2]} tokens"
            )
        if kind == "probability":
            return logits[:, position].softmax(dim=-1)[:, token]
        if kind == "log_probability":
            return logits[:, position].log_softmax(dim=-1)[:, token]
        return logits[:, position, token] - (logits[:, position, foil] if kind == "contrast" else 0)

    label = label or _token_label(model, token)
    details = {"kind": kind, "position": position, "token": token, "label": label}
    if kind == "contrast" and foil is not None:
        details |= {"foil": foil, "foil_label": _token_label(model, foil)}
    return Objective(function, Span(position, position + 1, label, "token", word), details)


def tokens_objective(
    ids: Sequence[int], positions: Sequence[int], label: str, word: int | None = None
) -> Objective:
    """Log-probability of several tokens, each read at its position."""

    def function(output: ModelOutput) -> Tensor:
        scores = token_logits(output)[:, positions].log_softmax(dim=-1)
        return scores[:, range(len(ids)), ids].sum(dim=-1)

    span = Span(positions[0], positions[-1] + 1, label, "token", word)
    return Objective(
        function,
        span,
        {
            "kind": "log_probability",
            "positions": list(positions),
            "tokens": list(ids),
            "label": label,
        },
    )


def _token_label(model: Model, token: int) -> str:
    return (
        str(token) if model.tokenizer is None else str(model.tokenizer.convert_ids_to_tokens(token))
    )
