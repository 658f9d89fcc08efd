"""Objective of a classifier: logit, probability or contrast of a label.

In: a model whose head gives one logit a label (`...ForSequenceClassification`,
`...ForAudioClassification`), and prepared inputs. Out: an `Objective`, as for words (`objectives`).
With z the logits and y a label:

    log_probability = log softmax(z)[y]        probability = softmax(z)[y]        logit = z[y]
    contrast        = z[y] - z[other]          of two labels

By default y is the label that the model itself gives the text as it is. Its row is that of the
position that the head reads: the first ([CLS]) of an encoder, the last that is no padding of a
causal model. The label of a sound has none: its head reads a mean of several positions (two in AST,
all frames in wav2vec2 models).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...inputs.words.spans import Span
from .token_objectives import Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...adapters.generation.model_inputs import PreparedInputs
    from ...adapters.model import Model


def label_objective(
    kind: str, names: Sequence[str], model: Model, prepared: PreparedInputs
) -> Objective:
    """Objective of a classifier.

    Parameters
    ----------
    kind : str
        "auto", "logit", "probability", "log_probability" or "contrast"; "auto" is a contrast of two
        labels, else a logit.
    names : sequence of str
        Labels as the model's config names them: one, two for a contrast, or none for the label that
        the model gives.
    model : Model
    prepared : PreparedInputs

    Raises
    ------
    InputError
        For a label that the model does not have, or a contrast without two of them.
    ModelError
        If the model gives one number, and no label.
    """
    labels = label_names(model)
    unknown = [name for name in names if name not in labels]
    if unknown or len(names) > 2:
        raise InputError(
            f"{model.name}: expected one label, or two for a contrast, of {', '.join(labels)}; "
            f"found {names!r}"
        )
    kind = ("contrast" if len(names) == 2 else "logit") if kind == "auto" else kind
    if (kind == "contrast") != (len(names) == 2) or kind == "ctc":
        raise InputError(
            f"{model.name} gives labels: its objectives are 'logit', 'probability' and "
            "'log_probability' of one label, or two "
            f"labels for a contrast; found {kind!r} of {list(names)}"
        )
    classes = [labels.index(name) for name in names] or [predict_label(model, prepared)]
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
    """Labels of a classifier, by their index.

    Raises
    ------
    ModelError
        If it has fewer than two (a regression).
    """
    names = [str(model.config.id2label[index]) for index in range(model.config.num_labels)]
    if len(names) < 2:
        raise ModelError(
            f"{model.name}: expected a classifier of two labels or more, found one number (a "
            "regression): give objective= "
            "as a function of the model's output"
        )
    return names


def predict_label(model: Model, prepared: PreparedInputs) -> int:
    """Index of the label that the model finds likeliest."""
    with model.in_use(model.state_dtype), torch.no_grad():
        inputs = {name: tensor.to(model.device) for name, tensor in prepared.inputs.items()}
        return int(label_logits(model.module(**inputs))[0].argmax())


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


def label_position(model: Model, prepared: PreparedInputs) -> int | None:
    """Position whose state the head reads; None where it reads a mean of several."""
    pooling = model.capabilities.label_pooling
    if pooling != "last":
        return 0 if pooling == "first" else None
    ids, padding = prepared.text_tokens.ids, getattr(model.text_config, "pad_token_id", None)
    return max(
        (position for position, token in enumerate(ids) if token != padding), default=len(ids) - 1
    )
