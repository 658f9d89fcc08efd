"""Check of one layer on a tiny input: attention, the replay of its rows, and its residual sum.

Check that a table's value, key and query projections make the values, keys and queries of
attention.

In: a layer that has just run. One position of a projection's output is changed and the attention
module is run again: what its attention call reads must change if the table says so, and else stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ..capture.attention_calls import AttentionCall
from ..capture.layer_run import Block
from ..delta_engine.change_propagator import ChangePropagator
from ..transformers_types import HookArguments, ModelOutput
from .layer_flow_check import check_layer_flow
from .self_check_states import ROUNDING_TOLERANCE, PartRecorder, states_agree

_ROLES = ("value", "key", "query")
_MIN_POSITIONS = 3  # fewer do not tell keys from queries
_SCORE_TOLERANCE = 1e-4


def check_projections(block: Block, recorder: PartRecorder, layer_label: str) -> None:
    """Check the projections of all attention blocks of a layer; a ModelError if one returns
    something else than the table says."""
    if block.n_targets < _MIN_POSITIONS:
        return
    for index, spec in enumerate(block.stack.spec.blocks):
        attention = block.modules.attentions[index]
        projections = {
            role: getattr(attention, role) if getattr(spec, role) else None for role in _ROLES
        }
        for role, projection in projections.items():
            if projection is not None and not _makes(block, recorder, index, role, projections):
                raise ModelError(
                    f"{layer_label}: the family's table does not fit: {getattr(spec, role)!r} does not make "
                    f"the {role} vectors of {spec.module!r}, or makes others too. Correct the table"
                )


def _makes(
    block: Block,
    recorder: PartRecorder,
    index: int,
    role: str,
    projections: dict[str, nn.Module | None],
) -> bool:
    """Return True if a projection makes the vectors of its role, and of other roles only if the
    table says so."""
    projection, call = projections[role], block.call(index)
    assert projection is not None
    attention = block.modules.attentions[index]
    attention_call = recorder.calls[attention.module][0]
    calls = recorder.calls.get(projection)
    if not calls:  # its weights were used without running it
        states, vectors = attention_call.states, getattr(call, role).transpose(0, 1).flatten(1)
        return states is not None and states_agree(
            projection(states).reshape(-1, vectors.shape[-1]), vectors, effect=0
        )
    output = calls[0].output
    if role == "value" and (
        output is None or not (attention.is_rerun or _are_multiples(call.value, output))
    ):
        return False
    changes: list[int] = []

    def change_once(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        if changes:  # positions relative to each other may be projected too (DeBERTa)
            return None
        position = min(output.shape[-2], block.n_targets) // 2
        changes.append(position)
        changed, ramp = output.clone(), torch.linspace(-1, 1, output.shape[-1]).to(output)
        changed[..., position, :] = output[..., position, :].flip(-1) + output.abs().max() * ramp
        return changed

    hook = projection.register_forward_hook(change_once)
    try:
        changed_call = block.run_attention(index, attention_call.arguments, attention_call.keywords)
    finally:
        hook.remove()
    return all(
        is_changed == (projections[other] is projection)
        for other, is_changed in _compare_calls(call, changed_call, changes[0]).items()
        if projections[other] is not None
    )


def _are_multiples(values: Tensor, output: Tensor) -> bool:
    """Return True if values are numbers of a projection's output, all times one factor (MiMo).

    The output may hold queries and keys, too; then the factor must be one.
    """
    if torch.isin(values, output).all():
        return True
    factor = values.abs().max() / output.abs().max()
    multiples = (output * factor).flatten().sort().values
    index = torch.searchsorted(multiples, values.flatten()).clamp(1, len(multiples) - 1)
    neighbours = torch.stack([multiples[index - 1], multiples[index]])
    distance = (neighbours - values.flatten()).abs().amin(dim=0)
    return bool(distance.max() <= 4 * torch.finfo(values.dtype).eps * values.abs().max())


def _compare_calls(
    call: AttentionCall, changed_call: AttentionCall, position: int
) -> dict[str, bool]:
    """Return for each role whether its vectors differ between two calls.

    In the second call a projection returned other vectors at one position. Where only weights were
    captured, a changed key changes the weights of other positions, too.
    """
    changes = {
        role: not states_agree(getattr(changed_call, role), getattr(call, role), effect=0)
        for role in _ROLES
        if getattr(call, role).numel()
    }
    if call.alpha is not None and changed_call.alpha is not None:
        scores, changed_scores = (
            alpha.clamp_min(torch.finfo(alpha.dtype).tiny).log()
            for alpha in (call.alpha, changed_call.alpha)
        )
        is_changed = ((changed_scores - scores).abs() > _SCORE_TOLERANCE).any(dim=-1).any(dim=0)
        is_other = torch.arange(len(is_changed), device=is_changed.device) != position
        changes["key"] = bool(is_changed[is_other].any())
        changes["query"] = bool(is_changed.any()) and not changes["key"]
    return changes


_MAX_CHECKED_ROWS = 8


def layer_structure(block: Block, recorder: PartRecorder) -> Hashable:
    """Return what layers of one structure share: classes and options of parts, shapes of weights,
    and which parts ran."""
    module = block.modules.module
    part_options = tuple(
        (name, type(submodule), submodule.extra_repr(), submodule in recorder.calls)
        for name, submodule in module.named_modules()
    )
    return (
        block.stack.name,
        part_options,
        tuple((name, weight.shape) for name, weight in module.named_parameters()),
    )


def check_layer(
    block: Block, recorder: PartRecorder, layer_label: str, *, is_new_structure: bool
) -> None:
    """Check one layer.

    Most of what that costs is reading the weights, anew for every few rows. So parts are run again
    in the first layer of each structure alone: there what mixes positions is seen, however far
    apart. In further layers the record of the forward pass shows that all parts read what the table
    says. Layers that the table does not describe are replayed nevertheless.
    """
    _check_attention(block, layer_label)
    if is_new_structure or not block.modules.feed_forwards:
        _check_replay(block, layer_label, check_all_rows=is_new_structure)
    else:
        _check_output_varies(block, recorder, layer_label)
    check_layer_flow(block, recorder, layer_label)
    if is_new_structure:
        check_projections(block, recorder, layer_label)
        _check_shared_arguments(block, layer_label)


def _check_attention(block: Block, layer_label: str) -> None:
    """Check heads, sums of rows, and which positions are seen."""
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


def _check_replay(block: Block, layer_label: str, *, check_all_rows: bool) -> None:
    """Check that changes of some rows' attention change these rows alone, and as the table says."""
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
    elif block.modules.runs_whole:
        replayed_states, changed_states = block.replay_all(
            torch.stack([block.context, ablated_context])
        )
        is_consistent = _has_no_other_change(changed_states, states, edge_rows) and states_agree(
            replayed_states, states, effect=(changed_states - replayed_states).abs().max()
        )
    elif block.modules.post_attention is None or check_all_rows:
        changed_states = block.replay_all(ablated_context[None])[0]
        rows = _select_check_rows(block)
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
        raise _no_effect(block, layer_label)
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


def _check_output_varies(block: Block, recorder: PartRecorder, layer_label: str) -> None:
    """Check that attention's outputs differ between positions: those of a projection of zeros are
    all its bias."""
    index = block.stack.spec.block_index
    calls = recorder.calls.get(block.modules.attentions[index].output, ())
    outputs = [
        call.output.reshape(-1, call.output.shape[-1]) for call in calls if call.output is not None
    ]
    for output in outputs:
        smallest = 4 * torch.finfo(output.dtype).eps * output.abs().max()
        if len(output) > 1 and (output - output[:1]).abs().max() <= smallest:
            raise _no_effect(block, layer_label)


def _no_effect(block: Block, layer_label: str) -> ModelError:
    return ModelError(
        f"{layer_label}: zeroing the value vectors changes nothing; is {block.stack.spec.name!r} the "
        "right block?"
    )


def _ablate_edge_rows(block: Block) -> tuple[Tensor, Tensor]:
    """Return the first and the last row, and the attention context [Q, H, d] with zeros there."""
    edge_rows = torch.tensor(sorted({0, block.n_targets - 1}), device=block.values.device)
    return edge_rows, block.context.index_fill(0, edge_rows, 0)


def _has_no_other_change(changed_states: Tensor, states: Tensor, changed_rows: Tensor) -> bool:
    """Return True if all rows but the changed ones are as before, to rounding."""
    other_changes = (changed_states - states).index_fill(0, changed_rows, 0)
    return bool(
        other_changes.abs().max()
        <= ROUNDING_TOLERANCE * torch.finfo(other_changes.dtype).eps * states.abs().max()
    )


def _select_check_rows(block: Block) -> Tensor:
    """Select some target positions, last first, and not all of them."""
    rows = torch.arange(block.n_targets, device=block.values.device).flip(0)[
        : max(1, block.n_targets - 1)
    ]
    return rows[:: -(-len(rows) // _MAX_CHECKED_ROWS)]


def _check_shared_arguments(block: Block, layer_label: str) -> None:
    """Check that the layer runs on two clips with the arguments that its table calls shared."""
    shared = block.stack.spec.shared
    unknown_names = set(shared) - inspect.signature(block.modules.module.forward).parameters.keys()
    if unknown_names:
        raise ModelError(
            f"{layer_label}: its forward takes no argument {', '.join(sorted(unknown_names))}, which the "
            "family's table calls shared. Correct the table"
        )
    try:
        outputs = block.run_twice()
        is_alike = all(states_agree(output, block.output) for output in outputs)
    except Exception:
        is_alike = False
    if not is_alike:
        raise ModelError(
            f"{layer_label}: run on two clips at once the layer does not give what it gives for one. "
            "Correct the table: shared names the arguments without an axis of clips"
        )


def explain_unconfirmed_sum(block: Block, recorder: PartRecorder) -> str:
    """Say why it is not certain that the layer goes on with residual + attention's output; empty if
    it is.

    In a post-norm layer that sum must enter the block's norm; in a pre-norm one whatever comes next
    (the next norm, or nothing: then it is the layer's output). Where feed-forwards are described,
    `check_layer_flow` has confirmed it.
    """
    attention, pre_norm = block.modules.attention, block.stack.spec.norm_order == "pre"
    if block.modules.parallel or (attention.norm is None and attention.branch_norm is None):
        return block.stack.unknown_sum_reason
    if block.modules.feed_forwards:
        return ""
    rows = _select_check_rows(block)
    attention_output = block.attention_output(rows)
    if attention.branch_norm is not None:
        attention_output = attention.branch_norm(attention_output)
    state = block.residual(rows, confirmed=False) + attention_output
    sum_readers = list(recorder.calls) if pre_norm or attention.norm is None else [attention.norm]
    candidates = [
        call.states
        for module in sum_readers
        for call in recorder.calls.get(module, ())
        if call.states is not None and call.states.shape[-2:] == (block.n_targets, state.shape[-1])
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
    return (
        "what its table calls residual and attention output does not add up to what the layer goes "
        "on with "
        "(norm_order, norm, branch_norm; or attention and feed-forward run side by side)"
    )
