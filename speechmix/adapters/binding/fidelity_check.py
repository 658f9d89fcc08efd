"""The model as it is measured is the model as it was given: both give the same states on a tiny
input.

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
from .bound_layers import bind

READABLE = (
    "sdpa",
    "eager",
)  # others (flash) compute the same as "eager" by their definition, and not in every precision
# for each layer, in single precision: "eager" code has its softmax there, whatever the weights'
# precision
_ROUNDING = 100


def measure_as_given(model: Model) -> None:
    """Bind a model's stacks so that what is measured is the model that was given.

    Raises
    ------
    ModelError
        If the model computes something else under the implementation that its attention is read
        from.
    """
    found = difference(model)
    if found is None:
        return
    if model.readable_attention == "sdpa":
        read_off_softmax(model)
        if difference(model) is None:
            return
    given = sorted({name for _, name in list_attention_implementations(model.module)})
    raise ModelError(
        f"{model.name}: run as attn_implementation={model.readable_attention!r}, from which "
        "attention is read, "
        f"{type(model.module).__name__} gives other states than as it was given "
        f"({', '.join(given)}): they differ by "
        f"{found:.2g} of their largest. {reason(model)}. Load it with attn_implementation='eager'"
    )


def reason(model: Model) -> str:
    """Why a class may compute something else under torch's attention function."""
    if any("sink" in name for name, _ in model.module.named_parameters()):
        return "Its attention sinks are ignored by the sdpa path of this class"
    without = sorted(
        {type(part).__name__ for part in model.module.modules() if _refuses_sdpa(part)}
    )
    if without:
        return f"{', '.join(without)} says that it does not support sdpa"
    return "Its code computes attention in two ways"


def _refuses_sdpa(part: nn.Module) -> bool:
    return getattr(type(part), "_supports_sdpa", None) is False


def read_off_softmax(model: Model) -> None:
    """Bind all stacks so that attention is read off the softmax of a model that runs as "eager"."""
    for name, stack in list(model.stacks.items()):
        blocks = tuple(replace(block, needs_eager=True) for block in stack.spec.blocks)
        bound = bind(replace(stack.spec, blocks=blocks), model.base, stack.heads)
        if bound is not None:
            model.stacks[name] = replace(bound, unknown_sum=stack.unknown_sum or bound.unknown_sum)
    model.eager_as_given = True


def difference(model: Model) -> float | None:
    """How far the states of a measured model are from those of the model as given, as a share of
    the largest.

    None where they are the same up to rounding, where nothing is changed to measure it, and where
    the model cannot be run on the tiny input as it was given: the self-check then says what is
    wrong.
    """
    readable = model.readable_attention
    if all(
        name == readable or (readable == "eager" and name not in READABLE)
        for _, name in _used(model)
    ):
        return None
    for positions in (8, None):  # some encoders cannot be cut
        try:
            given = _states(model, None, positions)
            measured = _states(model, readable, positions)
        except (
            Exception
        ):  # a table that does not fit, or a class that refuses to run as it was given
            continue
        return _largest_difference(
            given, measured, layers=sum(len(stack) for stack in model.stacks.values())
        )
    return None


def _used(model: Model) -> list[tuple[object, str]]:
    return list_attention_implementations(model.base)


def _largest_difference(
    given: dict[str, Tensor], measured: dict[str, Tensor], *, layers: int
) -> float | None:
    allowed = _ROUNDING * layers * torch.finfo(torch.float32).eps
    shares = [
        float((states - measured[name]).abs().max() / states.abs().max().clamp_min(1e-30))
        for name, states in given.items()
        if name in measured and states.shape == measured[name].shape and states.isfinite().all()
    ]
    largest = max(shares, default=0.0)
    return None if largest <= allowed else largest


def _states(model: Model, implementation: str | None, positions: int | None) -> dict[str, Tensor]:
    """Last states of each stack on the tiny input, under an attention implementation; None for the
    one that was given."""
    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, wide if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    runs = (
        use_attention(model.module, "eager", exceptions=READABLE)
        if implementation is None
        else use_attention(model.module, implementation)
    )
    with (
        model.in_use(wide),
        torch.no_grad(),
        runs,
        _last_states(model) as states,
        Capture(
            list(model.stacks.values()), lambda block: None, layers=(), max_positions=positions
        ),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return states


@contextmanager
def _last_states(model: Model) -> Iterator[dict[str, Tensor]]:
    """What the last layer of each stack gives."""
    states: dict[str, Tensor] = {}
    hooks = []
    for name, stack in model.stacks.items():

        def keep(
            module: nn.Module, args: HookArguments, output: ModelOutput, name: str = name
        ) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                states[name] = first

        hooks.append(stack.layers[-1].module.register_forward_hook(keep))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
