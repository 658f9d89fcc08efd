"""Check on a tiny input that the family's table fits a loaded model.

For every stack and layer: attention rows sum to one, attention sinks included; replaying the layer with
nothing zeroed gives the forward pass (on chosen rows in another order); a changed row changes no other, unless
the table names the convolution that takes it there; zeroing a value changes the output; what attention gives,
added to the residual stream, is what the layer goes on with. For every stack: its list holds all layers in the order
they run; its output is its last layer's behind the final norm; tables of the same layers agree. A failure names
the module. Tolerances are shares of what attention changes.

The measured model must give the states of the original. To be read, a transformers model runs under another
attention implementation than it was loaded with ("sdpa"). Some models then compute something else: torch's
function ignores attention sinks, and other code adds positions (ALiBi) in another way. Such a model is measured
under "eager", as it was given, and its attention is read off its softmax. In: a loaded `Model`. Out: nothing; its
stacks are bound again, or an error names the reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from ...errors import ModelError, SpeechmixError
from ..capture.forward_pass import Capture, list_attention_implementations, use_attention
from ..capture.layer_run import Block
from ..model import Model
from ..transformers_types import HookArguments, ModelOutput
from .bound_layers import Stack, bind_stack
from .layer_check import check_layer, explain_unconfirmed_sum, layer_structure
from .self_check_states import PartRecorder, is_norm, list_output_states, states_agree, varied_gains


@dataclass
class StackRecord:
    """What was seen of one stack in a forward pass.

    `states` [T, D] is the output of the layer that ran last, behind the final norm if it is the
    stack's last. `gaps` lists layers whose input is not the output of the one before, `outputs`
    what the holder of the layers returned, `unlisted_layers` modules of the layers' class that ran
    and are not in the list. `mixes_between` says that a convolution over positions ran between two
    layers; `later_norms` are norms outside the list that ran behind the last layer.
    """

    layers_run: int = 0
    states: Tensor | None = None
    gaps: list[int] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    unlisted_layers: set[str] = field(default_factory=set)
    mixes_between: bool = False
    later_norms: set[nn.Module] = field(default_factory=set)
    unknown_sum_reason: str = ""


class PassRecord:
    """Records of one forward pass, by the names of stacks; structures of the layers that were run
    whole."""

    def __init__(self, model: Model):
        self.model = model
        self.stacks = {name: StackRecord() for name in model.stacks}
        self.structures: set[Hashable] = set()

    def add_layer(self, block: Block) -> None:
        """Record that a layer has run; a ModelError if it is not the next one in the list."""
        record = self.stacks[block.stack.name]
        if block.layer != record.layers_run:
            raise ModelError(
                f"{self.model.name}: layer {block.layer} in the table's list {block.stack.spec.layers!r} of the "
                f"{block.stack.name} ran as number {record.layers_run}. Correct layers in the family's "
                "table"
            )
        before = None if block.stack.name == "cross" else record.states
        if before is not None and not states_agree(block.inputs, before, effect=0):
            record.gaps.append(block.layer)
        record.layers_run += 1
        record.states = block.states(torch.arange(block.n_targets, device=block.values.device))

    @contextmanager
    def watch(self) -> Iterator[PassRecord]:
        """Record what runs outside the listed layers while the block lasts."""
        listed = {layer.module for stack in self.model.stacks.values() for layer in stack.layers}
        with ExitStack() as hooks:
            for name, stack in self.model.stacks.items():
                self._watch_stack(self.stacks[name], stack, listed, hooks)
            yield self

    def _watch_stack(
        self, record: StackRecord, stack: Stack, listed: set[nn.Module], hooks: ExitStack
    ) -> None:
        def record_output(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
            record.outputs = [x[0].clone() for x in list_output_states(output) if x.ndim == 3]

        def record_norm(module: nn.Module, *_: object) -> None:
            if record.layers_run == len(stack):
                record.later_norms.add(module)

        def record_unlisted_layer(path: str, *_: object) -> None:
            record.unlisted_layers.add(path)

        def record_convolution(*_: object) -> None:
            record.mixes_between |= 0 < record.layers_run < len(stack)

        hooks.callback(stack.holder.register_forward_hook(record_output).remove)
        inner_parts = {part for layer in listed for part in layer.modules()}
        for path, module in stack.holder.named_modules():
            if module in inner_parts:
                continue
            if type(module) is type(stack.layers[0].module):
                record_path = partial(record_unlisted_layer, path)
                hooks.callback(module.register_forward_hook(record_path).remove)
            elif isinstance(module, nn.Conv1d) and module.kernel_size[0] > 1:
                hooks.callback(module.register_forward_hook(record_convolution).remove)
        norms = {module for module in stack.holder.children() if is_norm(module)}
        if stack.final_norm is not None:
            norms.add(stack.final_norm)
        for norm in norms:
            hooks.callback(norm.register_forward_hook(record_norm).remove)

    def check_stack(self, stack: Stack) -> None:
        """Check a stack after the forward pass; a ModelError if its table is wrong about the stack
        as a whole."""
        record, label = self.stacks[stack.name], f"{self.model.name}: the {stack.name}"
        if record.layers_run < len(stack) or record.states is None:
            raise ModelError(
                f"{label}: only {record.layers_run} of {len(stack)} layers ran in a forward pass"
            )
        if record.unlisted_layers:
            raise ModelError(
                f"{label}: {', '.join(sorted(record.unlisted_layers))} ran and is not in its list of "
                f"layers {stack.spec.layers!r}. Correct layers in the family's table"
            )
        if record.gaps and record.mixes_between and not stack.spec.between:
            raise ModelError(
                f"{label}: a convolution runs in front of layer {record.gaps[0]}, which the family's table "
                "does not name (between)"
            )
        if stack.spec.between and not record.gaps and len(stack) > 1:
            raise ModelError(
                f"{label}: the family's table names {stack.spec.between}, but each layer reads the output of "
                "the one before. Correct between"
            )
        _check_final_norm(stack, record, label)


def _check_final_norm(stack: Stack, record: StackRecord, label: str) -> None:
    assert record.states is not None
    states = [x for x in record.outputs if x.shape == record.states.shape]
    if states:
        is_right = any(states_agree(x, record.states, effect=0) for x in states)
    else:  # pooled or projected: then the norm must run, and no other
        is_right = record.later_norms == ({stack.final_norm} - {None})
    if not is_right:
        raise ModelError(
            f"{label.replace(': the', ': the output of the')} is not its last layer's output behind "
            f"{stack.spec.final_norm or 'no final norm'}; correct final_norm in the family's table"
        )


def check_tables_agree(model: Model) -> None:
    """Check that stacks of the same layers (a decoder and its cross-attention) are described alike,
    and that no list holds a layer twice.

    They may differ in the studied block only; anything else is a ModelError.
    """
    by_layers: dict[nn.Module, Stack] = {}
    for stack in model.stacks.values():
        if len({layer.module for layer in stack.layers}) < len(stack):
            raise ModelError(
                f"{model.name}: {stack.spec.layers!r} holds a layer of the {stack.name} twice. Correct layers "
                "in the family's table"
            )
        other = by_layers.setdefault(stack.layers[0].module, stack)
        spec = replace(
            stack.spec,
            name=other.name,
            block_index=other.spec.block_index,
            causal=other.spec.causal,
        )
        if spec != other.spec:
            raise ModelError(
                f"{model.name}: the family's table describes the layers {spec.layers!r} in two ways, for "
                f"the {other.name} and the {stack.name}. Correct one of them"
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
    check_tables_agree(model)
    with model.check_random_numbers():
        try:
            pass_record = _record_pass(model, _POSITIONS)
        except SpeechmixError:
            raise
        except Exception:  # some encoders pass on more with the states (rotary tables, lengths), which then do not fit
            pass_record = _record_full_pass(model)
    for stack in list(model.stacks.values()):
        pass_record.check_stack(stack)
        model.stacks[stack.name] = replace(
            stack, unknown_sum_reason=pass_record.stacks[stack.name].unknown_sum_reason
        )


def _record_full_pass(model: Model) -> PassRecord:
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


def _record_pass(model: Model, positions: int | None) -> PassRecord:
    """Run the model on its family's tiny input, check each layer, and return what was seen."""
    pass_record, recorder = PassRecord(model), PartRecorder()

    def on_block(block: Block) -> None:
        recorder.stop()
        if block.clip:
            return
        name = block.stack.name
        layer_label = f"{model.name}, {name} layer {block.layer} ({type(model.module).__name__})"
        structure = layer_structure(block, recorder)
        check_layer(
            block,
            recorder,
            layer_label,
            is_new_structure=structure not in pass_record.structures,
        )
        pass_record.structures.add(structure)
        if sum_reason := explain_unconfirmed_sum(block, recorder):
            pass_record.stacks[name].unknown_sum_reason = sum_reason
        pass_record.add_layer(block)

    check_dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, check_dtype if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    with (
        model.in_use(check_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        varied_gains(model),
        recorder.watch(model),
        pass_record.watch(),
        Capture(list(model.stacks.values()), on_block, max_positions=positions),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return pass_record


# Others (flash) compute the same as "eager" by their definition, and not in every precision.
READABLE_IMPLEMENTATIONS = ("sdpa", "eager")
# For each layer, in single precision: "eager" code has its softmax there, whatever the weights have.
_ROUNDING = 100


def match_original_states(model: Model) -> None:
    """Bind a model's stacks so that what is measured is the model that was passed.

    A ModelError says that the model computes something else under the attention implementation that
    can be read.
    """
    state_difference = measure_difference(model)
    if state_difference is None:
        return
    if model.readable_attention == "sdpa":
        switch_to_eager(model)
        if measure_difference(model) is None:
            return
    implementations = sorted({name for _, name in list_attention_implementations(model.module)})
    raise ModelError(
        f"{model.name}: run as attn_implementation={model.readable_attention!r}, from which "
        "attention is read, "
        f"{type(model.module).__name__} gives other states than as it was given "
        f"({', '.join(implementations)}): they differ by "
        f"{state_difference:.2g} of their largest. {explain_difference(model)}. Load it with attn_implementation='eager'"
    )


def explain_difference(model: Model) -> str:
    """Why a class may compute something else under torch's attention function."""
    if any("sink" in name for name, _ in model.module.named_parameters()):
        return "Its attention sinks are ignored by the sdpa path of this class"
    unsupported_classes = sorted(
        {
            type(submodule).__name__
            for submodule in model.module.modules()
            if _refuses_sdpa(submodule)
        }
    )
    if unsupported_classes:
        return f"{', '.join(unsupported_classes)} says that it does not support sdpa"
    return "Its code computes attention in two ways"


def _refuses_sdpa(module: nn.Module) -> bool:
    return getattr(type(module), "_supports_sdpa", None) is False


def switch_to_eager(model: Model) -> None:
    """Bind all stacks so that attention is read off the softmax of a model that runs as "eager"."""
    for name, stack in list(model.stacks.items()):
        blocks = tuple(replace(block, needs_eager=True) for block in stack.spec.blocks)
        bound = bind_stack(replace(stack.spec, blocks=blocks), model.base, stack.heads)
        if bound is not None:
            model.stacks[name] = replace(
                bound, unknown_sum_reason=stack.unknown_sum_reason or bound.unknown_sum_reason
            )
    model.needs_eager_attention = True


def measure_difference(model: Model) -> float | None:
    """Measure how far the states of the measured model are from those of the given model, as a
    share of the largest.

    None where they are the same up to rounding, where nothing is changed to measure it, and where
    the model cannot be run on the tiny input as it was given: the self-check then says what is
    wrong.
    """
    readable = model.readable_attention
    if all(
        name == readable or (readable == "eager" and name not in READABLE_IMPLEMENTATIONS)
        for _, name in list_attention_implementations(model.base)
    ):
        return None
    for positions in (8, None):  # some encoders cannot be cut
        try:
            original_states = _collect_last_states(model, None, positions)
            measured_states = _collect_last_states(model, readable, positions)
        except (
            Exception
        ):  # a table that does not fit, or a class that refuses to run as it was given
            continue
        return _largest_difference(
            original_states,
            measured_states,
            layer_count=sum(len(stack) for stack in model.stacks.values()),
        )
    return None


def _largest_difference(
    original_states: dict[str, Tensor], measured_states: dict[str, Tensor], *, layer_count: int
) -> float | None:
    tolerance = _ROUNDING * layer_count * torch.finfo(torch.float32).eps
    shares = [
        float((states - measured_states[name]).abs().max() / states.abs().max().clamp_min(1e-30))
        for name, states in original_states.items()
        if name in measured_states
        and states.shape == measured_states[name].shape
        and states.isfinite().all()
    ]
    largest = max(shares, default=0.0)
    return None if largest <= tolerance else largest


def _collect_last_states(
    model: Model, implementation: str | None, positions: int | None
) -> dict[str, Tensor]:
    """Run the tiny input under an attention implementation (None: the one that was given) and
    return each stack's last states."""
    check_dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, check_dtype if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    attention_context = (
        use_attention(model.module, "eager", exceptions=READABLE_IMPLEMENTATIONS)
        if implementation is None
        else use_attention(model.module, implementation)
    )
    with (
        model.in_use(check_dtype),
        torch.no_grad(),
        attention_context,
        _record_last_states(model) as states,
        Capture(
            list(model.stacks.values()), lambda block: None, layers=(), max_positions=positions
        ),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return states


@contextmanager
def _record_last_states(model: Model) -> Iterator[dict[str, Tensor]]:
    """Record the output of each stack's last layer."""
    states: dict[str, Tensor] = {}
    hooks = []
    for name, stack in model.stacks.items():

        def record_states(
            module: nn.Module, args: HookArguments, output: ModelOutput, name: str = name
        ) -> None:
            first_output = output[0] if isinstance(output, tuple) else output
            if isinstance(first_output, Tensor):
                states[name] = first_output

        hooks.append(stack.layers[-1].module.register_forward_hook(record_states))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
