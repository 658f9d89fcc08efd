"""Self-check of a freshly loaded model on a tiny input: does the family's table fit it?

For every stack and layer: attention rows sum to one; replaying the layer with nothing zeroed gives the forward pass
(on chosen rows in another order, so that a layer that is not position-wise is found out); zeroing a value changes the
output; the stack's output is its last layer's behind the final norm. A failure names the module.
"""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

import torch

from ..errors import ModelError
from .blocks import submodule
from .capture import Capture, attention_readable
from .captured import Block
from .carrier import Carrier, described
from .model import Model

# The check runs in float32 or better; attention rows and replay agree to rounding.
_TOLERANCE = 1e-3
_POSITIONS = 8


def self_check(model: Model) -> None:
    """Check a model; raises `ModelError` naming what does not fit."""
    outputs: dict[str, torch.Tensor] = {}
    last: dict[str, torch.Tensor] = {}
    seen: set[tuple[str, int]] = set()

    def on_block(block: Block) -> None:
        where = f"{model.name}, {block.stack.name} layer {block.layer} ({type(model.module).__name__})"
        _check_block(block, where)
        seen.add((block.stack.name, block.layer))
        if block.layer == len(block.stack) - 1:
            last[block.stack.name] = block.states(torch.arange(block.n_targets))

    stacks = list(model.stacks.values())
    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    inputs = {
        key: value.to(model.device, wide if value.is_floating_point() else value.dtype)
        for key, value in model.family.tiny_inputs(model.config).items()
    }
    hooks = _stack_outputs(model, outputs)
    try:
        with (
            model.in_use(wide),
            torch.no_grad(),
            attention_readable(model.module),
            Capture(stacks, on_block, max_positions=_POSITIONS),
        ):
            model.family.run(model.base, inputs, tuple(model.stacks))
    finally:
        for hook in hooks:
            hook.remove()
    for stack in stacks:
        unseen = [layer for layer in range(len(stack)) if (stack.name, layer) not in seen]
        if unseen:
            raise ModelError(f"{model.name}: layers {unseen} of the {stack.name} did not run in a forward pass")
        if stack.name in outputs and not _close(outputs[stack.name], last[stack.name]):
            raise ModelError(
                f"{model.name}: the output of the {stack.name} is not its last layer's output behind "
                f"{stack.plan.final_norm or 'no final norm'}; correct final_norm in the family's table"
            )


def _check_block(block: Block, where: str) -> None:
    rows = torch.arange(block.n_targets, device=block.values.device).flip(0)[: max(1, block.n_targets - 1)]
    attention = block.attention(rows)
    if attention.shape[0] != block.stack.heads:
        raise ModelError(
            f"{where}: expected {block.stack.heads} heads, found attention of shape {tuple(attention.shape)}"
        )
    if not _close(attention.sum(-1), torch.ones_like(attention[..., 0])):
        raise ModelError(f"{where}: rows of the attention weights do not sum to one")
    if block.causal and block.attention().triu(1).any():
        raise ModelError(f"{where}: its table calls it causal, but positions attend to later ones")
    before = block.states(rows)
    if not _close(block.replay(rows, block.context[rows]), before):
        raise ModelError(
            f"{where}: running the layer's modules on a few rows with nothing zeroed does not give its forward pass, so "
            "something besides attention mixes positions, or the table's paths are wrong. Value Zeroing cannot be replayed"
        )
    # All values at once, and any change beyond rounding will do: a single one may be small or never attended to.
    nothing = torch.zeros_like(block.context[rows])
    change = block.replay(rows, nothing) - block.replay(rows, block.context[rows])
    moved = change.abs().max()
    if described(block) and not _close(Carrier(block, rows)(-block.context[rows].flatten(1)[None])[0], change):
        raise ModelError(
            f"{where}: carrying a change through the layer as its table describes it (norms, feed-forward) does not give what "
            "running its modules gives. Correct the table, or leave feed_forwards out so that layers are replayed"
        )
    if moved <= 4 * torch.finfo(before.dtype).eps * before.abs().max():
        raise ModelError(
            f"{where}: zeroing the value vectors changes nothing; is {block.stack.plan.name!r} the right block?"
        )


def _stack_outputs(model: Model, outputs: dict[str, torch.Tensor]) -> list:
    """Record what the module that holds each stack's layers returns (the encoder, the decoder)."""
    hooks = []
    for stack in model.stacks.values():
        parent = stack.plan.layers.rpartition(".")[0]
        if not parent:
            continue

        def keep(module, args, output, name=stack.name):
            outputs[name] = (output if isinstance(output, torch.Tensor) else output[0])[0]

        hooks.append(submodule(model.base, parent, what=stack.name).register_forward_hook(keep))
    return hooks


def _close(x: torch.Tensor, y: torch.Tensor) -> bool:
    return bool((x - y).abs().max() <= _TOLERANCE * (1 + y.abs().max()))


def versions() -> str:
    """Return one line with the versions that decide a result."""
    import transformers

    from .. import __version__

    return (
        f"speechmix {__version__}, transformers {transformers.__version__}, torch {torch.__version__}, "
        f"torchaudio {_installed('torchaudio')}, Python {platform.python_version()}"
    )


@cache
def _installed(package: str) -> str:
    """Version by the package's metadata, which can be read where the package itself cannot be imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
