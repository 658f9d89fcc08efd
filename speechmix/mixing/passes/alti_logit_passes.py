"""ALTI-Logit's two passes: one tells what is read, in the other attention blocks are taken apart
while it runs.

In: a `Model` with its head, a prepared view, objectives that are logits. Out: values of
`LogitContributions` for each. The second pass need not be its own: `PartsByLayer` is told of the
blocks of any pass over the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import Stack
from ...adapters.binding.norms import Norm
from ...adapters.binding.output_head import head_projection, output_head
from ...adapters.capture.device_copy import to_host
from ...adapters.capture.features import reuse_encoder_states
from ...adapters.capture.forward_pass import Capture
from ...adapters.model import Model
from ...errors import InputError, ModelError
from ...files.json_files import JsonObject
from ..maps.logit_contributions import LogitTerms
from ..measures.availability import mixing_between_layers
from ..measures.sums_of_logits import read_at_once
from ..measures.token_objectives import Objective, token_logits
from ..measures.unit_positions import Units
from .logit_parts import LogitParts
from .request import MixRequest
from .view import View


def writing_stack(model: Model) -> Stack:
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
    if between := mixing_between_layers(model):
        raise InputError(
            f"alti_logit: {between}. Use speechmix.knock_out, or mix(measures='gradient_input')"
        )
    return stack


def by_layers(
    model: Model,
    view: View,
    question: MixRequest,
    inputs: Mapping[str, Tensor],
    objectives: Sequence[Objective],
    *,
    reference: bool,
) -> list[LogitTerms]:
    """ALTI-Logit: values of `LogitContributions` for each objective."""
    taken = PartsByLayer(model, view, question, inputs, objectives, {}, reference=reference)
    followed = [model.stacks[name] for name in model.capabilities.stacks_to_output]
    with Capture(followed, taken.on_block):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return taken.values()


class PartsByLayer:
    """Parts of logits taken while a pass runs, which may be that of something else too.

    Parameters
    ----------
    model : Model
        In use, in the precision of `inputs`.
    view : View
        Prepared.
    question : MixRequest
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
        question: MixRequest,
        inputs: Mapping[str, Tensor],
        objectives: Sequence[Objective],
        units: Mapping[str, Units],
        *,
        reference: bool = False,
    ):
        stack = writing_stack(model)
        self._count = len(objectives)
        self._read = _read(model, stack, inputs, view.prepared.sound, objectives)
        rows, readers = self._read.rows, self._read.readers
        self._parts = LogitParts(
            view, question, stack, rows, readers, reference=reference, seen=units
        )
        self.on_block = self._parts.on_block

    def values(self) -> list[LogitTerms]:
        """Values of `LogitContributions` for each objective, behind the pass."""
        parts, read = self._parts, self._read
        kinds = {"scores": parts.mapped, "direct": parts.direct, "layer_parts": parts.of_layers}
        keys = [(kind, name) for kind, values in kinds.items() for name in values]
        single = [parts.embedding, read.norm_bias, read.head_bias, read.logits]
        *arrays, singles = to_host(
            [*(torch.stack(kinds[kind][name]) for kind, name in keys), torch.stack(single)]
        )
        made = []
        for index in range(self._count):
            by_kind: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in kinds}
            for (kind, name), array in zip(keys, arrays, strict=True):
                by_kind[kind][name] = array[:, index].astype(float)
            embedding, norm_bias, head_bias, logit = singles[:, index].tolist()
            of_one = {"embedding": embedding, "final_norm_bias": norm_bias, "head_bias": head_bias}
            made.append(
                LogitTerms(
                    scores=by_kind["scores"],
                    direct=by_kind["direct"],
                    layer_parts=by_kind["layer_parts"],
                    single_parts=of_one,
                    logit=logit,
                )
            )
        return made


@dataclass(frozen=True)
class Readout:
    """What the first pass tells: for each of P objectives its position, reader and logit.

    Parameters
    ----------
    rows : Tensor [P]
    readers : Tensor [P, D]
        What reads each logit off the residual stream, in front of the final norm.
    logits, norm_bias, head_bias : Tensor [P]
    """

    rows: Tensor
    readers: Tensor
    logits: Tensor
    norm_bias: Tensor
    head_bias: Tensor


def _read(
    model: Model,
    stack: Stack,
    inputs: Mapping[str, Tensor],
    sound: str | None,
    objectives: Sequence[Objective],
) -> Readout:
    """Run the model with its head, and see what enters the final norm; a sound that is remembered
    is not encoded again."""
    entered: list[Tensor] = []
    norm = stack.final_norm
    if norm is None:
        raise InputError(
            f"{model.name}: the table of its {stack.name} names no final norm, through which "
            "logits are read"
        )
    left: list[Tensor] = []
    into_head: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        entered.append(args[0])
        left.append(output)

    hooks = [norm.register_forward_hook(keep)]
    projection = head_projection(model)
    if projection is not None:
        hooks.append(
            projection.register_forward_pre_hook(lambda module, args: into_head.append(args[0]))
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
    if not entered or entered[-1].shape[1] != length:
        raise ModelError(
            f"{model.name}: its logits are not made of the states that pass the final norm of the "
            f"{stack.name}"
        )
    asked = [objective.details for objective in objectives]
    rows = torch.tensor([details["position"] for details in asked], device=values.device)
    factor = _factor_before_head(model, left[-1], into_head)
    weights = factor * torch.stack([_weighed(head.weight, details) for details in asked])
    no_bias = torch.zeros_like(values)
    head_bias = (
        no_bias
        if head.bias is None
        else torch.stack([_weighed(head.bias, details) for details in asked])
    )
    passed = Norm(norm, entered[-1][0, rows])
    return Readout(rows, passed.read_through(weights), values, weights @ passed.bias, head_bias)


def _factor_before_head(model: Model, left: Tensor, into_head: Sequence[Tensor]) -> float:
    """The number that states are multiplied by between final norm and head; 1 but for a T5 whose
    head is tied.

    Raises
    ------
    InputError
        If the head reads something else than a multiple of the normed states.
    """
    if not into_head:
        return 1.0
    read = into_head[-1]
    if read.shape == left.shape:
        factor = float((read * left).sum() / (left * left).sum())
        if (read - factor * left).abs().max() <= 100 * torch.finfo(
            left.dtype
        ).eps * read.abs().max():
            return factor
    raise InputError(
        f"alti_logit: {type(model.module).__name__} transforms the states between its final norm "
        "and its linear head (as the "
        "prediction head of a masked model does), so its logits are no sum of what the layers "
        "added. Use measure='lrp', or "
        "mix(measures='gradient_input')"
    )


def _weighed(of_tokens: Tensor, details: JsonObject) -> Tensor:
    """Rows [V, ...] of the tokens that a number is made of, added up with their weights."""
    tokens, weights = read_at_once(details)
    weighted_sum: Tensor = torch.tensordot(of_tokens.new_tensor(weights), of_tokens[tokens], dims=1)
    return weighted_sum
