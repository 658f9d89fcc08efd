"""maps_and_logits(): maps of layers, and logits taken apart by ALTI-Logit, from one forward pass.

In: a `Model` with its head, and one item. Out: what `mix` and `logit_contributions` give for it,
each of which would run the model, and read the same attention weights, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...adapters.capture.block import Block
from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.model import Model
from ...files.timing import phase
from ..maps.logit_contributions import LogitContributions
from ..maps.map_files import folders_of
from ..maps.mixing_map import Maps
from ..measures.objectives import Objective
from ..measures.unit_positions import Units
from .alti_logit_passes import PartsByLayer, writing_stack
from .forward_pass import Precision, answers, provenance_of
from .logit_contributions import labelled, of_a_logit
from .request import ObjectiveOption, Question
from .views import Item, View

MEASURE = "alti_logit"


def maps_and_logits(
    model: Model,
    item: Item,
    measures: Sequence[str],
    objectives: Sequence[ObjectiveOption],
    **options: Any,
) -> tuple[Maps, list[LogitContributions]]:
    """Maps of measures of single layers, in all stacks, and ALTI-Logit's parts of each objective.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or dict of tensors
        As in `mix`.
    measures : sequence of str
    objectives : sequence
        Each as in `logit_contributions`.
    **options
        Further ones of both.

    Raises
    ------
    InputError, ModelError
        As both.
    """
    writing_stack(model)
    question = Question.of({**options, "measures": list(measures), "stacks": list(model.stacks)})
    precision = Precision.of(model, question)
    begun: list[tuple[View, list[Objective], PartsByLayer]] = []

    def beside(
        view: View, units: Mapping[str, Units], precision: Precision
    ) -> Callable[[Block], None]:
        resolved = [of_a_logit(option, model, view, MEASURE) for option in objectives]
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        with phase(MEASURE):
            begun.append(
                (view, resolved, PartsByLayer(model, view, question, inputs, resolved, units))
            )

        def on_block(block: Block) -> None:
            with phase(MEASURE):
                begun[0][2].on_block(block)

        return on_block

    [maps] = answers(model, [item], folders_of(None, [item]), question, precision, "auto", beside)
    view, resolved, taken = begun[0]
    provenance = {**provenance_of(model, view, question, precision), "reference": False}
    return maps, labelled(model, view, MEASURE, taken.values(), resolved, provenance, precision)
