"""What moves what in a planted model, by running the Hugging Face model plainly: no measure, no
engine of the package.

A state is exchanged for that of the run on the negated contents, or an input is negated, and the
states above are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from speechmix.extensions.planted.planting import Planted


def layers_of(planted: Planted, stack: str) -> list[nn.Module]:
    """Layers of a stack, as transformers names them; those of "cross" are the decoder's."""
    module = planted.model.module
    if planted.family == "whisper":
        return list((module.model.encoder if stack == "encoder" else module.model.decoder).layers)
    return list(
        {
            "bert": lambda: module.bert.encoder.layer,
            "gpt2": lambda: module.transformer.h,
            "wav2vec2": lambda: module.wav2vec2.encoder.layers,
        }[planted.family]()
    )


def reader_of(layer: nn.Module, stack: str) -> tuple[nn.Module, str]:
    """The module into which a stack's source states go, and by which keyword (none: the first
    argument)."""
    return (layer.encoder_attn, "key_value_states") if stack == "cross" else (layer, "")


def states_of(output) -> Tensor:
    return (output[0] if isinstance(output, tuple) else output).detach()


@contextmanager
def hooked(handles: list) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(
    planted: Planted,
    items: list[Mapping[str, Tensor]],
    entering: Mapping[nn.Module, tuple[str, Callable]] | None = None,
):
    """Run items in one batch with what enters some modules changed; outputs of all layers by stack,
    [N, T, D] each."""
    outputs: dict[str, list[Tensor]] = {stack: [] for stack in planted.model.stacks}

    def changed(keyword: str, change: Callable) -> Callable:
        def hook(_, args, kwargs):
            keyword_here = keyword or ("" if args else "hidden_states")
            if keyword_here in kwargs:
                return args, {**kwargs, keyword_here: change(kwargs[keyword_here])}
            return (change(args[0]), *args[1:]), kwargs

        return hook

    handles = [
        module.register_forward_pre_hook(changed(*how), with_kwargs=True)
        for module, how in (entering or {}).items()
    ]
    for stack, into in outputs.items():
        for layer in layers_of(planted, stack):
            handles.append(
                layer.register_forward_hook(lambda _, args, y, into=into: into.append(states_of(y)))
            )
    with hooked(handles), torch.no_grad():
        planted.model.module(**together(items))
    return outputs


def together(items: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([item[name] for item in items]) for name in items[0]}


def margins(planted: Planted, items: list[Mapping[str, Tensor]]) -> list[float]:
    """Logit of the target less that of the foil where something is said, of each item."""
    with torch.no_grad():
        logits = planted.model.module(**together(items)).logits[:, planted.position]
    return (logits[:, planted.target_id] - logits[:, planted.foil_id]).tolist()


def moves_of_edges(planted: Planted, stack: str) -> Tensor:
    """How far each layer's output at each target moves when one source's state is that of the
    negated contents, [L, T, S]."""
    readers = [reader_of(layer, stack) for layer in layers_of(planted, stack)]
    entered: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        entered.append(x)
        return x

    run(
        planted,
        [planted.negate_contents()],
        {module: (keyword, keep) for module, keyword in readers},
    )
    before = run(planted, [planted.item])
    moves = []
    for layer, (module, keyword) in enumerate(readers):
        each = torch.arange(entered[layer].shape[1])

        def exchange(x: Tensor, each=each, negated=entered[layer][0]) -> Tensor:
            changed = x.clone()
            changed[each, each] = negated  # one source in each item of the batch
            return changed

        after = run(planted, [planted.item] * len(each), {module: (keyword, exchange)})
        moves.append((after[stack][layer] - before[stack][layer]).norm(dim=-1).T)
    return torch.stack(moves)


def moves_of_inputs(planted: Planted) -> dict[tuple[str, int, str, int], float]:
    """How far each final state moves when one input's content is negated: by target stack and
    position, source and position."""
    before = run(planted, [planted.item])
    inputs = inputs_with_content(planted)
    after = run(planted, [planted.negate_contents([place]) for place in inputs])
    return {
        (stack, target, *place): float(distance)
        for stack in planted.contents
        for place, row in zip(
            inputs, (after[stack][-1] - before[stack][-1]).norm(dim=-1), strict=True
        )
        for target, distance in enumerate(row)
    }


def inputs_with_content(planted: Planted) -> list[tuple[str, int]]:
    return [
        (stack, p) for stack, contents in planted.contents.items() for p in range(1, len(contents))
    ]


def margin_without(planted: Planted, zeroed: Callable[[nn.Module], list]) -> float:
    """The margin while hooks are set by `zeroed(model)`, which returns their handles."""
    with hooked(zeroed(planted.model.module)), torch.no_grad():
        logits = planted.model.module(**planted.item).logits[0, planted.position]
    return float(logits[planted.target_id] - logits[planted.foil_id])
