"""Published protocols of texts as presets of one faithfulness evaluation: blank-out, and deletion
curves.

Blank-out (Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL): each token (or
word) of a sentence is blanked in the input in turn, and the target's probability read again. A
measure's row of the target (of [MASK]; in a causal model of the position that predicts it) is
compared with these drops:

    Spearman(row over the other tokens, p(target) - p(target | token blanked)), mean over sentences

layer by layer, rolled out, and averaged over layers. Which token blanks is not stated in what can
be read of the paper, so fills are an option.

Deletion curves (DeYoung et al. 2020, ERASER, ACL; Petsiuk et al. 2018, BMVC; as a test of measures
in Ferrando et al. 2022, ALTI): tokens go in the order of a measure's row, one by one or in bins,
and the other way round only they are kept (`curves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...adapters.model import Model
from ...errors import InputError
from ...inputs.sentences.sentence import Sentence
from ...interventions.removals import TOKEN_FILLS, token_fills
from ...mixing.maps.measure_registry import check_gives_maps
from .evaluate import evaluate
from .options import (
    BINS,
    BLANK_OUT,
    DEFAULT_MEASURES,
    DELETION,
    MIN_WORDS,
    evaluation_options,
    resolve_measures,
)
from .results import FaithfulnessResults, concatenate_results
from .word_scores import EACH_LAYER, RESIDUAL_ROLLOUT, STRENGTH_ROLLOUT, TO_THE_OUTPUT

LAYER_OPTIONS = ("each", "rollout", RESIDUAL_ROLLOUT, STRENGTH_ROLLOUT, "mean", "last")
BLANK_OUT_VALUES = ("probability", "log_probability", "margin")
_DELETION_AGGREGATIONS = ("rollout", RESIDUAL_ROLLOUT, "mean", "last")


def blank_out(
    models: Model | Sequence[Model],
    sentences: Iterable[Sentence],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    fills: str | Sequence[str] | None = None,
    value: str = "probability",
    units: str = "token",
    layers: str | Sequence[str] = ("each", "rollout", "mean"),
    min_words: int = MIN_WORDS,
    group: str | None = None,
    progress: bool = False,
) -> FaithfulnessResults:
    """Blank every token in turn, and ask of each measure and layer how well it ranked what that
    costs.

    The target's own tokens and special tokens are left out, for all measures alike; a causal
    model's row is the one that predicts the target, over the tokens up to it.

    Parameters
    ----------
    models : Model or sequence of Model
        Text models with their head: masked, causal, or classifiers (whose label is then used, at
        [CLS]).
    sentences : iterable of Sentence
        With a target: a word of the text, which a masked model is fed a mask for; or "<mask>"
        itself (then what the model finds likeliest there is the target).
    measures : str or sequence of str
        One that is not defined for a model is recorded in `left_out`.
    fills : str or sequence of str, optional
        What blanks: "mask", "unk", "pad", "remove". By default all that a model's tokenizer has; of
        several, each alone and the mean over their drops. Results name them as perturbations: "blank
        (mask)".
    value : {"probability", "log_probability", "margin"}
        What the drop is of. For one fill the first two rank alike, but not their means over fills.
        The margin is log p(target) - log p(foil) and needs the sentence's foil.
    units : {"token", "word"}
    layers : str or sequence of str
        Of "each", "rollout", "residual rollout", "strength rollout", "mean", "last". Rolled out as
        published, the identity is added for measures that leave out the residual stream, not for
        Value Zeroing; "residual rollout" adds it for all, and "strength rollout" weights it by
        mixing strength (not for measures that hold its size). A gradient measure is not rolled out:
        its layer 0 is from the input on.
    min_words : int
        Tokens besides the target that a sentence needs.
    group : str, optional
        A column of the sentences' `meta` that says which belong together; by default speakers, or
        pair, sentence and target word.
    progress : bool
        Show a bar over sentences.

    Returns
    -------
    FaithfulnessResults
        Its `drops` name the position of a token, or the index of a word.

    Raises
    ------
    InputError
        For an option that cannot be, a measure that is defined for none of the models, a model of
        speech or with two stacks, or no sentences. A sentence that cannot be evaluated is recorded
        in `left_out`.

    Examples
    --------
    >>> bert = speechmix.load("bert-base-uncased")                                        # doctest: +SKIP
    >>> sentences = [speechmix.Sentence("the keys to the cabinet are here", target="are")]  # doctest: +SKIP
    >>> print(speechmix.blank_out(bert, sentences, fills="mask").text())                  # doctest: +SKIP
    """
    model_list = [models] if isinstance(models, Model) else list(models)
    layers = (layers,) if isinstance(layers, str) else tuple(layers)
    fills = (fills,) if isinstance(fills, str) else tuple(dict.fromkeys(fills or ()))
    for name, values, allowed in (("layers", layers, LAYER_OPTIONS), ("fills", fills, TOKEN_FILLS)):
        if set(values) - set(allowed) or (name == "layers" and not values):
            raise InputError(f"{name} are some of {allowed}, found {values!r}")
    if value not in BLANK_OUT_VALUES:
        raise InputError(f"value should be one of {BLANK_OUT_VALUES}, found {value!r}")
    _check_text_models(model_list)
    options = replace(
        evaluation_options(
            protocol=BLANK_OUT,
            perturbations=f"blank ({', '.join(fills)})" if fills else None,
            aggregations=[EACH_LAYER if name == "each" else name for name in layers],
            units=units,
            min_words=min_words,
        ),
        foils="needed" if value == "margin" else "aside",
        value="probability" if value == "probability" else "margin",
        each_fill=True,
    )
    sentences, results = list(sentences), []
    provenance_base = {"value": value, "units": units, "fills": fills, "min_words": min_words}
    for model, label, (names, notes) in zip(
        model_list, _model_labels(model_list), _defined_measures(model_list, measures), strict=True
    ):
        provenance = {**provenance_base, "model": label}
        model_results = evaluate(
            model, sentences, names, options, provenance=provenance, group=group, progress=progress
        )
        results.append(model_results.with_notes(notes))
    return concatenate_results(results)


def deletion_curves(
    model: Model,
    texts: Iterable[Sentence | str],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    bins: Sequence[float] | None = BINS,
    fill: str | None = None,
    aggregation: str = "rollout",
    units: str = "token",
    min_words: int = MIN_WORDS,
    n_random_orders: int = 10,
    group: str | None = None,
    progress: bool = False,
) -> FaithfulnessResults:
    """Remove (or keep) what each measure ranks first in labelled texts, and read what is left of
    the label's probability.

    Parameters
    ----------
    model : Model
        A text model with a classification head, or with a language-model head.
    texts : iterable of Sentence or str
        For a classifier any text; the label is what the model gives it as it is, whatever
        ``meta["label"]`` says (which is compared with it). For a language model, sentences with a
        target.
    measures : str or sequence of str
        Or "all" that are defined for the model.
    bins : sequence of float, optional
        Percent of a text's tokens that are removed together; None: one by one, W + 1 points a text.
    fill : {"mask", "unk", "pad", "remove"}, optional
        What takes a token's place; by default the first that the model's tokenizer has.
    aggregation : {"rollout", "residual rollout", "mean", "last"}
        Of layers, as for `speechmix.blank_out`. A measure that explains the output itself
        (gradients, those whose terms add up to a logit, "occlusion", "shapley") is also taken at
        the input ("to the output").
    units : {"token", "word"}
    min_words : int
        Tokens that a text needs.
    n_random_orders : int
        Random orders, whose mean is the baseline.
    group : str, optional
        As for `blank_out`.
    progress : bool
        Show a bar over texts.

    Returns
    -------
    FaithfulnessResults
        With `points` and `texts`.

    Raises
    ------
    InputError
        For an option that cannot be, a measure that is not defined, or no texts. A text that cannot
        be evaluated is recorded in `left_out`.

    Examples
    --------
    >>> classifier = speechmix.load("distilbert-base-uncased-finetuned-sst-2-english")    # doctest: +SKIP
    >>> curves = speechmix.deletion_curves(classifier, ["a gorgeous , witty film"])       # doctest: +SKIP
    >>> print(curves.text())                                                              # doctest: +SKIP
    """
    _check_text_models([model])
    if aggregation not in _DELETION_AGGREGATIONS:
        raise InputError(
            f"aggregation should be one of {_DELETION_AGGREGATIONS}, found {aggregation!r}"
        )
    possible_fills = token_fills(model)
    if fill is not None and fill not in possible_fills:
        raise InputError(f"fill should be one of {possible_fills} for {model.name}, found {fill!r}")
    options = replace(
        evaluation_options(
            protocol=DELETION,
            perturbations=f"blank ({fill or possible_fills[0]})",
            aggregations=[aggregation, TO_THE_OUTPUT],
            units=units,
            min_words=min_words,
        ),
        bins=bins,
        n_random_orders=n_random_orders,
    )
    names = resolve_measures(model, measures)
    items = [Sentence(text) if isinstance(text, str) else text for text in texts]
    provenance = {
        "measures": list(names),
        "bins": bins,
        "units": units,
        "min_words": min_words,
        "n_random_orders": n_random_orders,
    }
    return evaluate(
        model, items, names, options, provenance=provenance, group=group, progress=progress
    )


def _check_text_models(models: Sequence[Model]) -> None:
    unsupported_models = [
        model.name for model in models if not model.capabilities.is_single_text_stack
    ]
    if not models or unsupported_models:
        raise InputError(
            "expected masked or causal models or classifiers of texts, found "
            f"{', '.join(unsupported_models) or 'none'}: for others see speechmix.faithfulness"
        )


def _model_labels(models: Sequence[Model]) -> list[str]:
    """Return names of models; a second model with the same name, init and seed gets a number."""
    keys = [(model.name, model.init, model.seed) for model in models]
    earlier_counts = [keys[:index].count(key) for index, key in enumerate(keys)]
    return [
        f"{model.name} ({count + 1})" if count else model.name
        for model, count in zip(models, earlier_counts, strict=True)
    ]


def _defined_measures(
    models: Sequence[Model], measures: str | Sequence[str]
) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """Return the measures that are defined for each model, and reasons for the others; raise an
    error for a measure that no model has."""
    if measures == "all":
        return [(resolve_measures(model, "all", to_output=False), {}) for model in models]
    names = [measures] if isinstance(measures, str) else list(dict.fromkeys(measures))
    measures_by_model = []
    for model in models:
        defined: list[str] = []
        reasons: dict[str, str] = {}
        for name in names:
            check_gives_maps(name)
            try:
                defined += resolve_measures(model, name, to_output=False)
            except InputError as error:
                reasons[name] = str(error)
        measures_by_model.append((tuple(defined), reasons))
    for name, reason in measures_by_model[0][1].items():
        if all(name in reasons for _, reasons in measures_by_model):
            raise InputError(reason)
    return measures_by_model
