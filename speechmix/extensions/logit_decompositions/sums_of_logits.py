"""Split a margin into logits that are read at one position each.

In: an `Objective`, and the model's logits on the item. Out: objectives of kind "logit", "contrast"
or "logits" (weighted, at one position), whose claims are added up.

    logit, contrast           itself
    log p of tokens           z_p[t] of each token: what softmax takes off is nobody's; of a label likewise
    of a whole text (CTC)     sum over frames p and letters v of w_p[v] z_p[v], with the slopes w of the number held as they are

With q the probability of each path that spells a text, log p(text) = E_q[log p(path)] + entropy of
q, and the slopes of a text say how often q stands at v in frame p. So log p(text) - log p(other
text) = sum of w z + the difference of both entropies, exactly: q is held, as attention weights and
the scale of norms are, and that difference is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...files.json_files import JsonObject
from ...mixing.measures.token_objectives import (
    Objective,
    label_logits,
    token_logits,
    token_objective,
)

if TYPE_CHECKING:
    from ...adapters.model import Model

_MIN_SLOPE_SHARE = 1e-4  # of the sum of all slopes: frames that have less are left out


def split_into_logits(objective: Objective, model: Model, logits: Tensor) -> list[Objective]:
    """Objectives at one position each, whose sum stands for a number.

    Parameters
    ----------
    objective : Objective
    model : Model
    logits : Tensor [1, T, V] or [1, labels]
        Of the item, in the precision that slopes are wanted in.

    Raises
    ------
    InputError
        If the number does not depend on logits at any position.
    """
    details = objective.details
    outputs = {"position", "row", "label_id"}
    if details["kind"] in ("logit", "contrast", "logits") and details.keys() & outputs:
        return [objective]
    if "label_id" in details:
        return [_label_logit(objective)]
    if "tokens" in details:
        return [
            token_objective("logit", model, *pair)
            for pair in zip(details["positions"], details["tokens"], strict=True)
        ]
    if "token" in details:
        return [token_objective("logit", model, details["position"], details["token"])]
    return _slope_weighted_logits(objective, logits)


def logit_weights(details: JsonObject) -> tuple[list[int], list[float]]:
    """Which logits at its position make up a number of kind "logit", "contrast" or "logits", and
    with which weights.

    Examples
    --------
    >>> logit_weights({"kind": "contrast", "position": 3, "token": 7, "foil": 9})
    ([7, 9], [1.0, -1.0])
    """
    if details["kind"] == "logits":
        return list(details["tokens"]), list(details["weights"])
    token_id = details["token"] if "token" in details else details["label_id"]
    return ([token_id, details["foil"]], [1.0, -1.0]) if "foil" in details else ([token_id], [1.0])


def _label_logit(objective: Objective) -> Objective:
    label = objective.details["label_id"]
    details = {**objective.details, "kind": "logit"}
    return Objective(lambda output: label_logits(output)[:, label], objective.span, details)


def _slope_weighted_logits(objective: Objective, logits: Tensor) -> list[Objective]:
    from transformers.modeling_outputs import CausalLMOutput

    with torch.enable_grad():
        leaf = logits.detach().requires_grad_(True)
        value = objective.function(CausalLMOutput(logits=leaf))
        (slopes,) = torch.autograd.grad(value.sum(), leaf)
    sizes = slopes[0].abs().sum(dim=-1)
    frames = (sizes > _MIN_SLOPE_SHARE * sizes.sum()).nonzero().flatten().tolist()
    if not frames:
        raise InputError(
            "no logit makes a difference to "
            f"{objective.details.get('label', 'what is explained')!r}"
        )
    return [_weighted_logits(objective, frame, slopes[0, frame].tolist()) for frame in frames]


def _weighted_logits(objective: Objective, position: int, slopes: Sequence[float]) -> Objective:
    """Sum of the logits at one position, each times its slope."""
    tokens = [token for token, slope in enumerate(slopes) if slope]
    weights = [slopes[token] for token in tokens]

    def function(output: ModelOutput) -> Tensor:
        logits = token_logits(output)[:, position, tokens]
        return (logits * logits.new_tensor(weights)).sum(dim=-1)

    label_details = {
        name: objective.details[name] for name in ("label",) if name in objective.details
    }
    details = {
        "kind": "logits",
        "position": position,
        "tokens": tuple(tokens),
        "weights": tuple(weights),
        **label_details,
    }
    return Objective(function, objective.span, details)
