"""logit_contributions(): what each source adds to the logit of a token, or to its difference to a foil; parts that add up.

In: a `Model` with its head, and one clip, text or prepared inputs. For ALTI-Logit two passes of the unmodified model: the first
tells the states that are read and the logits, the second takes the attention blocks apart while it runs (`by_layers`), one
layer at a time. DecompX carries vectors through one pass (`carried_parts`), LRP sends relevance back through one
(`relevance_parts`). Out: `LogitContributions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..adapters.model import Model
from ..adapters.transfers import inputs_to_device, to_host
from ..errors import InputError, ModelError
from ..inputs.spans import Span
from ..maps.facts import TO_OUTPUT
from ..maps.logit_contributions import LogitContributions
from ..measures.objectives import Objective, ask_at_one_position, objective_of
from ..measures.relevance_pass import check_covered
from ..timing import phase
from .by_layers import by_layers, writing_stack
from .carried_parts import carried_parts, check_carried
from .masked_target import mask_target
from .passes import Precision, provenance_of, running
from .question import ObjectiveOption, Question
from .relevance_parts import relevance_parts
from .views import Item, View, seen_by

# Parts may miss the logit by so many roundings of the sum of their lengths; more, and the model is not what its table says.
# Of LRP fewer: in single precision it misses by less than ten, and by a thousand where a rule is missing (mixtures of experts).
_ROUNDINGS = {"alti_logit": 1e4, "decompx": 1e4, "lrp": 200}

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
    reference: bool = False,
) -> LogitContributions | list[LogitContributions]:
    """Take a logit, or the difference of two, apart into what each source adds to it.

    Parameters
    ----------
    model : Model
        With its head. For "alti_logit" the stack that writes must be pre-norm (GPT-2, Llama, Qwen, Gemma; the decoders of
        Whisper and mBART; CTC models as XLSR). For "decompx" the model must be an encoder (BERT and its kin with a masked or a
        classification head; CTC models). For "lrp" any whose attention torch computes: of both kinds, of both norm orders,
        encoder-decoder models too.
    item : Clip, Sentence, str or dict of tensors
        As in `mix`. A masked model (BERT) is fed its mask for the target of a sentence, unless the objective is a position.
    objective : optional
        Which logit: "logit" or "contrast" (less the foil's) of the item's target, "auto" for whichever it has,
        (position, token id) or (position, token id, foil's id); ("label",) or ("label", "label") of a classifier (decompx,
        lrp); or a list of such, answered together.
    measure : {"alti_logit", "decompx", "lrp"}
    units : {"word", "frame", "token"}
        What the sources are, as in `mix`. A decoder's tokens are computed one by one, and so are DecompX's of a text; a word
        of several is their sum. On the side of an encoder that hears (or, in ALTI-Logit, of any) a word is one part like any
        other, as in ALTI.
    spans, include, dtype : optional
        As in `mix`; spans must not overlap.
    reference : bool
        Of "alti_logit": add 1e-6 to every coordinate of ALTI's differences, as the published code does: its rows then reach
        a few millionths into the future.

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
    Parts are those of the model as it computed: what would happen without a source is another question
    (`speechmix.knock_out`). ALTI-Logit and DecompX hold attention weights as they are; LRP gives them half, and hands it on to
    queries and keys. All hold the scale of norms. ALTI-Logit's tracing back to inputs follows ALTI's shares, which are lengths:
    feed-forwards are left out of it, and a share has no sign of its own.

    LRP is patented, its authors write, and free of charge for personal and scientific purposes only: see the documentation,
    "Parts of a logit", before it goes into a product.

    References
    ----------
    Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, ACL. The way through an encoder and
    cross-attention is that of Ferrando et al. 2022b, Towards Opening the Black Box of Neural Machine Translation, EMNLP; the
    two together are in neither paper. Modarressi et al. 2023, DecompX, ACL. Achtibat et al. 2024, AttnLRP, ICML.

    Examples
    --------
    >>> import transformers, speechmix, torch
    >>> config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50)
    >>> model = speechmix.load(transformers.GPT2LMHeadModel(config), init="random", seed=0)
    >>> parts = logit_contributions(model, {"input_ids": torch.tensor([[5, 6, 7]])}, objective=(2, 8, 9))
    >>> parts.scores["decoder"].shape, abs(parts.error) < 1e-5
    ((2, 3), True)
    """
    if measure not in TO_OUTPUT:
        raise InputError(f"measure should be one of {tuple(TO_OUTPUT)}, found {measure!r}")
    question = Question(measures=("alti",), units=units, spans=spans, include=tuple(include), dtype=dtype)
    check_takes_apart(model, measure)
    if reference and measure != "alti_logit":
        raise InputError(f"reference=True is of alti_logit; the published code of {measure} has nothing to add")
    options: list[Any] = objective if isinstance(objective, list) else [objective]
    item, options = mask_target(model, item, options)
    view = seen_by(model, item, question)
    view.prepare(tuple(model.stacks))
    objectives = [of_a_logit(option, model, view, measure) for option in options]
    precision = Precision.of(model, question)
    provenance = {**provenance_of(model, view, question, precision), "reference": reference}
    with running(model, precision), phase(measure), SinglePrecision() as single:
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        if measure == "decompx":
            values = _carried(model, view, inputs, objectives)
        elif measure == "lrp":
            values = relevance_parts(model, view, inputs, objectives)
        else:
            values = by_layers(model, view, question, inputs, objectives, reference=reference)
    rounded = torch.float32 if single.found else precision.states
    found = labelled(model, view, measure, values, objectives, provenance, precision, rounded=rounded)
    return found if isinstance(objective, list) else found[0]


def labelled(
    model: Model,
    view: View,
    measure: str,
    values: Sequence[Mapping[str, Any]],
    objectives: Sequence[Objective],
    provenance: Mapping[str, Any],
    precision: Precision,
    *,
    rounded: torch.dtype | None = None,
) -> list[LogitContributions]:
    """What was computed for each objective, as contributions.

    Parameters
    ----------
    rounded : torch.dtype, optional
        Precision that the model's own code rounds to on the way; by default that of the states.

    Raises
    ------
    ModelError
        If they do not add up.
    """
    sources = {side: tuple(view.sources(side)) for side in values[0]["scores"]}
    found = [
        LogitContributions(measure, **of_one, sources=sources, objective=objective.details, provenance=provenance)
        for of_one, objective in zip(values, objectives, strict=True)
    ]
    for contributions in found:
        _check_sum(model, contributions, precision.states if rounded is None else rounded)
    return found


def check_takes_apart(model: Model, measure: str) -> None:
    """Raise `InputError` if a measure whose parts add up to a logit is not defined for a model."""
    _CHECKS[measure](model)


# What a model must be for each measure: raises `InputError` if it is not.
_CHECKS: dict[str, Callable[[Model], Any]] = {
    "alti_logit": writing_stack,
    "decompx": check_carried,
    "lrp": check_covered,
}


_READ_AT = {"alti_logit": (), "decompx": ("row",), "lrp": ("label_id",)}  # of a label's details


def of_a_logit(option: Any, model: Model, view: View, measure: str) -> Objective:
    """Objective that is a logit at a position, or a difference of two; or a label's, which LRP takes wherever it is read."""
    objective = objective_of(option, model, view.item, view.prepared)
    details = objective.details
    places = {"position", *_READ_AT[measure]}
    if details["kind"] not in ("logit", "contrast", "logits") or not details.keys() & places:
        raise InputError(
            f"parts add up to a logit, or to the difference of two, at one position; objective={option!r} of {model.name} is "
            f"{details['kind']!r} of {details.get('label', 'something else')!r}. {ask_at_one_position(model)}"
        )
    return objective


def _carried(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> list[dict[str, Any]]:
    """DecompX: values of `LogitContributions` for each objective, in one row for all layers."""
    by_source, outside, logits = to_host(list(carried_parts(model, view, inputs, objectives)))
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


def _check_sum(model: Model, contributions: LogitContributions, dtype: torch.dtype) -> None:
    """Raise `ModelError` if the parts are not those of this model."""
    allowed = _ROUNDINGS[contributions.measure] * torch.finfo(dtype).eps * (1 + contributions.length)
    if not abs(contributions.error) <= allowed:
        why = "its table describes something else than it computes (see speechmix check)"
        if contributions.measure == "lrp":
            why = "it computes something that no rule covers (a product of states, a function of them)"
        if dtype != torch.float64:
            why += f", or its states overflow in {dtype} or are rounded too much: dtype='float64' tells which"
        raise ModelError(
            f"{model.name}: the parts of the logit {contributions.logit:.6g} miss it by {contributions.error:.2g}: {why}"
        )


class SinglePrecision(TorchFunctionMode):
    """Notices whether a model's own code rounds states of double precision to single precision (rotary positions, softmax).

    Attributes
    ----------
    found : bool
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in _CONVERSIONS and isinstance(result, Tensor) and result.dtype == torch.float32:
            self.found = self.found or (isinstance(args[0], Tensor) and args[0].dtype == torch.float64)
        return result
