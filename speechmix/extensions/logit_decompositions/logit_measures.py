"""The package's measures of scope "logit": ALTI-Logit, DecompX and LRP, as the registry knows them.

In: a `LogitPass` and objectives that are logits. Out: the fields of `LogitContributions` for each
objective.

Model, head and item that a logit measure works on.

In: a model in the precision of the request, and a prepared item. Out: its inputs, its sources by
side, and the logits of a plain forward pass, for functions that split a logit into contributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...adapters.capture.device_copy import to_host
from ...adapters.model import Model
from ...inputs.words.spans import Span
from ...mixing.maps.logit_contributions import LogitTerms
from ...mixing.measures.measure_functions import implement
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest
from .alti_logit_passes import AltiLogitReader, decompose_by_alti_logit, prenorm_output_stack
from .decompx_logit import check_decompx_covers, decompose_by_decompx
from .relevance_pass import check_lrp_covers, decompose_by_lrp

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


def alti_logit(
    logit_pass: LogitPass, objectives: Sequence[Objective], *, reference: bool = False
) -> list[LogitTerms]:
    """Return ALTI-Logit's contributions, by a pass that tells what is read and one that takes
    attention blocks apart.

    `reference` adds 1e-6 to every coordinate of ALTI's differences, as the published code does: its
    rows then reach a few millionths into the future.
    """
    return decompose_by_alti_logit(
        logit_pass.model,
        logit_pass.view,
        logit_pass.request,
        logit_pass.inputs,
        objectives,
        reference=reference,
    )


def decompx(logit_pass: LogitPass, objectives: Sequence[Objective]) -> list[LogitTerms]:
    """Return DecompX's contributions, in one row for all layers."""
    by_source, outside, logits = to_host(
        list(decompose_by_decompx(logit_pass.model, logit_pass.view, logit_pass.inputs, objectives))
    )
    return [
        {
            "scores": {"encoder": by_source[index : index + 1].astype(float)},
            "direct": {},
            "layer_parts": {"outside": outside[index : index + 1].astype(float)},
            "single_parts": {},
            "logit": float(logits[index]),
        }
        for index in range(len(objectives))
    ]


def lrp(logit_pass: LogitPass, objectives: Sequence[Objective]) -> list[LogitTerms]:
    """Return LRP's contributions, by relevance that one pass propagates back."""
    return decompose_by_lrp(logit_pass.model, logit_pass.view, logit_pass.inputs, objectives)


implement("alti_logit", alti_logit, check=prenorm_output_stack, block_reader=AltiLogitReader)
implement("decompx", decompx, check=check_decompx_covers, details=("position", "label_id"))
# LRP: in single precision it misses by less than ten roundings, and by a thousand where a rule is
# missing.
implement(
    "lrp",
    lrp,
    check=check_lrp_covers,
    details=("position", "label_id"),
    roundings=200,
    mismatch="it computes something that no rule covers (a product of states, a function of them)",
)
