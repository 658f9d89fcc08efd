"""Registry of measures' properties by name, built-in and user-registered.

In: a measure's name. Out: its `MeasureFacts`, for everything that computes, shows, composes, compares or
checks scores. The functions are in `speechmix.mixing.measures.measure_functions`;
`speechmix.register_measure` adds to both.

Properties that a measure declares about itself.

Table of built-in measures and their properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal

from ...errors import InputError
from ...extension import import_measures


@dataclass(frozen=True)
class MeasureFacts:
    """What is known of a measure.

    Parameters
    ----------
    name : str
    description : str
        What a score counts, in one line.
    citation : str
        Where the measure is defined.
    scope : {"layer", "model", "logit", "removal"}
        What its function gets: a captured attention block; the whole model as a differentiable
        function; the model and a logit, which it splits into contributions; or the margins of an
        item without any set of its sources. The first two give maps (`speechmix.mix`), the third
        contributions (`speechmix.logit_contributions`).
    objective : bool
        True if it explains one number of the model's output: its maps have a single row. Always
        true of "logit" and "removal".
    at_one_position : bool
        True if what it explains must be read at one position of the output. Always true of "logit".
    word : {"mean per frame", "as a whole", "drawn for each unit"}
        How a word of several frames counts: "mean per frame" is one of pairs of positions.
    length_exponent : mapping of str to float
        By distance ("" for any): b in the share n^b that a word of n frames gets, other things
        being equal. Empty: not known.
    residual : {"in", "out", "share"}
        Where the residual stream is: in a target's own score; left out, so that rolling maps out
        adds the identity (Abnar & Zuidema 2020); or, in cross-attention, what a row lacks to one.
    residual_size : bool
        True if a target's own score holds the size of the residual stream, so that a layer that
        changes nothing has the identity as its map: such maps are composed without mixing
        strengths.
    cross : bool
        True if it is defined for cross-attention.
    norms : int
        Layer norms behind the residual sum that it passes: it is then defined for post-norm stacks
        alone.
    no_heads : str
        Why there is no form per head, as the error says it; empty if there is one.
    word_from_frames : {"", "sum", "mean"}
        How the score of a word follows from those of its frames; empty if it does not.
    one_by_one : bool
        True if it removes each source alone, so that its scores are effects of removal.
    slow : bool
        True if "all" measures leave it out, for it takes up to a minute a clip.
    requires : str
        A package that it needs, which speechmix does not install.
    is_baseline : bool
        True if its scores know nothing of the model: others are compared with it.
    is_per_target : bool
        True if it gives one number for each target instead of one for each source.
    revision : int
        Raised by one when the same input gives other scores from now on, as after a correction:
        stored scores of a former revision are then made again, and never in one table with new
        ones.
    """

    name: str
    description: str
    citation: str
    scope: Literal["layer", "model", "logit", "removal"] = "layer"
    objective: bool = False
    at_one_position: bool = False
    word: Literal["mean per frame", "as a whole", "drawn for each unit"] = "mean per frame"
    length_exponent: Mapping[str, float] = field(default_factory=dict)
    residual: Literal["in", "out", "share"] = "in"
    residual_size: bool = False
    cross: bool = True
    norms: int = 0
    no_heads: str = ""
    word_from_frames: Literal["", "sum", "mean"] = ""
    one_by_one: bool = False
    slow: bool = False
    requires: str = ""
    is_baseline: bool = False
    is_per_target: bool = False
    revision: int = 1

    def with_options(self, text: str) -> MeasureFacts:
        """Return the facts of the measure with options of its own, as "power=2,kind=max" has them.

        Its name then ends in them; `speechmix.mixing.measures.measure.Measure` checks them.
        """
        return replace(self, name=f"{self.name}:{text}")

    @property
    def gives_maps(self) -> bool:
        """Whether `speechmix.mix` computes it."""
        return self.scope in ("layer", "model")

    @property
    def is_layerwise(self) -> bool:
        """Whether its maps have a row for each target, so that layers can be rolled out or
        composed."""
        return self.gives_maps and not self.objective

    @property
    def reaches_audio(self) -> bool:
        """Whether its scores of an audio language model are of words of the sound, not of positions
        behind the projector."""
        return self.objective and self.scope != "logit"


def measure_label(name: str) -> str:
    """Return the name of a measure as readers see it in figures and pages.

    Examples
    --------
    >>> measure_label("value_zeroing")
    'value zeroing'
    """
    return name.replace("_", " ")


# A change grows with a word's frames, a cosine distance with the square of the change; means per
# frame do not grow.
_OF_CHANGE = {"cosine": 2.0, "correlation": 2.0}
_OF_CHANGE |= dict.fromkeys(("euclidean", "manhattan", "unit_euclidean", "unit_manhattan"), 1.0)
_LENGTH_EXPONENT_OF_MEANS = {"": 0.0}

RESIDUAL_HAS_NO_HEAD = (
    ", because the residual stream (or the norm behind it) belongs to no single head; ask for "
    "heads='mean', or for "
    "attention_norm per head"
)
_GRADIENT_REFUSAL = ": it differentiates the whole {what}; ask for heads='mean'"
_REMOVES = ": it removes sources from the input; ask for heads='mean'"
_LAYER, _MODEL = _GRADIENT_REFUSAL.format(what="layer"), _GRADIENT_REFUSAL.format(what="model")

_VALUE_ZEROING = "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL"
KOBAYASHI_2021 = (
    "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of "
    "Masked Language Models, "
    "EMNLP"
)
_ALTI = (
    "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, EMNLP"
)
_HTA = (
    "Brunner et al. 2020, On Identifiability in Transformers, ICLR; Pascual et al. 2021, "
    "Telling BERT's Full Story"
)
_CHEFER = (
    "Chefer, Gur & Wolf 2021, Generic Attention-model Explainability for Interpreting Bi-Modal and "
    "Encoder-Decoder "
    "Transformers, ICCV"
)
_DEEPLIFT = (
    "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation "
    "Differences, ICML"
)

PACKAGE_MEASURES = (
    MeasureFacts(
        "value_zeroing",
        "how far a target's layer output moves when the source's value vectors are zeroed",
        _VALUE_ZEROING,
        word="as a whole",
        length_exponent=_OF_CHANGE,
    ),
    MeasureFacts(
        "value_zeroing_share",
        "as `value_zeroing`, but each row of cross-attention sums to the measured fraction "
        "that comes from the audio ([how](#combine-layers-into-one-map))",
        f"{_VALUE_ZEROING} (the share: this package)",
        word="as a whole",
        length_exponent=_OF_CHANGE,
        residual="share",
        no_heads=", because the share is one of the whole block",
    ),
    MeasureFacts(
        "attention",
        "attention weights",
        "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and "
        "Translate, ICLR",
        length_exponent=_LENGTH_EXPONENT_OF_MEANS,
        residual="out",
    ),
    MeasureFacts(
        "entropy_attention",
        "attention weights; heads that attend to few sources have more weight",
        "Ranjan et al. 2026, Listening with Attention: Entropy-Guided Explainability for "
        "Transformer-Based Audio Models, "
        "Interspeech (its idea; the weights are this package's)",
        length_exponent=_LENGTH_EXPONENT_OF_MEANS,
        residual="out",
        no_heads=": heads are joined by their entropy; ask for heads='mean', or for attention per "
        "head",
    ),
    MeasureFacts(
        "attention_norm",
        "length of the attention-weighted, projected value vectors",
        "Kobayashi et al. 2020, Attention is Not Only a Weight, EMNLP",
        length_exponent=_LENGTH_EXPONENT_OF_MEANS,
        residual="out",
    ),
    MeasureFacts(
        "attention_norm_residual",
        "attention norm with the residual stream in a target's own vector",
        KOBAYASHI_2021,
        cross=False,
        residual_size=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "attention_norm_residual_layernorm",
        "attention norm with residual stream and layer norm (post-norm stacks)",
        KOBAYASHI_2021,
        cross=False,
        norms=1,
        residual_size=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "globenc",
        "attention norm with residual stream and both layer norms of the layer (post-norm "
        "encoders)",
        "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating "
        "the Whole Encoder Layer in "
        "Transformers, NAACL",
        cross=False,
        norms=2,
        residual_size=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "alti",
        "L1 norm of the attention block's output, minus its L1 distance to the source's "
        "transformed vector; at least zero",
        _ALTI,
        word="as a whole",
        residual="share",
        residual_size=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "alti_l2",
        "as alti, with L2 lengths",
        _ALTI,
        word="as a whole",
        residual="share",
        residual_size=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "hta",
        "norm of the Jacobian of a target's layer output with respect to the source state "
        "that enters the layer",
        _HTA,
        residual_size=True,
        slow=True,
        no_heads=_LAYER,
    ),
    MeasureFacts(
        "hta_input",
        "as hta, with respect to the source's state that enters the stack",
        _HTA,
        scope="model",
        residual_size=True,
        slow=True,
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "gradient_input",
        "gradient of a scalar of the model's output, times the state that enters a layer",
        _DEEPLIFT,
        scope="model",
        objective=True,
        word_from_frames="mean",
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "integrated_gradients",
        "gradient of a scalar of the output, averaged along a path from a baseline, times the"
        " difference from the baseline",
        "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, ICML",
        scope="model",
        objective=True,
        word_from_frames="mean",
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "deeplift",
        "as gradient_input from a baseline, with the rescale rule at activations (captum)",
        _DEEPLIFT,
        scope="model",
        objective=True,
        requires="captum",
        word_from_frames="mean",
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "chefer",
        "positive part of the gradient of a logit times the attention weights, propagated "
        "through the layers",
        _CHEFER,
        scope="model",
        objective=True,
        at_one_position=True,
        word_from_frames="mean",
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "random",
        "random scores; a clip gets the same scores each time",
        f"{_VALUE_ZEROING} (random baseline)",
        word="drawn for each unit",
        is_baseline=True,
    ),
    MeasureFacts(
        "alti_logit",
        "what each source adds to a logit, layer by layer, traced back to inputs by ALTI (pre-norm "
        "stacks)",
        "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, ACL",
        scope="logit",
        objective=True,
        at_one_position=True,
        word="as a whole",
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "decompx",
        "what each source adds to a logit, as a vector carried through every layer and the head "
        "(encoders)",
        "Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token "
        "Decomposition, ACL",
        scope="logit",
        objective=True,
        at_one_position=True,
        word="as a whole",
        no_heads=RESIDUAL_HAS_NO_HEAD,
    ),
    MeasureFacts(
        "lrp",
        "what each source adds to a logit, by relevance that is propagated back through every "
        "layer (AttnLRP's rules)",
        "Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for "
        "Transformers, ICML",
        scope="logit",
        objective=True,
        at_one_position=True,
        word="as a whole",
        word_from_frames="sum",
        no_heads=_MODEL,
    ),
    MeasureFacts(
        "occlusion",
        "what the output loses when the source alone is removed from the input",
        "Zeiler & Fergus 2014, Visualizing and Understanding Convolutional Networks, ECCV",
        scope="removal",
        objective=True,
        word="as a whole",
        one_by_one=True,
        no_heads=_REMOVES,
    ),
    MeasureFacts(
        "shapley",
        "what the source adds to the output on average, whatever other sources are there",
        "Shapley 1953, A Value for n-Person Games; sampled: Castro et al. 2009",
        scope="removal",
        objective=True,
        word="as a whole",
        no_heads=_REMOVES,
    ),
)


STACKS = ("encoder", "decoder", "cross")

MEASURE_FACTS: dict[str, MeasureFacts] = {facts.name: facts for facts in PACKAGE_MEASURES}

# The measures whose vectors a mixing ratio can be taken of; see `MixingMap.mixing_ratio`.
RATIO_MEASURES = (
    "attention_norm",
    "attention_norm_residual",
    "attention_norm_residual_layernorm",
    "globenc",
)


def _ratio_facts(vectors: str) -> MeasureFacts:
    """Facts of a mixing ratio: one number per target instead of a map, defined where the vectors
    are that it is taken of."""
    return replace(
        MEASURE_FACTS[vectors],
        name=f"mixing_ratio_{vectors}",
        description="how much of a target's state comes from other units, of the vectors of "
        f"{vectors}",
        citation=KOBAYASHI_2021,
        length_exponent={},
        residual="in",
        cross=False,
        is_per_target=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    )


RATIO_FACTS: dict[str, MeasureFacts] = {
    facts.name: facts for facts in map(_ratio_facts, RATIO_MEASURES)
}


LEADING_MEASURE = "value_zeroing"  # that `mix` computes by default, and reports lead with


def leading_measure(names: Iterable[str]) -> str:
    """Return the measure that a report of some measures leads with, and claims may be made of.

    Value Zeroing, or without it the first in alphabetical order: known before anything is scored. Empty
    if there is none.

    Examples
    --------
    >>> leading_measure(["attention", "value_zeroing"]), leading_measure(["attention", "alti"])
    ('value_zeroing', 'alti')
    """
    return min(names, key=lambda name: (_base_name(name) != LEADING_MEASURE, name), default="")


def _base_name(measure: str) -> str:
    """Name of a measure without its options."""
    return measure.partition(":")[0]


def find_facts(name: object) -> MeasureFacts | None:
    """Look up a measure of any scope, or a mixing ratio; None for an unknown name.

    A name may be followed by options of the measure's own, "NAME:option=value,option=value".
    """
    if not isinstance(name, str):
        return None
    measure, colon, options = name.partition(":")
    facts = MEASURE_FACTS.get(measure) or RATIO_FACTS.get(measure)
    return facts.with_options(options) if facts and colon else facts


def measure_facts(name: object) -> MeasureFacts:
    """Facts of a measure of any scope, or of a mixing ratio; see `find_facts`.

    Raises
    ------
    InputError
        If there is none of that name (the error lists what there is), or it has no such option.

    Examples
    --------
    >>> measure_facts("attention").residual, measure_facts("lrp").scope
    ('out', 'logit')
    """
    facts = find_facts(name)
    if facts is None:  # the module of an extension may declare it
        import_measures()
        facts = find_facts(name)
    if facts is None:
        raise InputError(
            f"unknown measure {name!r}; there are {', '.join((*MEASURE_FACTS, *RATIO_FACTS))}"
        )
    return facts


def measure_names(*scopes: str) -> tuple[str, ...]:
    """Names of the measures of some scopes, in the order of the table, those of users last.

    Examples
    --------
    >>> measure_names("logit")
    ('alti_logit', 'decompx', 'lrp')
    """
    return tuple(name for name, facts in MEASURE_FACTS.items() if facts.scope in scopes)


def check_gives_maps(name: object) -> None:
    """Raise `InputError` unless a name is that of a measure, or of a mixing ratio, that gives
    maps."""
    facts = measure_facts(name)
    if facts.scope == "logit":
        raise InputError(
            f"{name} gives parts that add up to a logit, not maps: "
            f"speechmix.logit_contributions(model, item, measure={name!r})"
        )
    if facts.scope == "removal":
        raise InputError(
            f"{name} removes sources from the input and has no maps: speechmix.explain(model, "
            f"item, measures={name!r})"
        )


def is_installed(facts: MeasureFacts) -> bool:
    """Whether the package that a measure needs, if any, is installed."""
    return not facts.requires or find_spec(facts.requires) is not None


def measure_revision(name: str) -> int:
    """Revision of a measure or a mixing ratio; 1 for an unknown name."""
    facts = find_facts(name)
    return 1 if facts is None else facts.revision


def omits_residual(measure: str) -> bool:
    """True if a map of this measure leaves out the residual stream; False for an unknown name."""
    facts = find_facts(measure)
    return facts is not None and facts.residual == "out"


def is_weighted_by_strength(measure: str) -> bool:
    """True if maps of this measure are weighted by mixing strengths when layers are composed, where
    they have some.

    Examples
    --------
    >>> is_weighted_by_strength("value_zeroing"), is_weighted_by_strength("alti")
    (True, False)
    """
    facts = find_facts(measure)
    return facts is None or not facts.residual_size
