"""Compute ALTI-Logit in two forward passes.

In: a `Model` with its head, a prepared view, objectives that are logits. Out: values of
`LogitContributions` for each. The second pass need not be its own: `AltiLogitReader` is told of the
blocks of any pass over the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import Norm, Stack
from ...adapters.binding.output_head import head_projection, output_head
from ...adapters.capture.device_copy import to_host
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.model_use import reuse_encoder_states
from ...adapters.model import Model
from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ...mixing.maps.logit_contributions import LogitTerms
from ...mixing.measures.measure import Units, mixing_between_layers
from ...mixing.measures.token_objectives import Objective, token_logits
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest
from .logit_decomposition import LogitDecomposition
from .sums_of_logits import logit_weights


def prenorm_output_stack(model: Model) -> Stack:
    """The stack whose last states the head reads.

    Raises
    ------
    InputError
        If it is post-norm, or made of Conformer layers: sums are normed, so the last state is no
        sum of what layers added.
    """
    stack = model.stacks[model.capabilities.output_stack]
    if stack.spec.norm_order != "pre":
        raise InputError(
            "alti_logit is defined for pre-norm stacks, where the last state is the sum of what "
            "the layers added; the "
            f"{stack.name} of {model.name} is post-norm. Use speechmix.knock_out, or "
            "mix(measures='gradient_input')"
        )
    if stack.spec.convolution or stack.spec.closing_norm:
        raise InputError(
            "alti_logit is defined for layers that add to a residual stream and leave it as it is; "
            "those of the "
            f"{stack.name} of {model.name} are Conformers', with a norm behind each. Use "
            "speechmix.knock_out, or "
            "mix(measures='gradient_input')"
        )
    if stack.layers[0].attention.is_rerun:
        raise InputError(
            f"alti_logit: what the layers of {model.name} add to their residual stream is not known. Use "
            "speechmix.knock_out, or mix(measures='gradient_input')"
        )
    if between := mixing_between_layers(model):
        raise InputError(
            f"alti_logit: {between}. Use speechmix.knock_out, or mix(measures='gradient_input')"
        )
    return stack


def decompose_by_alti_logit(
    model: Model,
    view: View,
    request: MixRequest,
    inputs: Mapping[str, Tensor],
    objectives: Sequence[Objective],
    *,
    reference: bool,
) -> list[LogitTerms]:
    """ALTI-Logit: values of `LogitContributions` for each objective."""
    reader = AltiLogitReader(model, view, request, inputs, objectives, {}, reference=reference)
    captured_stacks = [model.stacks[name] for name in model.capabilities.stacks_to_output]
    with Capture(captured_stacks, reader.on_block):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return reader.values()


class AltiLogitReader:
    """Parts of logits taken while a pass runs, which may be that of something else too.

    Parameters
    ----------
    model : Model
        In use, in the precision of `inputs`.
    view : View
        PreparedInputs.
    request : MixRequest
    inputs : dict of str to Tensor
    objectives : sequence of Objective [P]
    units : dict of stack to Units
        Of the stacks that someone else has seen in the pass, who is told of a block first.
    reference : bool
        As in `speechmix.logit_contributions`.
    """

    def __init__(
        self,
        model: Model,
        view: View,
        request: MixRequest,
        inputs: Mapping[str, Tensor],
        objectives: Sequence[Objective],
        units: Mapping[str, Units],
        *,
        reference: bool = False,
    ):
        stack = prenorm_output_stack(model)
        self._objective_count = len(objectives)
        self._readout = _compute_readout(model, stack, inputs, view.prepared.audio_hash, objectives)
        rows, logit_directions = self._readout.rows, self._readout.logit_directions
        self._decomposition = LogitDecomposition(
            view, request, stack, rows, logit_directions, reference=reference, known_units=units
        )
        self.on_block = self._decomposition.on_block

    def values(self) -> list[LogitTerms]:
        """Values of `LogitContributions` for each objective, behind the pass."""
        decomposition, readout = self._decomposition, self._readout
        kinds = {
            "scores": decomposition.input_contributions,
            "direct": decomposition.direct_contributions,
            "layer_parts": decomposition.layer_terms,
        }
        keys = [(kind, name) for kind, values in kinds.items() for name in values]
        single_tensors = [
            decomposition.embedding_term,
            readout.norm_bias,
            readout.head_bias,
            readout.logits,
        ]
        *arrays, single_values = to_host(
            [*(torch.stack(kinds[kind][name]) for kind, name in keys), torch.stack(single_tensors)]
        )
        terms = []
        for index in range(self._objective_count):
            kind_terms: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in kinds}
            for (kind, name), array in zip(keys, arrays, strict=True):
                kind_terms[kind][name] = array[:, index].astype(float)
            embedding, norm_bias, head_bias, logit = single_values[:, index].tolist()
            single_terms = {
                "embedding": embedding,
                "final_norm_bias": norm_bias,
                "head_bias": head_bias,
            }
            terms.append(
                LogitTerms(
                    scores=kind_terms["scores"],
                    direct=kind_terms["direct"],
                    layer_parts=kind_terms["layer_parts"],
                    single_parts=single_terms,
                    logit=logit,
                )
            )
        return terms


@dataclass(frozen=True)
class Readout:
    """What the first pass tells: for each of P objectives its position, reader and logit.

    Parameters
    ----------
    rows : Tensor [P]
    logit_directions : Tensor [P, D]
        What reads each logit off the residual stream, in front of the final norm.
    logits, norm_bias, head_bias : Tensor [P]
    """

    rows: Tensor
    logit_directions: Tensor
    logits: Tensor
    norm_bias: Tensor
    head_bias: Tensor


def _compute_readout(
    model: Model,
    stack: Stack,
    inputs: Mapping[str, Tensor],
    sound: str | None,
    objectives: Sequence[Objective],
) -> Readout:
    """Run the model with its head, and see what enters the final norm; a sound that is remembered
    is not encoded again."""
    norm_inputs: list[Tensor] = []
    norm = stack.final_norm
    if norm is None:
        raise InputError(
            f"{model.name}: the table of its {stack.name} names no final norm, through which "
            "logits are read"
        )
    norm_outputs: list[Tensor] = []
    head_inputs: list[Tensor] = []

    def store_norm_states(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        norm_inputs.append(args[0])
        norm_outputs.append(output)

    hooks = [norm.register_forward_hook(store_norm_states)]
    projection = head_projection(model)
    if projection is not None:
        hooks.append(
            projection.register_forward_pre_hook(lambda module, args: head_inputs.append(args[0]))
        )
    try:
        inputs = reuse_encoder_states(model, inputs, sound)
        output = model.run_with_head(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    head, length = output_head(model), token_logits(output).shape[1]
    values = torch.cat(
        [objective.function(output) for objective in objectives]
    )  # refuses positions that are not there
    if not norm_inputs or norm_inputs[-1].shape[1] != length:
        raise ModelError(
            f"{model.name}: its logits are not made of the states that pass the final norm of the "
            f"{stack.name}"
        )
    objective_details = [objective.details for objective in objectives]
    rows = torch.tensor(
        [details["position"] for details in objective_details], device=values.device
    )
    head_scale = _head_input_scale(model, norm_outputs[-1], head_inputs)
    weights = head_scale * torch.stack(
        [_sum_token_rows(head.weight, details) for details in objective_details]
    )
    zero_bias = torch.zeros_like(values)
    head_bias = (
        zero_bias
        if head.bias is None
        else torch.stack([_sum_token_rows(head.bias, details) for details in objective_details])
    )
    final_norm = Norm(norm, norm_inputs[-1][0, rows])
    return Readout(
        rows, final_norm.pull_back(weights), values, weights @ final_norm.bias, head_bias
    )


def _head_input_scale(model: Model, norm_output: Tensor, head_inputs: Sequence[Tensor]) -> float:
    """The number that states are multiplied by between final norm and head; 1 but for a T5 whose
    head is tied.

    Raises
    ------
    InputError
        If the head reads something else than a multiple of the normed states.
    """
    if not head_inputs:
        return 1.0
    head_input = head_inputs[-1]
    if head_input.shape == norm_output.shape:
        scale = float((head_input * norm_output).sum() / (norm_output * norm_output).sum())
        if (head_input - scale * norm_output).abs().max() <= 100 * torch.finfo(
            norm_output.dtype
        ).eps * head_input.abs().max():
            return scale
    raise InputError(
        f"alti_logit: {type(model.module).__name__} transforms the states between its final norm "
        "and its linear head (as the "
        "prediction head of a masked model does), so its logits are no sum of what the layers "
        "added. Use measure='lrp', or "
        "mix(measures='gradient_input')"
    )


def _sum_token_rows(token_rows: Tensor, details: JsonObject) -> Tensor:
    """Rows [V, ...] of the tokens that a number is made of, added up with their weights."""
    tokens, weights = logit_weights(details)
    weighted_sum: Tensor = torch.tensordot(
        token_rows.new_tensor(weights), token_rows[tokens], dims=1
    )
    return weighted_sum
