"""Objectives at one position: a logit, a probability, or the contrast of two tokens.

Objective of a classifier: logit, probability or contrast of a label.

In: a model whose head gives one logit a label (`...ForSequenceClassification`,
`...ForAudioClassification`), and prepared inputs. Out: an `Objective`, as for words (`objectives`).
With z the logits and y a label:

    log_probability = log softmax(z)[y]        probability = softmax(z)[y]        logit = z[y]
    contrast        = z[y] - z[other]          of two labels

By default y is the label that the model itself gives the item as it is, and the other label of a
contrast is the second-likeliest one. The target and the foil of an item are words, and no labels.
The row of a label is that of the
position that the head reads: the first ([CLS]) of an encoder, the last that is no padding of a
causal model. The label of a sound has none: its head reads a mean of several positions (two in AST,
all frames in wav2vec2 models).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.generation.model_inputs import PreparedInputs
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

    @property
    def is_custom(self) -> bool:
        """Whether the function is user-supplied, and so may draw random numbers."""
        return self.details.get("kind") == "given"

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


def label_objective(
    kind: str, names: Sequence[str | int], model: Model, prepared: PreparedInputs
) -> Objective:
    """Make the objective of a classifier.

    `kind` is "auto", "logit", "probability", "log_probability" or "contrast"; "auto" is a contrast
    of two labels, else a logit. `names` are labels as the model's config names or numbers them:
    one, two for a contrast, or none for the label that the model gives (for a contrast: less the
    one that it finds second-likeliest). An InputError says that the model has no such label, or
    that a contrast lacks one; a ModelError, that the model gives one number and no label.
    """
    kind = ("contrast" if len(names) == 2 else "logit") if kind == "auto" else kind
    count = 2 if kind == "contrast" else 1
    if len(names) not in (0, count) or kind == "ctc":
        raise InputError(
            f"{model.name} gives labels: its objectives are 'logit', 'probability', "
            "'log_probability' and 'contrast' (the likeliest label less the second-likeliest), "
            "or one label by name or number, or two for a contrast; found "
            f"{kind!r} of {list(names)}"
        )
    labels = label_names(model)
    classes = [label_index(model, name) for name in names]
    classes = classes or rank_labels(model, prepared)[:count]
    row = label_position(model, prepared)

    def function(output: object) -> Tensor:
        logits = label_logits(output)
        if kind == "contrast":
            return logits[:, classes[0]] - logits[:, classes[1]]
        if kind == "logit":
            return logits[:, classes[0]]
        log_probability = logits.log_softmax(dim=-1)[:, classes[0]]
        return log_probability.exp() if kind == "probability" else log_probability

    label = labels[classes[0]]
    details: JsonObject = {"kind": kind, "label": label, "label_id": classes[0]}
    if row is not None:
        details["row"] = row
    if kind == "contrast":
        details |= {"foil": classes[1], "foil_label": labels[classes[1]]}
    position = row or 0
    return Objective(function, Span(position, position + 1, label, "special"), details)


def label_names(model: Model) -> list[str]:
    """Return the labels of a classifier by index; fewer than two (a regression) are a ModelError."""
    names = [str(model.config.id2label[index]) for index in range(model.config.num_labels)]
    if len(names) < 2:
        raise ModelError(
            f"{model.name}: expected a classifier of two labels or more, found one number (a "
            "regression): give objective= "
            "as a function of the model's output"
        )
    return names


def label_index(model: Model, label: str | int) -> int:
    """Return the index of a label from its name or number; an InputError if the model has no such
    label."""
    labels = label_names(model)
    if isinstance(label, str):
        index = labels.index(label) if label in labels else int(label) if label.isdecimal() else -1
    else:
        index = label
    if not 0 <= index < len(labels):
        raise InputError(
            f"{model.name}: expected a label, or its number from 0, of {', '.join(labels)}; found "
            f"{label!r}"
        )
    return index


def rank_labels(model: Model, prepared: PreparedInputs) -> list[int]:
    """Indices of the labels, from the one that the model finds likeliest."""
    with model.in_use(model.state_dtype), torch.no_grad():
        inputs = inputs_to_device(prepared.inputs, model.device, model.state_dtype)
        logits = label_logits(model.module(**inputs))[0]
        return [int(index) for index in logits.argsort(descending=True, stable=True)]


def label_logits(output: object) -> Tensor:
    """Logits [n, labels] of a classifier's output."""
    logits = getattr(output, "logits", None)
    if logits is None or logits.ndim != 2:
        shape = "none" if logits is None else f"of shape {tuple(logits.shape)}"
        raise ModelError(
            f"expected logits [batch, label] from a classification head, found {shape}"
        )
    label_scores: Tensor = logits
    return label_scores


def answer_logits(output: ModelOutput) -> Tensor:
    """Logits [n, T, V] of tokens; those of labels as of one position, [n, 1, labels]."""
    logits = getattr(output, "logits", None)
    is_label = isinstance(logits, Tensor) and logits.ndim == 2
    return label_logits(output)[:, None] if is_label else token_logits(output)


def label_position(model: Model, prepared: PreparedInputs) -> int | None:
    """Position whose state the head reads; None where it reads a mean of several."""
    pooling = model.capabilities.label_pooling
    if pooling != "last":
        return 0 if pooling == "first" else None
    ids, padding = prepared.text_tokens.ids, getattr(model.text_config, "pad_token_id", None)
    return max(
        (position for position, token in enumerate(ids) if token != padding), default=len(ids) - 1
    )


def check_maps_reach_label(model: Model) -> None:
    """Raise `InputError` if the head of a classifier reads other states than those of the last
    layer at an item's units, which are the rows of its maps."""
    reasons = {
        "mean of all layers": (
            "a weighted sum of all layers, and maps that are rolled out end at the last one: ask "
            "occlusion, shapley, gradient_input or lrp"
        ),
        "added tokens": (
            "tokens that the model adds, which are no units of a map of words: ask occlusion, "
            "shapley, gradient_input, decompx or lrp"
        ),
    }
    reason = reasons.get(model.capabilities.label_pooling)
    if model.has_label_head and reason is not None:
        raise InputError(f"the head of {model.name} reads {reason}")
