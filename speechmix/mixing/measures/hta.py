"""Hidden token attribution: Jacobian norms of states (Brunner et al. 2020).

    hta         C_ij = || d y_i / d x_j ||_F,    y the layer's output (the last: behind the final norm), x what enters it
    hta_input   C_ij = || d y_i / d x_j ||_F,    x what enters the stack's first layer

For cross-attention x_j are the encoder's states: those that this layer reads (hta), or that all
layers up to it read (hta_input). Norms of pairs of positions are pooled over the positions of both
units. Exact: every row and dimension of y is taken back by one vector-Jacobian product, in batches;
the norm of the whole Jacobian's block needs all of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...adapters.capture.layer_run import first_output
from ...adapters.capture.packed_states import unpack_states
from ...errors import InputError
from .state_replacement import replaced_states

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.capture.attention_block import Block
    from ...adapters.model import Model
    from .gradient_pass import GradientPass
    from .unit_positions import Units

# Products of rows and width that take minutes on a large model: behind that, hours.
_MAX_PRODUCTS, _MAX_PRODUCTS_FROM_INPUT = 2**16, 2**14

# Bytes of the tensors of one batch of vector-Jacobian products.
_HTA_BATCH_BYTES = 2**27


def hta(block: Block, units: Units) -> Tensor:
    """Jacobian norms of a layer's output with respect to what enters the layer.

    Returns
    -------
    Tensor [W_t, W_s]

    Raises
    ------
    InputError
        For more rows than can be differentiated.
    """
    _check_product_count("hta", len(units.rows), block.stack, _MAX_PRODUCTS)
    x = block.inputs.detach().requires_grad_(True)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):  # the kernel whose gradient can be batched
        y = block.rerun(memory=x) if block.stack.name == "cross" else block.rerun(x)
        norms = jacobian_norms(
            y[units.rows], x, _count_batch_products(block.stack, len(y), len(x), x.element_size())
        )
    return units.pool_targets(units.pool_sources(norms))


def hta_input(run: GradientPass, stack: str, units: Units) -> tuple[Tensor, dict[str, object]]:
    """Jacobian norms of the layers' outputs with respect to what enters the stack.

    Returns
    -------
    Tensor [L, W_t, W_s], and a dict with nothing to note

    Raises
    ------
    InputError
        For more rows than can be differentiated.
    """
    run_stack = run.model.stacks[stack]
    _check_product_count("hta_input", len(units.rows), run_stack, _MAX_PRODUCTS_FROM_INPUT)
    maps = []
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        x, outputs = _differentiate_stack(run.model, run.inputs, run_stack)
        for y in (outputs[layer] for layer in run.layers[stack]):
            norms = jacobian_norms(
                y[units.rows], x, _count_batch_products(run_stack, len(y), len(x), x.element_size())
            )
            maps.append(units.pool_targets(units.pool_sources(norms)))
    return torch.stack(maps), {}


def jacobian_norms(outputs: Tensor, inputs: Tensor, batch_size: int) -> Tensor:
    """Return Frobenius norms [R, K] of d outputs_i / d inputs_j, for outputs [R, E] that depend on
    inputs [K, D].

    `batch_size` vector-Jacobian products are computed at once.
    """
    n_rows, width = outputs.shape
    squares = inputs.new_zeros(n_rows, len(inputs))
    for output_indices in torch.arange(n_rows * width, device=inputs.device).split(batch_size):
        seeds = inputs.new_zeros(len(output_indices), n_rows * width)
        seeds[torch.arange(len(output_indices), device=output_indices.device), output_indices] = 1
        gradients = torch.autograd.grad(
            outputs,
            inputs,
            seeds.unflatten(1, (n_rows, width)),
            retain_graph=True,
            is_grads_batched=True,
        )[0]  # [N, K, D]
        squares.index_add_(0, output_indices // width, gradients.square().sum(dim=-1))
    return squares.sqrt()


def _differentiate_stack(
    model: Model, inputs: dict[str, Tensor], stack: Stack
) -> tuple[Tensor, list[Tensor]]:
    """States [K, D] that enter a stack, and the outputs [Q, D] of its layers as functions of
    them."""
    entering_states: list[Tensor] = []
    outputs: list[Tensor] = []

    def store_states(_: str, layer: int, x: Tensor) -> Tensor:
        if not entering_states:
            entering_states.append(x[0].detach().requires_grad_(True))
        return entering_states[0][None]  # in "cross", all layers read the same states

    with ExitStack() as hooks:
        for layer in stack.layers:
            hook_handle = layer.module.register_forward_hook(
                lambda _, args, y: outputs.append(unpack_states(first_output(y))[0])
            )
            hooks.callback(hook_handle.remove)
        hooks.enter_context(
            replaced_states(
                model,
                {stack.name: range(len(stack)) if stack.name == "cross" else [0]},
                store_states,
            )
        )
        model.family.run(model.base, inputs, (stack.name,))
    if stack.final_norm is not None:
        outputs[-1] = stack.final_norm(outputs[-1])
    return entering_states[0], outputs


def _check_product_count(measure: str, n_rows: int, stack: Stack, max_products: int) -> None:
    if n_rows * stack.width > max_products:
        raise InputError(
            f"{measure} of the {stack.name}: {n_rows} rows x {stack.width} dimensions are "
            f"{n_rows * stack.width} backward "
            f"passes a layer, more than {max_products}, which would take hours: ask for fewer rows with "
            "targets= (up to "
            f"{max_products // stack.width} positions), for instance targets='target'"
        )


def _count_batch_products(stack: Stack, n_targets: int, n_sources: int, itemsize: int) -> int:
    """Vector-Jacobian products that fit the memory for a batch: attention weights and inner states
    of one layer each."""
    numbers = 3 * stack.heads * n_targets * n_sources + 12 * max(n_targets, n_sources) * stack.width
    return max(1, _HTA_BATCH_BYTES // (numbers * itemsize))
