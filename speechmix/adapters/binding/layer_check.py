"""Check of one layer on a tiny input: attention, the replay of its rows, and its residual sum.

Check that a table's value, key and query projections make the values, keys and queries of
attention.

In: a layer that has just run. One position of a projection's output is changed and the attention
module is run again: what its attention call reads must change if the table says so, and else stay.

Check that states flow through a layer's parts as its table says, in a recorded forward pass.

From the layer's residual stream to its output: each norm, projection, activation and convolution that
the table names must have read what the table says that it reads, and the sums must be the states
that the layer goes on with. What a part gives is taken from the record, so that nothing is run again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ..capture.attention_calls import AttentionCall
from ..capture.layer_run import Block
from ..delta_engine.change_propagator import ChangePropagator
from ..families.specs import ConvolutionSpec, FeedForwardSpec
from ..transformers_types import HookArguments, ModelOutput
from .bound_layers import ConvolutionModules, FeedForwardModules, ProjectionHalf
from .self_check_states import ROUNDING_TOLERANCE, PartRecorder, is_norm, states_agree


def check_layer_flow(block: Block, recorder: PartRecorder, layer_label: str) -> None:
    """Check that each part of a layer reads what the table says; a ModelError if not.

    Where the table does not describe the feed-forwards, the attention blocks alone are checked.
    """
    _LayerFlow(block, recorder, layer_label).check()


class _LayerFlow:
    def __init__(self, block: Block, recorder: PartRecorder, layer_label: str):
        self.block, self.calls, self.layer_label = block, recorder.calls, layer_label
        self.spec, self.modules = block.stack.spec, block.modules
        self.is_pre_norm = self.spec.norm_order == "pre"

    def check(self) -> None:
        if not self.modules.feed_forwards:
            self._check_undescribed()
            return
        stream = self._residual(0)
        layer_input = stream
        for index, (spec, attention) in enumerate(
            zip(self.spec.blocks, self.modules.attentions, strict=True)
        ):
            if attention.norm is None:
                raise self._error(
                    "it describes feed-forwards, but names no norm of "
                    f"the attention block {spec.module!r}"
                )
            stream = stream + self._attention_output(index, stream)
            if not self.is_pre_norm:
                stream = self._run(spec.norm, attention.norm, stream)
        if self.spec.convolution is not None and self.modules.convolution is not None:
            stream = stream + self._convolution_output(
                self.spec.convolution, self.modules.convolution, stream
            )
        for index, feed_forward in enumerate(self.modules.feed_forwards):
            feed_spec = self.spec.feed_forwards[index]
            states = layer_input if self.modules.parallel else stream
            stream = stream + self._feed_forward_output(feed_spec, feed_forward, states)
            if not self.is_pre_norm:
                stream = self._run(feed_spec.norm, feed_forward.norm, stream)
        if self.modules.closing_norm is not None:
            stream = self._run(self.spec.closing_norm, self.modules.closing_norm, stream)
        if not states_agree(stream, self.block.output, effect=0):
            raise self._error(
                "the layer's output is not the sum of its residual stream and the blocks that it names "
                "(closing_norm, scale and branch_norm included)"
            )

    def _check_undescribed(self) -> None:
        """Check what the table says of a layer whose feed-forwards it does not describe."""
        for index, attention in enumerate(self.modules.attentions):
            if not self.is_pre_norm and attention.norm is None and attention.branch_norm:
                raise self._error("it calls the layer post-norm, but names no norm behind the sum")
            self._attention_output(index, self._residual(index))
        if self.spec.convolution is not None and self.modules.convolution is not None:
            calls = self.calls.get(self.modules.convolution.norm, ())
            for states in (call.states for call in calls if call.states is not None):
                self._convolution_output(
                    self.spec.convolution, self.modules.convolution, _select_rows(states)
                )
        closing_norms = {
            norm
            for norm in filter(is_norm, self.calls)
            if any(
                _find_axis(call.output, self.block.output) is not None for call in self.calls[norm]
            )
        }
        if not self.is_pre_norm or self.modules.attention.is_rerun:
            closing_norms = set()  # the feed-forward's, or nothing that is read
        if closing_norms != {self.modules.closing_norm} - {None}:
            raise self._error("the norm behind the layer's last sum is another (closing_norm)")

    def _error(self, problem: str) -> ModelError:
        return ModelError(
            f"{self.layer_label}: the family's table does not fit: {problem}. Correct the table"
        )

    def _residual(self, index: int) -> Tensor:
        """What an attention block's output is added to."""
        attention = self.modules.attentions[index]
        module = attention.norm if self.is_pre_norm and attention.norm else attention.module
        states = self.calls[module][0].states if module in self.calls else None
        if states is None:
            raise self._error(f"{self.spec.blocks[index].norm!r} did not run in the layer")
        return _select_rows(states)[: self.block.n_targets]

    def _attention_output(self, index: int, stream: Tensor) -> Tensor:
        """What an attention block adds to the residual stream."""
        spec, attention = self.spec.blocks[index], self.modules.attentions[index]
        is_normed_first = self.is_pre_norm and attention.norm is not None
        states = self._run(spec.norm, attention.norm, stream) if is_normed_first else stream
        value_reader = attention.value if attention.value in self.calls else attention.module
        reads_layer = self._reads(value_reader, states)
        is_studied = index == self.modules.studied_index and not attention.is_rerun
        if is_studied and reads_layer == (self.spec.name == "cross"):
            raise self._error(
                f"the values of {spec.module!r} are {'' if reads_layer else 'not '}made of the states "
                f"that the table's norm of a {self.spec.name} stack leaves"
            )
        if not (reads_layer or self._reads(attention.query, states)) and not self._reads(
            attention.module, states
        ):
            raise self._error(f"{spec.module!r} does not read the states that its norm leaves")
        try:
            call = self.block.call(index)
        except KeyError:
            raise self._error(f"attention of {spec.module!r} could not be read") from None
        context = (call.weights() @ call.value).transpose(0, 1)
        if call.context is not None:
            if not states_agree(context, call.context, effect=0, size=call.value.abs().max()):
                raise self._error(
                    f"weights and values that were read of {spec.module!r} do not give its context"
                )
            context = call.context
        if attention.is_rerun:
            calls = self.calls.get(attention.output)
            if not calls or calls[-1].output is None:
                raise self._error(f"{spec.output!r} did not run in the layer")
            output = _select_rows(calls[-1].output)
        else:
            output = self._run(spec.output, attention.output, context.flatten(1))
        returned = output if attention.includes_output else context.flatten(1)
        module_calls = self.calls.get(attention.module, ())
        if all(_find_axis(call.output, returned) is None for call in module_calls):
            raise self._error(f"{spec.module!r} does not return the output of {spec.output!r}")
        if attention.is_rerun:
            return output
        self._check_neighbour_norms(index, output)
        if attention.branch_norm is not None:
            output = self._run(spec.branch_norm, attention.branch_norm, output)
        return output

    def _check_neighbour_norms(self, index: int, output: Tensor) -> None:
        """Check that no norm but the table's reads attention's output, and that in a post-norm layer
        the table's is the first behind it."""
        spec, attention = self.spec.blocks[index], self.modules.attentions[index]
        norms = [module for module in self.calls if is_norm(module)]
        if attention.branch_norm is None and any(self._reads(norm, output) for norm in norms):
            raise self._error(f"a norm of the output of {spec.module!r} is not named (branch_norm)")
        if self.is_pre_norm or attention.norm is None:
            return
        end = attention.output if attention.output in self.calls else attention.module
        later_norms = {
            call.order: norm
            for norm in norms
            for call in self.calls[norm]
            if call.order > self.calls[end][-1].order and norm is not attention.branch_norm
        }
        if not later_norms or later_norms[min(later_norms)] is not attention.norm:
            raise self._error(f"{spec.norm!r} is not the norm that follows {spec.module!r}")

    def _convolution_output(
        self, spec: ConvolutionSpec, modules: ConvolutionModules, stream: Tensor
    ) -> Tensor:
        states = self._run(spec.norm, modules.norm, stream)
        states = nn.functional.glu(self._run(spec.expand, modules.expand, states), dim=-1)
        depthwise, window = modules.depthwise, (modules.left, modules.right)
        convolved = self._run(spec.depthwise, depthwise, states, padding=modules.left)
        expected = nn.functional.conv1d(
            nn.functional.pad(states.T, window),
            depthwise.weight,
            depthwise.bias,
            dilation=depthwise.dilation,
            groups=depthwise.groups,
        ).T
        if not states_agree(convolved, expected, effect=expected.abs().max()):
            raise self._error(f"{spec.depthwise!r} has another window of positions (causal)")
        states = convolved
        states = self._run(spec.depthwise_norm, modules.depthwise_norm, states)
        states = self._activate(spec.activation, modules.activation, states)
        return self._run(spec.contract, modules.contract, states)

    def _feed_forward_output(
        self, spec: FeedForwardSpec, modules: FeedForwardModules, stream: Tensor
    ) -> Tensor:
        """What a feed-forward adds to the residual stream."""
        states = self._run(spec.norm, modules.norm, stream) if self.is_pre_norm else stream
        inner = self._run(spec.up, modules.up, states)
        if modules.gate is not None:
            gate = self._run(spec.gate, modules.gate, states)
            inner = self._activate(spec.activation, modules.activation, gate) * inner
        else:
            inner = self._activate(spec.activation, modules.activation, inner)
        output = self._run(spec.down, modules.down, inner)
        if modules.branch_norm is not None:
            output = self._run(spec.branch_norm, modules.branch_norm, output)
        return output * modules.scale

    def _activate(
        self, path: str, activation: Callable[[Tensor], Tensor], states: Tensor
    ) -> Tensor:
        """A module that is an activation must have run: others may give nearly the same."""
        if isinstance(activation, nn.Module) and activation not in self.calls:
            raise self._error(f"{path!r} did not run in the layer")
        return self._run(path, activation, states)

    def _run(
        self,
        path: str | None,
        part: Callable[[Tensor], Tensor] | None,
        states: Tensor,
        *,
        padding: int = 0,
    ) -> Tensor:
        """Return a part's recorded output for these states; run the part if its weights were used
        without running it."""
        assert part is not None
        if isinstance(part, ProjectionHalf):
            projection, half_index = part.projection
            return self._run(path, projection, states).chunk(2, dim=-1)[half_index]
        calls = self.calls.get(part, []) if isinstance(part, nn.Module) else []
        for call in calls:
            axis = _find_axis(call.states, states, padding)
            if axis is not None and call.output is not None:
                return _select_rows(call.output, axis)[: len(states)]
        if calls:
            raise self._error(f"{path!r} does not read the states that the table says it reads")
        return part(states)

    def _reads(self, part: nn.Module | None, states: Tensor) -> bool:
        calls = self.calls.get(part, []) if part is not None else []
        return any(_find_axis(call.states, states) is not None for call in calls)


def _select_rows(states: Tensor, axis: int = -2) -> Tensor:
    """States [..., T, D], or [..., D, T] of a convolution, as those of one clip [T, D]."""
    matrix = states.reshape(-1, *states.shape[-2:])[0]
    return matrix if axis == -2 else matrix.T


def _find_axis(recorded: Tensor | None, states: Tensor, padding: int = 0) -> int | None:
    """Find the axis along which a recorded tensor holds these states [T, D], perhaps with padding
    around them; None if it holds others."""
    if recorded is None:
        return None
    for axis in (-2, -1):
        rows = _select_rows(recorded, axis)
        if any(
            states_agree(rows[first : first + len(states)], states, effect=0)
            for first in {0, padding}
        ):
            return axis
    return None


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
