"""Model, head and item that a logit measure works on.

In: a model in the precision of the request, and a prepared item. Out: its inputs, its sources by
side, and the logits of a plain forward pass, for functions that split a logit into contributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...adapters.model import Model
from ...inputs.words.spans import Span
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class LogitPass:
    """A model and an item, whose logits a measure splits into contributions of its sources.

    Parameters
    ----------
    model : Model
        With its head, in use.
    view : View
        The item, prepared.
    request : MixRequest
    inputs : dict of str to Tensor
        On the model's device.
    """

    model: Model
    view: View
    request: MixRequest
    inputs: Mapping[str, Tensor]

    def sources(self, side: str) -> Sequence[Span]:
        """The units of a side ("encoder", "decoder") whose contributions are returned, in their
        order."""
        return self.view.sources(side)
