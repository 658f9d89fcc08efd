"""A captured attention block: what a measure sees of one layer while the forward pass runs.

Attention weights of chosen rows, values, the layer's output states; `LayerRun` (layer_run.py) runs
the rest of the layer on rows whose attention context was changed.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ...errors import ModelError
from ..binding.layer_components import module_bias, projection_weight
from .layer_run import LayerRun


class Block(LayerRun):
    """One attention block of one layer, captured: what a measure sees."""

    _cached_weights: tuple[Tensor | None, Tensor] | None = None

    @property
    def causal(self) -> bool:
        return self.stack.spec.causal

    @property
    def n_sources(self) -> int:
        return self._call.key.shape[1]

    @property
    def unmasked_sources(self) -> list[int]:
        """Source positions that the attention mask leaves to some target; padding is left to
        none."""
        mask = self._call.mask
        if self._call.alpha is not None:
            mask = self._call.alpha > 0
        if mask is None:
            return list(range(self.n_sources))
        is_unmasked = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        is_attended = is_unmasked.flatten(0, -2).any(dim=0).expand(self.n_sources)
        return is_attended.nonzero()[:, 0].tolist()

    @property
    def values(self) -> Tensor:
        """Value vectors, bias in, [H, K, d]."""
        return self._call.value

    def attention(self, rows: Tensor | None = None) -> Tensor:
        """Return attention weights [H, R, K] of target positions; the last ones are cached."""
        if self._cached_weights is None or self._cached_weights[0] is not rows:
            self._cached_weights = (rows, self._call.weights(rows))
        return self._cached_weights[1]

    def sink(self, rows: Tensor) -> Tensor | float:
        """Share of the attention [H, R] that goes to no position (attention sinks); 0 where the
        model has none."""
        return 0.0 if self._call.sink is None else self._call.sink[:, rows]

    @cached_property
    def context(self) -> Tensor:
        """Attention-weighted values before the output projection, [Q, H, d]."""
        if self._call.context is not None:
            return self._call.context
        return (self.attention() @ self.values).transpose(0, 1)

    def context_without(self, source_indices: slice | Tensor, heads: slice = slice(None)) -> Tensor:
        """Return the context [Q, H, d] with the values of some sources at zero, in some heads."""
        context, values = self.context.clone(), self.values[heads]
        alpha = self.attention()[heads]  # [H', Q, K]
        if (
            self.modules.attention.is_rerun
        ):  # a norm behind it would amplify what a difference rounds
            alpha = alpha.clone()
            alpha[:, :, source_indices] = 0
            context[:, heads] = (alpha @ values).transpose(0, 1)
        else:
            removed = alpha[:, :, source_indices] @ values[:, source_indices]
            context[:, heads] -= removed.transpose(0, 1)
        return context

    @property
    def output_weight(self) -> Tensor:
        """Output projection W_O split by head, [H, d, D].

        Raises
        ------
        ModelError
            If it reads something else than the context (`AttentionSpec.is_rerun`).
        """
        if self.modules.attention.is_rerun:
            raise ModelError(
                f"in the {self.stack.name} something lies between attention and its output projection (a "
                "gate or a norm), or its sum is not known: measures that decompose attention's output have "
                "no equation there; value_zeroing and attention do"
            )
        weight = projection_weight(self.modules.attention.output)  # [D, H d]
        return weight.T.reshape(self.values.shape[0], -1, weight.shape[0])

    @property
    def output_bias(self) -> Tensor:
        """Bias of the output projection, [D]; zeros where it has none."""
        bias = module_bias(self.modules.attention.output)
        return self._trace.hidden.new_zeros(self.stack.width) if bias is None else bias

    def attention_output(self, rows: Tensor) -> Tensor:
        """Return the attention block's output at the rows, behind its output projection, [R, D]."""
        projection = self.modules.attention.output
        if self.modules.attention.is_rerun:
            return self._trace.projections[projection][0, rows]
        return self.recorded_output(
            projection, rows, lambda: projection(self.context[rows].flatten(1))
        )

    @property
    def floats_per_pair(self) -> int:
        """About how many numbers a (target position, source) pair takes in the delta engine."""
        later_indices = range(self.modules.studied_index + 1, len(self.modules.attentions))
        later_calls = [
            self.call(attention_index)
            for attention_index in later_indices
            if attention_index in self._trace.calls
        ]
        feed_forward_width = max(
            (
                projection_weight(feed_forward.up).shape[0]
                for feed_forward in self.modules.feed_forwards
            ),
            default=4 * self.stack.width,
        )
        return (
            6 * self.stack.width
            + 2 * feed_forward_width
            + sum(3 * call.key.shape[0] * call.key.shape[1] for call in later_calls)
        )
