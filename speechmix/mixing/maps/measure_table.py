"""Table of built-in measures and their properties."""

from __future__ import annotations

from .measure_facts import MeasureFacts

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
