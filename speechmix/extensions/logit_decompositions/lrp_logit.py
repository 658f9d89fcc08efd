"""Decompose a logit by layer-wise relevance propagation.

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

from ...adapters.capture.device_copy import to_host
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...mixing.maps.logit_contributions import LogitTerms
from ...mixing.measures.gradient_pass import replaced_states
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.item_view import View
from .logit_decomposition import source_membership
from .relevance_pass import BIAS, NORM_BIAS, SOFTMAX, RelevanceLocation, RelevanceRules
from .sums_of_logits import logit_weights

States = dict[tuple[str, int], Tensor]


def decompose_by_lrp(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> list[LogitTerms]:
    """Values of `LogitContributions` for each objective."""
    states, units, logits = _run_with_rules(model, view, inputs, objectives)
    graph_inputs, terms = [*states.values(), *units.values()], []
    for index, objective in enumerate(objectives):
        retain_graph = index < len(objectives) - 1
        gradients = torch.autograd.grad(
            logits[index], graph_inputs, retain_graph=retain_graph, allow_unused=True
        )
        relevance_tensors = [
            torch.zeros_like(x) if g is None else x * g
            for x, g in zip(graph_inputs, gradients, strict=True)
        ]
        by_position = [
            layer_relevance[0].sum(dim=-1) for layer_relevance in relevance_tensors[: len(states)]
        ]  # [K] each
        unit_values = torch.stack([*relevance_tensors[len(states) :], logits[index]])
        *relevances, numbers = to_host([x.detach() for x in (*by_position, unit_values)])
        *unit_relevance, logit = numbers.tolist()
        state_relevance = {
            key: relevance.astype(float) for key, relevance in zip(states, relevances, strict=True)
        }
        terms.append(
            _collect_terms(
                model,
                view,
                state_relevance,
                dict(zip(units, unit_relevance, strict=True)),
                objective,
                logit,
            )
        )
    return terms


def _run_with_rules(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> tuple[States, dict[RelevanceLocation, Tensor], list[Tensor]]:
    """One pass by the rules: states that enter each layer (for "cross": what it reads), units, and
    each logit."""
    states: States = {}

    def store_state(stack: str, layer: int, x: Tensor) -> Tensor:
        is_input = (
            layer == 0 and stack != "cross"
        )  # what lies in front of the first layer is not taken apart
        states[stack, layer] = x.detach().requires_grad_(True) if is_input else x.clone()
        return states[stack, layer]

    def on_block(block: Block) -> None:
        view.units(block)  # which frames of prepared audio are sources is known now

    layers = {name: range(len(stack)) for name, stack in model.stacks.items()}
    captured_stacks = [stack for name, stack in model.stacks.items() if name != "cross"]
    with (
        torch.enable_grad(),
        replaced_states(model, layers, store_state),
        Capture(captured_stacks, on_block, layers={0}),
        RelevanceRules(model) as rules,
    ):
        output = model.run_with_head(inputs)
        logits = [
            objective.function(output)[0] for objective in objectives
        ]  # refuses positions that are not there
    return states, rules.units, logits


def _collect_terms(
    model: Model,
    view: View,
    state_relevance: Mapping[tuple[str, int], np.ndarray],
    unit_relevance: Mapping[RelevanceLocation, float],
    objective: Objective,
    logit: float,
) -> LogitTerms:
    stack_names = [name for name in model.stacks if name != "cross"]
    scores, outside = {}, 0.0
    for stack_name in stack_names:
        relevance = state_relevance[stack_name, 0]
        members = source_membership(view.sources(stack_name), len(relevance)).numpy().astype(float)
        scores[stack_name] = (relevance @ members)[None]
        outside += float(relevance @ (1 - members.sum(axis=-1)))
    layer_parts = {"outside": np.array([outside])}
    for stack_name in stack_names:
        for kind in (BIAS, SOFTMAX):
            by_layer = [
                unit_relevance.get(RelevanceLocation(stack_name, layer, kind), 0.0)
                for layer in range(len(model.stacks[stack_name]))
            ]
            layer_parts[f"{stack_name}_{kind}"] = np.array(by_layer)
    single_terms = {
        "final_norm_bias": unit_relevance.get(RelevanceLocation(None, None, NORM_BIAS), 0.0),
        "head_bias": unit_relevance.get(RelevanceLocation(None, None, BIAS), 0.0)
        + _logit_buffer_bias(model, objective),
    }
    for stack_name in set(stack_names) - {model.capabilities.output_stack}:
        single_terms[f"{stack_name}_norm_bias"] = unit_relevance.get(
            RelevanceLocation(stack_name, None, BIAS), 0.0
        )
    layer_sums = {
        name: np.array([state_relevance[name, layer].sum() for layer in range(len(stack))])
        for name, stack in model.stacks.items()
    }
    return {
        "scores": scores,
        "direct": {},
        "layer_parts": layer_parts,
        "single_parts": single_terms,
        "logit": logit,
        "passed": layer_sums,
    }


def _logit_buffer_bias(model: Model, objective: Objective) -> float:
    """What a buffer of BART and its kin adds to a logit, or to the difference of two."""
    bias = getattr(model.module, "final_logits_bias", None)
    if not isinstance(bias, Tensor):
        return 0.0
    tokens, weights = logit_weights(objective.details)
    return float(bias[0, tokens] @ bias.new_tensor(weights))
