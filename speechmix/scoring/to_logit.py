"""logit_contributions(): what each source adds to the logit of a token, or to its difference to a foil; parts that add up.

In: a `Model` with its head, and one clip, text or prepared inputs. For ALTI-Logit two passes of the unmodified model: the first
tells the states that are read and the logits, the second takes the attention blocks apart while it runs (`logit_parts`), one
layer at a time. DecompX carries vectors through one pass (`carried_parts`), LRP sends relevance back through one
(`relevance_parts`). Out: `LogitContributions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..adapters.capture import Capture
from ..adapters.head import output_head
from ..adapters.layers import Stack
from ..adapters.model import Model
from ..adapters.norms import Norm
from ..adapters.remembering import encoder_output
from ..adapters.transfers import inputs_to_device, to_host
from ..errors import InputError, ModelError
from ..inputs.spans import Span
from ..maps.facts import TO_OUTPUT
from ..maps.logit_contributions import LogitContributions
from ..measures.objectives import Objective, ask_at_one_position, logits_of, objective_of
from ..measures.relevance_pass import check_covered
from ..measures.sums_of_logits import read_at_once
from ..timing import phase
from .carried_parts import carried_parts, check_carried
from .logit_parts import LogitParts
from .passes import Precision, provenance_of, running
from .question import ObjectiveOption, Question
from .relevance_parts import relevance_parts
from .views import Item, View, seen_by

# Parts may miss the logit by so many roundings of the sum of their lengths; more, and the model is not what its table says.
# Of LRP fewer: in single precision it misses by less than ten, and by a thousand where a rule is missing (mixtures of experts).
_ROUNDINGS = {"alti_logit": 1e4, "decompx": 1e4, "lrp": 200}


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
        As in `mix`.
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
    view = seen_by(model, item, question)
    view.prepare(tuple(model.stacks))
    options: list[Any] = objective if isinstance(objective, list) else [objective]
    objectives = [_of_a_logit(option, model, view, measure) for option in options]
    precision = Precision.of(model, question)
    provenance = {**provenance_of(model, view, question, precision), "reference": reference}
    with running(model, precision), phase(measure):
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        if measure == "decompx":
            values = _carried(model, view, inputs, objectives)
        elif measure == "lrp":
            values = relevance_parts(model, view, inputs, objectives)
        else:
            values = _by_layers(model, view, question, inputs, objectives, reference=reference)
    sources = {side: tuple(view.sources(side)) for side in values[0]["scores"]}
    found = [
        LogitContributions(measure, **of_one, sources=sources, objective=objective.details, provenance=provenance)
        for of_one, objective in zip(values, objectives, strict=True)
    ]
    for contributions in found:
        _check_sum(model, contributions, precision.states)
    return found if isinstance(objective, list) else found[0]


def check_takes_apart(model: Model, measure: str) -> None:
    """Raise `InputError` if a measure whose parts add up to a logit is not defined for a model."""
    _CHECKS[measure](model)


def writing_stack(model: Model) -> Stack:
    """The stack whose last states the head reads.

    Raises
    ------
    InputError
        If it is post-norm, or made of Conformer layers: sums are normed, so the last state is no sum of what layers added.
    """
    stack = model.stacks["decoder" if "decoder" in model.stacks else "encoder"]
    if stack.plan.norm_order != "pre":
        raise InputError(
            "alti_logit is defined for pre-norm stacks, where the last state is the sum of what the layers added; the "
            f"{stack.name} of {model.name} is post-norm. Use speechmix.knock_out, or mix(measures='gradient_input')"
        )
    if stack.plan.convolution or stack.plan.closing_norm:
        raise InputError(
            "alti_logit is defined for layers that add to a residual stream and leave it as it is; those of the "
            f"{stack.name} of {model.name} are Conformers', with a norm behind each. Use speechmix.knock_out, or "
            "mix(measures='gradient_input')"
        )
    return stack


# What a model must be for each measure: raises `InputError` if it is not.
_CHECKS: dict[str, Callable[[Model], Any]] = {
    "alti_logit": writing_stack,
    "decompx": check_carried,
    "lrp": check_covered,
}


_READ_AT = {"alti_logit": (), "decompx": ("row",), "lrp": ("label_id",)}  # of a label's details


def _of_a_logit(option: Any, model: Model, view: View, measure: str) -> Objective:
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


@dataclass(frozen=True)
class Readout:
    """What the first pass tells: for each of P objectives its position, reader and logit.

    Parameters
    ----------
    rows : Tensor [P]
    readers : Tensor [P, D]
        What reads each logit off the residual stream, in front of the final norm.
    logits, norm_bias, head_bias : Tensor [P]
    """

    rows: Tensor
    readers: Tensor
    logits: Tensor
    norm_bias: Tensor
    head_bias: Tensor


def _read(
    model: Model, stack: Stack, inputs: Mapping[str, Tensor], sound: str | None, objectives: Sequence[Objective]
) -> Readout:
    """Run the model with its head, and see what enters the final norm; a sound that is remembered is not encoded again."""
    entered: list[Tensor] = []
    norm = stack.final_norm
    if norm is None:
        raise InputError(
            f"{model.name}: the table of its {stack.name} names no final norm, through which logits are read"
        )
    hook = norm.register_forward_pre_hook(lambda module, args: entered.append(args[0]))
    try:
        options: dict[str, Any] = {"use_cache": False} if "decoder" in model.stacks else {}
        of_sound = {name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")}
        if sound is not None and "cross" in model.stacks and len(of_sound) == 1:
            options["encoder_outputs"] = encoder_output(model, of_sound, sound)
            inputs = {name: tensor for name, tensor in inputs.items() if name not in of_sound}
        output = model.module(**inputs, **options, return_dict=True)
    finally:
        hook.remove()
    head, length = output_head(model), logits_of(output).shape[1]
    values = torch.cat([objective.function(output) for objective in objectives])  # refuses positions that are not there
    if not entered or entered[-1].shape[1] != length:
        raise ModelError(
            f"{model.name}: its logits are not made of the states that pass the final norm of the {stack.name}"
        )
    asked = [objective.details for objective in objectives]
    rows = torch.tensor([details["position"] for details in asked], device=values.device)
    weights = torch.stack([_weighed(head.weight, details) for details in asked])
    no_bias = torch.zeros_like(values)
    head_bias = no_bias if head.bias is None else torch.stack([_weighed(head.bias, details) for details in asked])
    passed = Norm(norm, entered[-1][0, rows])
    return Readout(rows, passed.read_through(weights), values, weights @ passed.bias, head_bias)


def _weighed(of_tokens: Tensor, details: Mapping[str, Any]) -> Tensor:
    """Rows [V, ...] of the tokens that a number is made of, added up with their weights."""
    tokens, weights = read_at_once(details)
    return torch.tensordot(of_tokens.new_tensor(weights), of_tokens[tokens], dims=1)


def _by_layers(
    model: Model,
    view: View,
    question: Question,
    inputs: Mapping[str, Tensor],
    objectives: Sequence[Objective],
    *,
    reference: bool,
) -> list[dict[str, Any]]:
    """ALTI-Logit: values of `LogitContributions` for each objective."""
    stack = writing_stack(model)
    read = _read(model, stack, inputs, view.prepared.sound, objectives)
    parts = LogitParts(view, question, stack, read.rows, read.readers, reference=reference)
    read_into = [stack for name, stack in model.stacks.items() if name != "encoder" or not model.converses]
    with Capture(read_into, parts.on_block):  # of an audio language model up to where sound enters its decoder
        model.family.run(model.base, inputs, tuple(model.stacks))
    kinds = {"scores": parts.mapped, "direct": parts.direct, "layer_parts": parts.of_layers}
    keys = [(kind, name) for kind, values in kinds.items() for name in values]
    single = [parts.embedding, read.norm_bias, read.head_bias, read.logits]
    *arrays, singles = to_host([*(torch.stack(kinds[kind][name]) for kind, name in keys), torch.stack(single)])
    made = []
    for index in range(len(objectives)):
        values: dict[str, Any] = {kind: {} for kind in kinds}
        for (kind, name), array in zip(keys, arrays, strict=True):
            values[kind][name] = array[:, index].astype(float)
        embedding, norm_bias, head_bias, logit = singles[:, index].tolist()
        of_one = {"embedding": embedding, "final_norm_bias": norm_bias, "head_bias": head_bias}
        made.append({**values, "single_parts": of_one, "logit": logit})
    return made


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
    table = contributions.to_dataframe()
    allowed = _ROUNDINGS[contributions.measure] * torch.finfo(dtype).eps * (1 + table["contribution"].abs().sum())
    if not abs(contributions.error) <= allowed:
        why = "its table describes something else than it computes (see speechmix check)"
        if contributions.measure == "lrp":
            why = "it computes something that no rule covers (a product of states, a function of them)"
        raise ModelError(
            f"{model.name}: the parts of the logit {contributions.logit:.6g} miss it by {contributions.error:.2g}: {why}, or "
            f"its states overflow in {dtype} or are rounded too much: dtype='float64' tells which"
        )
