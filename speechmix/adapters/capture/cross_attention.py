"""Cross-attention weights of one run, from its queries and keys, whatever attention the model computes with.

In: a model with cross-attention that runs once. Out: weights of chosen rows and heads. Nothing of the run
changes, and weights that nobody needs are not computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from ...errors import ModelError
from ..transformers_types import HookArguments

if TYPE_CHECKING:
    from ..model import Model


class CapturedAttention:
    """Queries and keys of the cross-attention of one run, and the weights that follow from them."""

    def __init__(self, head_count: int):
        self._head_count = head_count
        self.queries: list[Tensor] = []  # of each layer [T, D]
        self.keys: list[Tensor] = []  # [S, D]

    def weights(
        self, rows: Sequence[int], heads: Sequence[tuple[int, int]] | None = None
    ) -> np.ndarray:
        """Return attention weights [heads, rows, S]; of all heads, or those of (layer, head)."""
        by_layer = []
        for layer, (query, key) in enumerate(zip(self.queries, self.keys, strict=True)):
            head_indices = [
                head for head in range(self._head_count) if heads is None or (layer, head) in heads
            ]
            size = query.shape[-1] // self._head_count
            queries = query[list(rows)].view(len(rows), -1, size)[:, head_indices].transpose(0, 1)
            keys = key.view(len(key), -1, size)[:, head_indices].transpose(0, 1)
            scores = queries.float() @ keys.float().transpose(1, 2) / size**0.5
            by_layer.append(scores.softmax(dim=-1).cpu().numpy())
        return np.concatenate(by_layer)


@contextmanager
def capture_attention(model: Model) -> Iterator[CapturedAttention]:
    """Record queries and keys of the cross-attention while a model runs once."""
    stack = model.stacks["cross"]
    captured = CapturedAttention(stack.heads)
    with ExitStack() as exit_stack:
        for layer in stack.layers:
            query = layer.attention.query or getattr(layer.attention.module, "q_proj", None)
            for module, store in (
                (query, captured.queries),
                (layer.attention.key, captured.keys),
            ):
                if module is None:
                    raise ModelError(
                        f"{model.name}: its table names no query projections in cross-attention"
                    )
                hook = partial(_store_output, store=store)
                exit_stack.callback(module.register_forward_hook(hook).remove)
        yield captured


def _store_output(
    module: nn.Module, args: HookArguments, output: Tensor, *, store: list[Tensor]
) -> None:
    store.append(output[0] if output.ndim == 3 else output)
