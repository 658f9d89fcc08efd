"""Check on a tiny input that the measured model gives the same states as the original.

To be read, a transformers model runs under another attention implementation than it was loaded with
("sdpa"). Some models then compute something else: torch's function ignores attention sinks, and
other code adds positions (ALiBi) in another way. Such a model is measured under "eager", as it was
given, and its attention is read off its softmax. In: a loaded `Model`. Out: nothing; its stacks are
bound again, or an error names the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ..capture.forward_pass import Capture, list_attention_implementations, use_attention
from ..model import Model
from ..transformers_types import HookArguments, ModelOutput
from .bound_layers import bind_stack

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
