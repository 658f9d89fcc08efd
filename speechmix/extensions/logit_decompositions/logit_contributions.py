"""Compute the contributions of sources to a token's logit or logit difference.

In: a `Model` with its head, one clip, text or prepared inputs, and a registered measure of scope
"logit". For ALTI-Logit two passes of the unmodified model: the first tells the states that are read
and the logits, the second takes the attention blocks apart while it runs (`decompose_by_alti_logit`), one layer
at a time. DecompX carries vectors through one pass (`decompose_by_decompx`), LRP sends relevance back
through one (`decompose_by_lrp`). Out: `LogitContributions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.model import Model
from ...errors import InputError, ModelError
from ...files.json_files import Json, JsonObject
from ...files.timing import phase
from ...inputs.words.spans import Span
from ...mixing.maps.logit_contributions import LogitContributions, LogitTerms
from ...mixing.maps.measure_registry import find_facts, measure_names
from ...mixing.measures.measure import Measure
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.objectives import one_position_advice, resolve_objective
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.batches import inference_context, resolve_state_dtype
from ...mixing.passes.forward_pass import map_provenance
from ...mixing.passes.item_view import Item, View
from ...mixing.passes.request import MixRequest, ObjectiveOption
from ...mixing.passes.view_kinds import make_view, mask_target
from . import logit_measures  # noqa: F401  (registers the package's own)
from .logit_measures import LogitPass

_CONVERSIONS = (Tensor.float, Tensor.to, Tensor.type, F.softmax, torch.softmax, Tensor.softmax)


def logit_contributions(
    model: Model,
    item: Item,
    *,
    objective: ObjectiveOption | Sequence[ObjectiveOption] = "auto",
    measure: str = "alti_logit",
    units: str = "word",
    spans: Sequence[Span | tuple[int, int]] | None = None,
    include: Sequence[str] = (),
    dtype: str | torch.dtype | None = None,
    **options: Any,
) -> LogitContributions | list[LogitContributions]:
    """Take a logit, or the difference of two, apart into what each source adds to it.

    Parameters
    ----------
    model : Model
        With its head. For "alti_logit" the stack that writes must be pre-norm (GPT-2, Llama, Qwen,
        Gemma; the decoders of Whisper and mBART; CTC models as XLSR). For "decompx" the model must
        be an encoder (BERT and its kin with a masked or a classification head; CTC models). For
        "lrp" any whose attention torch computes: of both kinds, of both norm orders,
        encoder-decoder models too.
    item : Clip, Sentence, str or dict of tensors
        As in `mix`. A masked model (BERT) is fed its mask for the target of a sentence, unless the
        objective is a position.
    objective : optional
        Which logit: "logit" or "contrast" (less the foil's) of the item's target, "auto" for
        whichever it has, (position, token id) or (position, token id, foil's id); ("label",) or
        ("label", "label") of a classifier (decompx, lrp); or a list of such, answered together.
    measure : {"alti_logit", "decompx", "lrp"}
        Or a registered measure of scope "logit".
    units : {"word", "frame", "token"}
        What the sources are, as in `mix`. A decoder's tokens are computed one by one, and so are
        DecompX's of a text; a word of several is their sum. On the side of an encoder that hears
        (or, in ALTI-Logit, of any) a word is one part like any other, as in ALTI.
    spans, include, dtype : optional
        As in `mix`; spans must not overlap.
    **options
        Of the measure alone. "alti_logit" has reference=True: add 1e-6 to every coordinate of
        ALTI's differences, as the published code does; its rows then reach a few millionths into
        the future.

    Returns
    -------
    LogitContributions
        A list of them for a list of objectives.

    Raises
    ------
    InputError
        If the measure is not defined for the model, or the objective is no logit.
    ModelError
        If the model has no linear head, or its parts do not add up to what it gave.

    Notes
    -----
    Parts are those of the model as it computed: what would happen without a source is another
    request (`speechmix.knock_out`). ALTI-Logit and DecompX hold attention weights as they are; LRP
    gives them half, and hands it on to queries and keys. All hold the scale of norms. ALTI-Logit's
    tracing back to inputs follows ALTI's shares, which are lengths: feed-forwards are left out of
    it, and a share has no sign of its own.

    LRP is patented, its authors write, and free of charge for personal and scientific purposes
    only: see the documentation, "Parts of a logit", before it goes into a product.

    References
    ----------
    Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, ACL. The way
    through an encoder and cross-attention is that of Ferrando et al. 2022b, Towards Opening the
    Black Box of Neural Machine Translation, EMNLP; the two together are in neither paper.
    Modarressi et al. 2023, DecompX, ACL. Achtibat et al. 2024, AttnLRP, ICML.

    Examples
    --------
    >>> import transformers, speechmix, torch
    >>> config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50)
    >>> model = speechmix.load(transformers.GPT2LMHeadModel(config), init="random", seed=0)
    >>> parts = logit_contributions(model, {"input_ids": torch.tensor([[5, 6, 7]])}, objective=(2, 8, 9))
    >>> parts.scores["decoder"].shape, abs(parts.error) < 1e-5
    ((2, 3), True)
    """
    configured_measure = _find_logit_measure(measure).with_values(options)
    request = MixRequest(
        measures=("alti",), units=units, spans=spans, include=tuple(include), dtype=dtype
    )
    check_splits_logits(model, measure)
    requested_objectives: list[Any] = objective if isinstance(objective, list) else [objective]
    item, requested_objectives = mask_target(model, item, requested_objectives)
    view = make_view(model, item, request, tuple(model.stacks))
    objectives = [logit_objective(option, model, view, measure) for option in requested_objectives]
    dtype = resolve_state_dtype(model, request)
    provenance = contributions_provenance(model, view, request, dtype, configured_measure)
    with (
        inference_context(model, dtype, is_sampling=not configured_measure.is_builtin),
        phase(measure),
        SinglePrecisionDetector() as precision_detector,
    ):
        inputs = inputs_to_device(view.prepared.inputs, model.device, dtype)
        terms = configured_measure(LogitPass(model, view, request, inputs), objectives)
    rounding_dtype = torch.float32 if precision_detector.has_downcast else dtype
    contributions = label_contributions(
        model,
        view,
        measure,
        terms,
        objectives,
        provenance,
        dtype,
        rounding_dtype=rounding_dtype,
    )
    return contributions if isinstance(objective, list) else contributions[0]


def _find_logit_measure(name: str) -> Measure:
    """The measure of scope "logit" by its name; the error lists what there is."""
    facts = find_facts(name)
    if facts is None or facts.scope != "logit":
        raise InputError(f"measure should be one of {measure_names('logit')}, found {name!r}")
    return find_measure(name)


def label_contributions(
    model: Model,
    view: View,
    measure: str,
    values: Sequence[LogitTerms],
    objectives: Sequence[Objective],
    provenance: Mapping[str, Json],
    dtype: torch.dtype,
    *,
    rounding_dtype: torch.dtype | None = None,
) -> list[LogitContributions]:
    """What was computed for each objective, as contributions.

    Parameters
    ----------
    rounding_dtype : torch.dtype, optional
        Precision that the model's own code rounds to on the way; by default that of the states.

    Raises
    ------
    ModelError
        If they do not add up.
    """
    sources = {side: tuple(view.sources(side)) for side in values[0]["scores"]}
    contributions_list = [
        LogitContributions(
            measure, **terms, sources=sources, objective=objective.details, provenance=provenance
        )
        for terms, objective in zip(values, objectives, strict=True)
    ]
    for contributions in contributions_list:
        _check_total(model, contributions, dtype if rounding_dtype is None else rounding_dtype)
    return contributions_list


def contributions_provenance(
    model: Model, view: View, request: MixRequest, dtype: torch.dtype, measure: Measure
) -> JsonObject:
    """What contributions say of where they come from, with the measure's own options."""
    return {
        **map_provenance(model, view, request, dtype),
        "reference": False,
        **measure.values,
    }


def check_splits_logits(model: Model, measure: str) -> None:
    """Raise `InputError` if a measure whose parts add up to a logit is not defined for a model."""
    if model.capabilities.is_transducer:
        raise InputError(
            f"{measure} splits a logit of a linear head into parts, and {model.name} has a joint "
            "network: ask occlusion, shapley, gradient_input or integrated_gradients, or a measure "
            "of its encoder's layers"
        )
    check = _find_logit_measure(measure).check
    if check is not None:
        check(model)


def logit_objective(
    option: ObjectiveOption | Objective, model: Model, view: View, measure: str
) -> Objective:
    """Objective that is a logit at a position, or a difference of two; or a label's, which LRP
    takes wherever it is read."""
    objective = resolve_objective(option, model, view.item, view.prepared)
    details = objective.details
    if details["kind"] not in ("logit", "contrast", "logits") or not details.keys() & {
        *find_measure(measure).details
    }:
        raise InputError(
            "parts add up to a logit, or to the difference of two, at one position; "
            f"objective={option!r} of {model.name} is "
            f"{details['kind']!r} of {details.get('label', 'something else')!r}. "
            f"{one_position_advice(model)}"
        )
    return objective


def _check_total(model: Model, contributions: LogitContributions, dtype: torch.dtype) -> None:
    """Raise `ModelError` if the parts are not those of this model."""
    measure = find_measure(contributions.measure)
    max_error = measure.roundings * torch.finfo(dtype).eps * (1 + contributions.length)
    if not abs(contributions.error) <= max_error:
        reason = measure.mismatch
        if dtype != torch.float64:
            reason += (
                f", or its states overflow in {dtype} or are rounded too much: dtype='float64' "
                "tells which"
            )
        raise ModelError(
            f"{model.name}: the parts of the logit {contributions.logit:.6g} miss it by "
            f"{contributions.error:.2g}: {reason}"
        )


class SinglePrecisionDetector(TorchFunctionMode):
    """Notices whether a model's own code rounds states of double precision to single dtype
    (rotary positions, softmax).

    Attributes
    ----------
    has_downcast : bool
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_downcast = False

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if func in _CONVERSIONS and isinstance(result, Tensor) and result.dtype == torch.float32:
            self.has_downcast = self.has_downcast or (
                isinstance(args[0], Tensor) and args[0].dtype == torch.float64
            )
        return result
