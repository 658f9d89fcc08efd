"""relevance_parts(): a logit taken apart by layer-wise relevance propagation, with an account of
every layer.

In: a view, and which logits. One pass forward by the rules of `measures.lrp`, and one back for each
logit. Out: values of `LogitContributions`: what reaches the states that enter the first layers,
what biases and softmaxes keep on the way, and the sums that enter each layer, which show that
nothing else was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.block import Block
from ...adapters.capture.device_copy import to_host
from ...adapters.capture.forward_pass import Capture
from ...adapters.model import Model
from ..maps.logit_contributions import LogitTerms
from ..measures.relevance_pass import BIAS, NORM_BIAS, SOFTMAX, RelevanceLocation, RelevanceRules
from ..measures.state_replacement import replaced_states
from ..measures.sums_of_logits import read_at_once
from ..measures.token_objectives import Objective
from .logit_parts import members_of
from .view import View

States = dict[tuple[str, int], Tensor]


def relevance_parts(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> list[LogitTerms]:
    """Values of `LogitContributions` for each objective."""
    states, units, values = _run(model, view, inputs, objectives)
    ends, made = [*states.values(), *units.values()], []
    for number, objective in enumerate(objectives):
        again = number < len(objectives) - 1
        gradients = torch.autograd.grad(values[number], ends, retain_graph=again, allow_unused=True)
        reached = [
            torch.zeros_like(x) if g is None else x * g
            for x, g in zip(ends, gradients, strict=True)
        ]
        by_position = [parts[0].sum(dim=-1) for parts in reached[: len(states)]]  # [K] each
        of_units = torch.stack([*reached[len(states) :], values[number]])
        *relevances, numbers = to_host([x.detach() for x in (*by_position, of_units)])
        *absorbed, logit = numbers.tolist()
        at = {
            key: relevance.astype(float) for key, relevance in zip(states, relevances, strict=True)
        }
        made.append(
            _values(model, view, at, dict(zip(units, absorbed, strict=True)), objective, logit)
        )
    return made


def _run(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> tuple[States, dict[RelevanceLocation, Tensor], list[Tensor]]:
    """One pass by the rules: states that enter each layer (for "cross": what it reads), units, and
    each logit."""
    states: States = {}

    def keep(stack: str, layer: int, x: Tensor) -> Tensor:
        is_input = (
            layer == 0 and stack != "cross"
        )  # what lies in front of the first layer is not taken apart
        states[stack, layer] = x.detach().requires_grad_(True) if is_input else x.clone()
        return states[stack, layer]

    def on_block(block: Block) -> None:
        view.units(block)  # which frames of prepared audio are sources is known now

    layers = {name: range(len(stack)) for name, stack in model.stacks.items()}
    read = [stack for name, stack in model.stacks.items() if name != "cross"]
    with (
        torch.enable_grad(),
        replaced_states(model, layers, keep),
        Capture(read, on_block, layers={0}),
        RelevanceRules(model) as rules,
    ):
        output = model.run_with_head(inputs)
        values = [
            objective.function(output)[0] for objective in objectives
        ]  # refuses positions that are not there
    return states, rules.units, values


def _values(
    model: Model,
    view: View,
    at: Mapping[tuple[str, int], np.ndarray],
    absorbed: Mapping[RelevanceLocation, float],
    objective: Objective,
    logit: float,
) -> LogitTerms:
    sides = [name for name in model.stacks if name != "cross"]
    scores, outside = {}, 0.0
    for side in sides:
        relevance = at[side, 0]
        members = members_of(view.sources(side), len(relevance)).numpy().astype(float)
        scores[side] = (relevance @ members)[None]
        outside += float(relevance @ (1 - members.sum(axis=-1)))
    layer_parts = {"outside": np.array([outside])}
    for side in sides:
        for kind in (BIAS, SOFTMAX):
            by_layer = [
                absorbed.get(RelevanceLocation(side, layer, kind), 0.0)
                for layer in range(len(model.stacks[side]))
            ]
            layer_parts[f"{side}_{kind}"] = np.array(by_layer)
    single = {
        "final_norm_bias": absorbed.get(RelevanceLocation(None, None, NORM_BIAS), 0.0),
        "head_bias": absorbed.get(RelevanceLocation(None, None, BIAS), 0.0)
        + _added_to_logits(model, objective),
    }
    for side in set(sides) - {model.capabilities.output_stack}:
        single[f"{side}_norm_bias"] = absorbed.get(RelevanceLocation(side, None, BIAS), 0.0)
    passed = {
        name: np.array([at[name, layer].sum() for layer in range(len(stack))])
        for name, stack in model.stacks.items()
    }
    return {
        "scores": scores,
        "direct": {},
        "layer_parts": layer_parts,
        "single_parts": single,
        "logit": logit,
        "passed": passed,
    }


def _added_to_logits(model: Model, objective: Objective) -> float:
    """What a buffer of BART and its kin adds to a logit, or to the difference of two."""
    added = getattr(model.module, "final_logits_bias", None)
    if not isinstance(added, Tensor):
        return 0.0
    tokens, weights = read_at_once(objective.details)
    return float(added[0, tokens] @ added.new_tensor(weights))
