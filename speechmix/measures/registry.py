"""Measures by name, each with one line of description and its citation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..errors import InputError
from .alti import alti
from .attention import attention
from .attention_norm import attention_norm
from .decompositions import VECTORS, attention_norm_residual, attention_norm_residual_layernorm, globenc, mixing_ratio
from .gradients import deeplift, gradient_input, integrated_gradients
from .hta import hta, hta_input
from .random_baseline import random_baseline
from .value_zeroing import value_zeroing


@dataclass(frozen=True)
class Measure:
    """A measure, by its scope.

    "block": ``function(block, units, distance=, heads=, batch_size=)`` gives a map of one layer. "pass":
    ``function(gradient_pass, stack, units, steps=, baseline=)`` gives the maps of a stack's layers and a dict to note.
    With `objective` they have one row, what a scalar of the model's output owes each source.
    """

    name: str
    function: Callable
    description: str
    citation: str
    distances: bool = False
    scope: str = "block"
    objective: bool = False


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            "value_zeroing",
            value_zeroing,
            "how far a target's layer output moves when the source's value vectors are zeroed",
            "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL",
            distances=True,
        ),
        Measure(
            "attention",
            attention,
            "attention weights",
            "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and Translate, ICLR",
        ),
        Measure(
            "attention_norm",
            attention_norm,
            "length of the attention-weighted, projected value vectors",
            "Kobayashi et al. 2020, Attention is Not Only a Weight, EMNLP",
        ),
        Measure(
            "attention_norm_residual",
            attention_norm_residual,
            "attention norm with the residual stream in a target's own vector",
            "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language "
            "Models, EMNLP",
        ),
        Measure(
            "attention_norm_residual_layernorm",
            attention_norm_residual_layernorm,
            "attention norm with residual stream and layer norm (post-norm stacks)",
            "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language "
            "Models, EMNLP",
        ),
        Measure(
            "globenc",
            globenc,
            "attention norm with residual stream and both layer norms of the layer (post-norm encoders)",
            "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder "
            "Layer in Transformers, NAACL",
        ),
        Measure(
            "alti",
            alti,
            "how much nearer (L1) the source's part brings a target to the attention block's output",
            "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, EMNLP",
        ),
        Measure(
            "alti_l2",
            partial(alti, order=2),
            "as alti, with L2 lengths",
            "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, EMNLP",
        ),
        Measure(
            "hta",
            hta,
            "length of the Jacobian of a target's layer output with respect to the source's state that enters the layer",
            "Brunner et al. 2020, On Identifiability in Transformers, ICLR; Pascual et al. 2021, Telling BERT's Full Story",
        ),
        Measure(
            "hta_input",
            hta_input,
            "as hta, with respect to the source's state that enters the stack",
            "Brunner et al. 2020, On Identifiability in Transformers, ICLR; Pascual et al. 2021, Telling BERT's Full Story",
            scope="pass",
        ),
        Measure(
            "gradient_input",
            gradient_input,
            "gradient of a scalar of the model's output, times the state that enters a layer",
            "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences, ICML",
            scope="pass",
            objective=True,
        ),
        Measure(
            "integrated_gradients",
            integrated_gradients,
            "gradient of a scalar of the model's output along a path from a baseline, times the way from there",
            "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, ICML",
            scope="pass",
            objective=True,
        ),
        Measure(
            "deeplift",
            deeplift,
            "as gradient_input from a baseline, with the rescale rule at activations (captum)",
            "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences, ICML",
            scope="pass",
            objective=True,
        ),
        Measure(
            "random",
            random_baseline,
            "random scores, the same whenever the clip is scored",
            "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL (random baseline)",
        ),
    )
}


# One number per target instead of a map, by the vectors it is taken of; see `MixingMap.mixing_ratio`.
MIXING_RATIOS: dict[str, Measure] = {
    f"mixing_ratio_{vectors}": Measure(
        f"mixing_ratio_{vectors}",
        partial(mixing_ratio, vectors=vectors),
        f"how much of a target's state comes from other units, of the vectors of {vectors}",
        "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, "
        "EMNLP",
    )
    for vectors in VECTORS
}


def measure_named(name: str) -> Measure:
    """Look a measure (or a mixing ratio) up; the error lists what there is."""
    found = MEASURES.get(name) or MIXING_RATIOS.get(name)
    if found is None:
        raise InputError(f"unknown measure {name!r}; there are {', '.join((*MEASURES, *MIXING_RATIOS))}")
    return found
