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
from .traced_states import ROUNDING, entering_states, stack_outputs, states_agree

_POSITIONS = 8


def self_check(model: Model) -> None:
    """Check a model; raises `ModelError` naming what does not fit.

    Where a layer's residual sum cannot be confirmed, the stack notes it (`Stack.unknown_sum`) and
    measures that need it refuse.
    """
    try:
        _check(model)
    except ModelError as error:
        if broken := [
            name for name, weight in model.module.named_parameters() if not weight.isfinite().all()
        ]:
            raise ModelError(
                f"{model.name}: weights are not finite (NaN or infinity): {', '.join(broken[:5])}"
                f"{f' and {len(broken) - 5} more' if broken[5:] else ''}. Load the checkpoint "
                "again, or train it again"
            ) from error
        raise


def _check(model: Model) -> None:
    try:
        seen = _seen(model, _POSITIONS)
    except SpeechmixError:
        raise
    except (
        Exception
    ):  # some encoders pass on more with the states (rotary tables, lengths), which then do not fit
        seen = _seen_whole(model)
    for stack in list(model.stacks.values()):
        unseen = [layer for layer in range(len(stack)) if layer not in seen.layers[stack.name]]
        if unseen:
            raise ModelError(
                f"{model.name}: layers {unseen} of the {stack.name} did not run in a forward pass"
            )
        last, returned = seen.last[stack.name], seen.outputs.get(stack.name, [])
        same_shape = [states for states in returned if states.shape == last.shape]
        if same_shape and not any(states_agree(states, last, effect=0) for states in same_shape):
            raise ModelError(
                f"{model.name}: the output of the {stack.name} is not its last layer's output "
                "behind "
                f"{stack.spec.final_norm or 'no final norm'}; correct final_norm in the family's "
                "table"
            )
        model.stacks[stack.name] = replace(stack, unknown_sum=seen.unknown_sum.get(stack.name, ""))


class _Pass:
    """What one forward pass showed of each stack: layers that ran, last states [T, D], what its
    holder returned."""

    def __init__(self, model: Model):
        self.layers: dict[str, set[int]] = {name: set() for name in model.stacks}
        self.last: dict[str, Tensor] = {}
        self.outputs: dict[str, list[Tensor]] = {}
        self.unknown_sum: dict[str, str] = {}
        self.structures: set[Hashable] = set()  # of the layers that were run whole


def _seen_whole(model: Model) -> _Pass:
    try:
        return _seen(model, None)
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


def _seen(model: Model, positions: int | None) -> _Pass:
    """Run the model on its family's tiny input, check each layer, and return what was seen."""
    seen = _Pass(model)

    def on_block(block: Block) -> None:
        name = block.stack.name
        where = f"{model.name}, {name} layer {block.layer} ({type(model.module).__name__})"
        structure = _structure(block)
        _check_block(block, where, whole=structure not in seen.structures)
        seen.structures.add(structure)
        if reason := _sum_unconfirmed(block, entered, where):
            seen.unknown_sum[name] = reason
        seen.layers[name].add(block.layer)
        if block.layer == len(block.stack) - 1:
            seen.last[name] = block.states(
                torch.arange(block.n_targets, device=block.values.device)
            )

    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, wide if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    with (
        model.in_use(wide),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        entering_states(model) as entered,
        stack_outputs(model, seen.outputs),
        Capture(list(model.stacks.values()), on_block, max_positions=positions),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return seen


def _structure(block: Block) -> Hashable:
    """What layers share that do the same with other numbers: classes and options of their parts,
    shapes of weights."""
    module = block.modules.module
    parts = tuple((name, type(part), part.extra_repr()) for name, part in module.named_modules())
    return (
        block.stack.name,
        parts,
        tuple((name, weight.shape) for name, weight in module.named_parameters()),
    )


def _check_block(block: Block, where: str, *, whole: bool) -> None:
    """Check one layer.

    Most of what that costs is reading the weights, anew for every few rows. So all rows are
    replayed (`whole`) in the first layer of each structure alone: there what mixes positions is
    seen, however far apart. In further layers of the same structure those that are changed are, and
    one more.
    """
    rows = _rows(block)
    attention = block.attention(rows)
    if attention.shape[0] != block.stack.heads:
        raise ModelError(
            f"{where}: expected {block.stack.heads} heads, found attention of shape "
            f"{tuple(attention.shape)}"
        )
    if not states_agree(attention.sum(-1) + block.sink(rows), torch.ones_like(attention[..., 0])):
        raise ModelError(f"{where}: rows of the attention weights do not sum to one")
    if block.causal and block.attention().triu(1).any():
        raise ModelError(f"{where}: its table calls it causal, but positions attend to later ones")
    if not block.causal and block.n_targets > 2 and not block.attention().triu(1).any():
        raise ModelError(
            f"{where}: its table does not call it causal, but no position attends to a later one"
        )
    # The context of the first row and the last is taken away, those between stay: what leaks to
    # others is seen from either side, near and far. Any change beyond rounding will do: one
    # source's may be small or never attended to.
    edges, without = _without_edges(block)
    before = block.states(torch.arange(block.n_targets, device=edges.device))
    if block.modules.convolution is not None:
        again, after = block.replay_all(torch.stack([block.context, without]))
        same = states_agree(again, before, effect=(after - again).abs().max())
    elif block.modules.rest is None or whole:
        after = block.replay_all(without[None])[0]
        same = _still(
            after, before, edges
        ) and states_agree(  # rows alone, too, as Value Zeroing replays them
            block.replay(rows, block.context[rows]),
            before[rows],
            effect=(after - before).abs().max(),
        )
    else:
        few = edges.new_tensor(sorted({0, min(1, block.n_targets - 1), block.n_targets - 1}))
        after = before.index_copy(0, few, block.replay(few, without[few]))
        same = _still(after, before, edges)
    change = (after - before)[edges]
    moved = change.abs().max()
    if not same:
        raise ModelError(
            f"{where}: running the layer's modules, with attention taken from some rows, does not "
            "give the others what its "
            "forward pass gave them, so something besides attention mixes positions (name a "
            "convolution in the table: "
            "StackSpec.convolution), or the table's paths are wrong. Value Zeroing cannot be "
            "replayed"
        )
    if moved <= 4 * torch.finfo(before.dtype).eps * before.abs().max():
        raise ModelError(
            f"{where}: zeroing the value vectors changes nothing; is {block.stack.spec.name!r} the "
            "right block?"
        )
    if block.modules.rest is None:
        return
    propagator = ChangePropagator(block, edges)
    propagated_change = propagator(
        (without - block.context)[propagator.input_positions].flatten(1)[None]
    )[0]
    if not states_agree(propagated_change, change, effect=moved, size=before.abs().max()):
        raise ModelError(
            f"{where}: carrying a change through the layer as its table describes it (norms, "
            "feed-forward) does not give what "
            "running its modules gives. Correct the table, or leave feed_forwards out so that "
            "layers are replayed"
        )


def _without_edges(block: Block) -> tuple[Tensor, Tensor]:
    """The first row and the last, and the attention context [Q, H, d] with zeros at them."""
    edges = torch.tensor(sorted({0, block.n_targets - 1}), device=block.values.device)
    return edges, block.context.index_fill(0, edges, 0)


def _still(after: Tensor, before: Tensor, changed: Tensor) -> bool:
    """True if all rows but the changed ones are as they were, to rounding."""
    moved = (after - before).index_fill(0, changed, 0)
    return bool(moved.abs().max() <= ROUNDING * torch.finfo(moved.dtype).eps * before.abs().max())


def _rows(block: Block) -> Tensor:
    """Some target positions, last first, and not all of them."""
    rows = torch.arange(block.n_targets, device=block.values.device).flip(0)[
        : max(1, block.n_targets - 1)
    ]
    return rows[:: -(-len(rows) // _POSITIONS)]


def _sum_unconfirmed(block: Block, entered: Mapping[nn.Module, list[Tensor]], where: str) -> str:
    """Why it is not certain that the layer goes on with residual + attention's output; empty if it
    is.

    In a post-norm layer that sum must enter the block's norm; in a pre-norm one whatever comes next
    (the next norm, or nothing: then it is the layer's output). A full description that is wrong
    here is an error.
    """
    attention, pre_norm = block.modules.attention, block.stack.spec.norm_order == "pre"
    if block.modules.parallel or (attention.norm is None and attention.branch_norm is None):
        return block.stack.unknown_sum
    rows = _rows(block)
    branch = block.attention_output(rows)
    if attention.branch_norm is not None:
        branch = attention.branch_norm(branch)
    state = block.residual(rows, confirmed=False) + branch
    parts = list(entered) if pre_norm or attention.norm is None else [attention.norm]
    candidates = [
        x
        for part in parts
        for x in entered.get(part, ())
        if x.shape[-2:] == (block.n_targets, state.shape[-1])
    ]
    if pre_norm:
        candidates.append(block.output)
    if any(
        states_agree(x.reshape(-1, *x.shape[-2:])[0][rows], state, effect=branch.abs().max())
        for x in candidates
    ):
        return ""
    reason = (
        "what its table calls residual and attention output does not add up to what the layer goes "
        "on with "
        "(norm_order, norm, branch_norm; or attention and feed-forward run side by side)"
    )
    if block.modules.feed_forwards:
        raise ModelError(f"{where}: {reason}. Correct the table")
    return reason
