"""What is known of each measure besides how it is computed: what it counts, where it is defined, how its maps are to be read.

In: a measure's name. Out: its `Facts`, for whoever shows, composes, compares or checks maps. How a measure is computed is
the measures room's; `speechmix.register_measure` adds one of your own to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..errors import InputError

STACKS = ("encoder", "decoder", "cross")

# A change grows with a word's frames, a cosine distance with the square of the change; means per frame do not grow.
_OF_CHANGE = {"cosine": 2.0, "correlation": 2.0}
_OF_CHANGE |= dict.fromkeys(("euclidean", "manhattan", "unit_euclidean", "unit_manhattan"), 1.0)
_OF_MEANS = {"": 0.0}


@dataclass(frozen=True)
class Facts:
    """What is known of a measure.

    Parameters
    ----------
    name : str
    description : str
        What a score counts, in one line.
    citation : str
        Where the measure is defined.
    scope : {"block", "pass"}
        What its function sees: a captured attention block, or the whole model as a differentiable function.
    objective : bool
        True if it explains one number of the model's output: its maps have a single row.
    at_one_position : bool
        True if what it explains must be read at one position of the output.
    word : str
        How a word of several frames counts: "as a whole", "mean per frame" (pair of positions), ...
    length_exponent : mapping of str to float
        By distance ("" for any): b in the share n^b that a word of n frames gets, other things being equal. Empty: not known.
    residual : {"in", "out", "share"}
        Where the residual stream is: in a target's own score; left out, so that rolling maps out adds the identity (Abnar
        & Zuidema 2020); or, in cross-attention, what a row lacks to one.
    residual_size : bool
        True if a target's own score holds the size of the residual stream, so that a layer that changes nothing has the
        identity as its map: such maps are composed without mixing strengths.
    cross : bool
        True if it is defined for cross-attention.
    norms : int
        Layer norms behind the residual sum that it passes: it is then defined for post-norm stacks alone.
    no_heads : str
        Why there is no form per head, as the error says it; empty if there is one.
    revision : int
        Raised by one when the same input gives other scores from now on, as after a correction: stored scores of a former
        revision are then made again, and never in one table with new ones.
    """

    name: str
    description: str
    citation: str
    scope: Literal["block", "pass"] = "block"
    objective: bool = False
    at_one_position: bool = False
    word: str = "mean per frame"
    length_exponent: Mapping[str, float] = field(default_factory=dict)
    residual: Literal["in", "out", "share"] = "in"
    residual_size: bool = False
    cross: bool = True
    norms: int = 0
    no_heads: str = ""
    revision: int = 1


_RESIDUAL_HAS_NO_HEAD = (
    ", because the residual stream (or the norm behind it) belongs to no single head; ask for heads='mean', or for "
    "attention_norm per head"
)
_DIFFERENTIATES = ": it differentiates the whole {what}; ask for heads='mean'"
_LAYER, _MODEL = _DIFFERENTIATES.format(what="layer"), _DIFFERENTIATES.format(what="model")

_VALUE_ZEROING = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL"
_KOBAYASHI_2021 = (
    "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, "
    "EMNLP"
)
_ALTI = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, EMNLP"
_HTA = "Brunner et al. 2020, On Identifiability in Transformers, ICLR; Pascual et al. 2021, Telling BERT's Full Story"
_CHEFER = (
    "Chefer, Gur & Wolf 2021, Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder "
    "Transformers, ICCV"
)
_DEEPLIFT = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences, ICML"

_IN_ORDER = (
    Facts(
        "value_zeroing",
        "how far a target's layer output moves when the source's value vectors are zeroed",
        _VALUE_ZEROING,
        word="as a whole",
        length_exponent=_OF_CHANGE,
    ),
    Facts(
        "value_zeroing_share",
        "as value_zeroing, with the share of cross-attention in a row measured: all values of a block zeroed",
        f"{_VALUE_ZEROING} (the share: this package)",
        word="as a whole",
        length_exponent=_OF_CHANGE,
        residual="share",
        no_heads=", because the share is one of the whole block",
    ),
    Facts(
        "attention",
        "attention weights",
        "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and Translate, ICLR",
        length_exponent=_OF_MEANS,
        residual="out",
    ),
    Facts(
        "entropy_attention",
        "attention weights, heads that look at few sources counting more",
        "Ranjan et al. 2026, Listening with Attention: Entropy-Guided Explainability for Transformer-Based Audio Models, "
        "Interspeech (its idea; the weights are this package's)",
        length_exponent=_OF_MEANS,
        residual="out",
        no_heads=": heads are joined by their entropy; ask for heads='mean', or for attention per head",
    ),
    Facts(
        "attention_norm",
        "length of the attention-weighted, projected value vectors",
        "Kobayashi et al. 2020, Attention is Not Only a Weight, EMNLP",
        length_exponent=_OF_MEANS,
        residual="out",
    ),
    Facts(
        "attention_norm_residual",
        "attention norm with the residual stream in a target's own vector",
        _KOBAYASHI_2021,
        cross=False,
        residual_size=True,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    Facts(
        "attention_norm_residual_layernorm",
        "attention norm with residual stream and layer norm (post-norm stacks)",
        _KOBAYASHI_2021,
        cross=False,
        norms=1,
        residual_size=True,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    Facts(
        "globenc",
        "attention norm with residual stream and both layer norms of the layer (post-norm encoders)",
        "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in "
        "Transformers, NAACL",
        cross=False,
        norms=2,
        residual_size=True,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    Facts(
        "alti",
        "how much nearer (L1) the source's part brings a target to the attention block's output",
        _ALTI,
        word="as a whole",
        residual="share",
        residual_size=True,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    Facts(
        "alti_l2",
        "as alti, with L2 lengths",
        _ALTI,
        word="as a whole",
        residual="share",
        residual_size=True,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    Facts(
        "hta",
        "length of the Jacobian of a target's layer output with respect to the source's state that enters the layer",
        _HTA,
        residual_size=True,
        no_heads=_LAYER,
    ),
    Facts(
        "hta_input",
        "as hta, with respect to the source's state that enters the stack",
        _HTA,
        scope="pass",
        residual_size=True,
        no_heads=_MODEL,
    ),
    Facts(
        "gradient_input",
        "gradient of a scalar of the model's output, times the state that enters a layer",
        _DEEPLIFT,
        scope="pass",
        objective=True,
        no_heads=_MODEL,
    ),
    Facts(
        "integrated_gradients",
        "gradient of a scalar of the model's output along a path from a baseline, times the way from there",
        "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, ICML",
        scope="pass",
        objective=True,
        no_heads=_MODEL,
    ),
    Facts(
        "deeplift",
        "as gradient_input from a baseline, with the rescale rule at activations (captum)",
        _DEEPLIFT,
        scope="pass",
        objective=True,
        no_heads=_MODEL,
    ),
    Facts(
        "chefer",
        "gradient of a logit times attention weights, where above zero, handed down through the layers",
        _CHEFER,
        scope="pass",
        objective=True,
        at_one_position=True,
        no_heads=_MODEL,
    ),
    Facts(
        "random",
        "random scores, the same whenever the clip is scored",
        f"{_VALUE_ZEROING} (random baseline)",
        word="drawn for each unit",
    ),
)

FACTS: dict[str, Facts] = {facts.name: facts for facts in _IN_ORDER}

# Measures to the output: their parts add up to a logit and have signs, so they are no maps; see `logit_contributions`.
TO_OUTPUT: dict[str, Facts] = {
    "alti_logit": Facts(
        "alti_logit",
        "what each source adds to a logit, layer by layer, traced back to inputs by ALTI (pre-norm stacks)",
        "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, ACL",
        objective=True,
        word="as a whole",
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    "decompx": Facts(
        "decompx",
        "what each source adds to a logit, as a vector carried through every layer and the head (encoders)",
        "Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token Decomposition, ACL",
        objective=True,
        word="as a whole",
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    ),
    "lrp": Facts(
        "lrp",
        "what each source adds to a logit, by relevance that is propagated back through every layer (AttnLRP's rules)",
        "Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers, ICML",
        objective=True,
        word="as a whole",
        no_heads=_MODEL,
    ),
}

# The measures whose vectors a mixing ratio can be taken of; see `MixingMap.mixing_ratio`.
RATIO_OF = ("attention_norm", "attention_norm_residual", "attention_norm_residual_layernorm", "globenc")


def _ratio_of(vectors: str) -> Facts:
    """Facts of a mixing ratio: one number per target instead of a map, defined where the vectors are that it is taken of."""
    return replace(
        FACTS[vectors],
        name=f"mixing_ratio_{vectors}",
        description=f"how much of a target's state comes from other units, of the vectors of {vectors}",
        citation=_KOBAYASHI_2021,
        length_exponent={},
        residual="in",
        cross=False,
        no_heads=_RESIDUAL_HAS_NO_HEAD,
    )


RATIO_FACTS: dict[str, Facts] = {facts.name: facts for facts in map(_ratio_of, RATIO_OF)}


def facts_of(name: Any) -> Facts:
    """Facts of a measure or a mixing ratio.

    Raises
    ------
    InputError
        If there is none of that name; the error lists what there is.

    Examples
    --------
    >>> facts_of("attention").residual
    'out'
    """
    facts = (FACTS.get(name) or RATIO_FACTS.get(name)) if isinstance(name, str) else None
    if isinstance(name, str) and name in TO_OUTPUT and facts is None:
        raise InputError(
            f"{name} gives parts that add up to a logit, not maps: speechmix.logit_contributions(model, item, measure={name!r})"
        )
    if facts is None:
        raise InputError(f"unknown measure {name!r}; there are {', '.join((*FACTS, *RATIO_FACTS))}")
    return facts


def revision_of(name: str) -> int:
    """Revision of a measure, a mixing ratio or a measure of the output; 1 for a name nobody knows.

    Examples
    --------
    >>> revision_of("attention")
    1
    """
    facts = FACTS.get(name) or RATIO_FACTS.get(name) or TO_OUTPUT.get(name)
    return 1 if facts is None else facts.revision


def residual_left_out(measure: str) -> bool:
    """True if a map of this measure leaves out the residual stream; of a name nobody knows: False."""
    return measure in FACTS and FACTS[measure].residual == "out"


def composed_by_strength(measure: str) -> bool:
    """True if maps of this measure are weighted by mixing strengths when layers are composed, where they have some.

    Examples
    --------
    >>> composed_by_strength("value_zeroing"), composed_by_strength("alti")
    (True, False)
    """
    return measure not in FACTS or not FACTS[measure].residual_size
