"""Self-check of a freshly loaded model on a tiny input: does the family's table fit it?

The model as it is measured gives what it gives as it was given (fidelity_check.py). For every stack and
layer: attention rows sum to one, attention sinks included; replaying the layer with nothing zeroed
gives the forward pass (on chosen rows in another order); a changed row changes no other, unless the
table names the convolution that takes it there; zeroing a value changes the output; what attention
gives, added to the residual stream, is what the layer goes on with; the stack's output is its last
layer's behind the final norm. A failure names the module. Tolerances are shares of what attention
changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...errors import ModelError, SpeechmixError
from ..capture.block import Block
from ..capture.forward_pass import Capture, use_attention
from ..delta_engine.change_propagator import ChangePropagator
from ..model import Model
from .traced_states import (
    ROUNDING_TOLERANCE,
    record_part_inputs,
    record_stack_outputs,
    states_agree,
)

_POSITIONS = 8


def self_check(model: Model) -> None:
    """Check a model; raises `ModelError` naming what does not fit.

    Where a layer's residual sum cannot be confirmed, the stack notes it (`Stack.unknown_sum_reason`) and
    measures that need it refuse.
    """
    try:
        _check_model(model)
    except ModelError as error:
        if non_finite_names := [
            name for name, weight in model.module.named_parameters() if not weight.isfinite().all()
        ]:
            raise ModelError(
                f"{model.name}: weights are not finite (NaN or infinity): {', '.join(non_finite_names[:5])}"
                f"{f' and {len(non_finite_names) - 5} more' if non_finite_names[5:] else ''}. Load the checkpoint "
                "again, or train it again"
            ) from error
        raise


def _check_model(model: Model) -> None:
    try:
        pass_record = _record_pass(model, _POSITIONS)
    except SpeechmixError:
        raise
    except (
        Exception
    ):  # some encoders pass on more with the states (rotary tables, lengths), which then do not fit
        pass_record = _record_full_pass(model)
    for stack in list(model.stacks.values()):
        missing_layers = [
            layer for layer in range(len(stack)) if layer not in pass_record.layers[stack.name]
        ]
        if missing_layers:
            raise ModelError(
                f"{model.name}: layers {missing_layers} of the {stack.name} did not run in a forward pass"
            )
        last_states, stack_outputs = (
            pass_record.last[stack.name],
            pass_record.outputs.get(stack.name, []),
        )
        comparable_outputs = [
            states for states in stack_outputs if states.shape == last_states.shape
        ]
        if comparable_outputs and not any(
            states_agree(states, last_states, effect=0) for states in comparable_outputs
        ):
            raise ModelError(
                f"{model.name}: the output of the {stack.name} is not its last layer's output "
                "behind "
                f"{stack.spec.final_norm or 'no final norm'}; correct final_norm in the family's "
                "table"
            )
        model.stacks[stack.name] = replace(
            stack, unknown_sum_reason=pass_record.unknown_sum_reason.get(stack.name, "")
        )


class _PassRecord:
    """Record of one forward pass for each stack: layers that ran, last states [T, D], outputs of
    the module that holds it."""

    def __init__(self, model: Model):
        self.layers: dict[str, set[int]] = {name: set() for name in model.stacks}
        self.last: dict[str, Tensor] = {}
        self.outputs: dict[str, list[Tensor]] = {}
        self.unknown_sum_reason: dict[str, str] = {}
        self.structures: set[Hashable] = set()  # of the layers that were run whole


def _record_full_pass(model: Model) -> _PassRecord:
    try:
        return _record_pass(model, None)
    except SpeechmixError:
        raise
    except Exception as error:
        raise ModelError(
            f"{model.name}: {type(model.module).__name__} cannot be run and replayed on a tiny "
            "input "
            f"({type(error).__name__}: {str(error)[:200]}). If the model itself runs, the family's "
            "table or its run and "
            "tiny_inputs do not fit it; see speechmix.register"
        ) from error


def _record_pass(model: Model, positions: int | None) -> _PassRecord:
    """Run the model on its family's tiny input, check each layer, and return what was seen."""
    pass_record = _PassRecord(model)

    def on_block(block: Block) -> None:
        name = block.stack.name
        layer_label = f"{model.name}, {name} layer {block.layer} ({type(model.module).__name__})"
        structure = _layer_structure(block)
        _check_layer(block, layer_label, check_all_rows=structure not in pass_record.structures)
        pass_record.structures.add(structure)
        if sum_reason := _explain_unconfirmed_sum(block, part_inputs, layer_label):
            pass_record.unknown_sum_reason[name] = sum_reason
        pass_record.layers[name].add(block.layer)
        if block.layer == len(block.stack) - 1:
            pass_record.last[name] = block.states(
                torch.arange(block.n_targets, device=block.values.device)
            )

    check_dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, check_dtype if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    with (
        model.in_use(check_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        record_part_inputs(model) as part_inputs,
        record_stack_outputs(model, pass_record.outputs),
        Capture(list(model.stacks.values()), on_block, max_positions=positions),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return pass_record


def _layer_structure(block: Block) -> Hashable:
    """Return what layers of one structure share: classes and options of parts, shapes of
    weights."""
    module = block.modules.module
    part_options = tuple(
        (name, type(part), part.extra_repr()) for name, part in module.named_modules()
    )
    return (
        block.stack.name,
        part_options,
        tuple((name, weight.shape) for name, weight in module.named_parameters()),
    )


def _check_layer(block: Block, layer_label: str, *, check_all_rows: bool) -> None:
    """Check one layer.

    Most of what that costs is reading the weights, anew for every few rows. So all rows are
    replayed (`check_all_rows`) in the first layer of each structure alone: there what mixes positions is
    seen, however far apart. In further layers of the same structure those that are changed are, and
    one more.
    """
    rows = _select_check_rows(block)
    attention = block.attention(rows)
    if attention.shape[0] != block.stack.heads:
        raise ModelError(
            f"{layer_label}: expected {block.stack.heads} heads, found attention of shape "
            f"{tuple(attention.shape)}"
        )
    if not states_agree(attention.sum(-1) + block.sink(rows), torch.ones_like(attention[..., 0])):
        raise ModelError(f"{layer_label}: rows of the attention weights do not sum to one")
    if block.causal and block.attention().triu(1).any():
        raise ModelError(
            f"{layer_label}: its table calls it causal, but positions attend to later ones"
        )
    if not block.causal and block.n_targets > 2 and not block.attention().triu(1).any():
        raise ModelError(
            f"{layer_label}: its table does not call it causal, but no position attends to a later one"
        )
    # The context of the first row and the last is taken away, those between stay: what leaks to
    # others is seen from either side, near and far. Any change beyond rounding will do: one
    # source's may be small or never attended to.
    edge_rows, ablated_context = _ablate_edge_rows(block)
    states = block.states(torch.arange(block.n_targets, device=edge_rows.device))
    if block.modules.convolution is not None:
        replayed_states, changed_states = block.replay_all(
            torch.stack([block.context, ablated_context])
        )
        is_consistent = states_agree(
            replayed_states, states, effect=(changed_states - replayed_states).abs().max()
        )
    elif block.modules.post_attention is None or check_all_rows:
        changed_states = block.replay_all(ablated_context[None])[0]
        is_consistent = _has_no_other_change(
            changed_states, states, edge_rows
        ) and states_agree(  # rows alone, too, as Value Zeroing replays them
            block.replay(rows, block.context[rows]),
            states[rows],
            effect=(changed_states - states).abs().max(),
        )
    else:
        changed_rows = edge_rows.new_tensor(
            sorted({0, min(1, block.n_targets - 1), block.n_targets - 1})
        )
        changed_states = states.index_copy(
            0, changed_rows, block.replay(changed_rows, ablated_context[changed_rows])
        )
        is_consistent = _has_no_other_change(changed_states, states, edge_rows)
    change = (changed_states - states)[edge_rows]
    max_change = change.abs().max()
    if not is_consistent:
        raise ModelError(
            f"{layer_label}: running the layer's modules, with attention taken from some rows, does not "
            "give the others what its "
            "forward pass gave them, so something besides attention mixes positions (name a "
            "convolution in the table: "
            "StackSpec.convolution), or the table's paths are wrong. Value Zeroing cannot be "
            "replayed"
        )
    if max_change <= 4 * torch.finfo(states.dtype).eps * states.abs().max():
        raise ModelError(
            f"{layer_label}: zeroing the value vectors changes nothing; is {block.stack.spec.name!r} the "
            "right block?"
        )
    if block.modules.post_attention is None:
        return
    propagator = ChangePropagator(block, edge_rows)
    propagated_change = propagator(
        (ablated_context - block.context)[propagator.input_positions].flatten(1)[None]
    )[0]
    if not states_agree(propagated_change, change, effect=max_change, size=states.abs().max()):
        raise ModelError(
            f"{layer_label}: carrying a change through the layer as its table describes it (norms, "
            "feed-forward) does not give what "
            "running its modules gives. Correct the table, or leave feed_forwards out so that "
            "layers are replayed"
        )


def _ablate_edge_rows(block: Block) -> tuple[Tensor, Tensor]:
    """Return the first and the last row, and the attention context [Q, H, d] with zeros there."""
    edge_rows = torch.tensor(sorted({0, block.n_targets - 1}), device=block.values.device)
    return edge_rows, block.context.index_fill(0, edge_rows, 0)


def _has_no_other_change(after: Tensor, before: Tensor, changed_rows: Tensor) -> bool:
    """Return True if all rows but the changed ones are as before, to rounding."""
    other_changes = (after - before).index_fill(0, changed_rows, 0)
    return bool(
        other_changes.abs().max()
        <= ROUNDING_TOLERANCE * torch.finfo(other_changes.dtype).eps * before.abs().max()
    )


def _select_check_rows(block: Block) -> Tensor:
    """Select some target positions, last first, and not all of them."""
    rows = torch.arange(block.n_targets, device=block.values.device).flip(0)[
        : max(1, block.n_targets - 1)
    ]
    return rows[:: -(-len(rows) // _POSITIONS)]


def _explain_unconfirmed_sum(
    block: Block, part_inputs: Mapping[nn.Module, list[Tensor]], layer_label: str
) -> str:
    """Say why it is not certain that the layer goes on with residual + attention's output; empty if
    it is.

    In a post-norm layer that sum must enter the block's norm; in a pre-norm one whatever comes next
    (the next norm, or nothing: then it is the layer's output). A full description that is wrong
    here is an error.
    """
    attention, pre_norm = block.modules.attention, block.stack.spec.norm_order == "pre"
    if block.modules.parallel or (attention.norm is None and attention.branch_norm is None):
        return block.stack.unknown_sum_reason
    rows = _select_check_rows(block)
    attention_output = block.attention_output(rows)
    if attention.branch_norm is not None:
        attention_output = attention.branch_norm(attention_output)
    state = block.residual(rows, confirmed=False) + attention_output
    parts = list(part_inputs) if pre_norm or attention.norm is None else [attention.norm]
    candidates = [
        x
        for part in parts
        for x in part_inputs.get(part, ())
        if x.shape[-2:] == (block.n_targets, state.shape[-1])
    ]
    if pre_norm:
        candidates.append(block.output)
    if any(
        states_agree(
            x.reshape(-1, *x.shape[-2:])[0][rows], state, effect=attention_output.abs().max()
        )
        for x in candidates
    ):
        return ""
    reason = (
        "what its table calls residual and attention output does not add up to what the layer goes "
        "on with "
        "(norm_order, norm, branch_norm; or attention and feed-forward run side by side)"
    )
    if block.modules.feed_forwards:
        raise ModelError(f"{layer_label}: {reason}. Correct the table")
    return reason
