"""Options of `mix`, checked.

`mix`, runs and the command line make a `MixRequest`; nobody else checks an option. How an answer is
computed (batch sizes, files) is no part of it. Nothing here imports torch, so that the command line
can say what it takes at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.words.spans import (
    CONTEXT_KINDS,
    POOLING_METHODS,
    ROUNDING_RULES,
    SpanRequest,
)
from ..maps.measure_registry import STACKS, check_gives_maps, measure_facts, measure_names

if TYPE_CHECKING:
    import torch


AUDIO_UNITS, TEXT_UNITS = ("word", "syllable", "phone", "frame"), ("word", "token")
OBJECTIVES = ("auto", "logit", "probability", "log_probability", "contrast", "ctc")

# Allowed values of the options that have some. `include` takes several of them, `objective` other
# things too.
ALLOWED_VALUES: dict[str, tuple[str, ...]] = {
    "units": tuple(dict.fromkeys(AUDIO_UNITS + TEXT_UNITS)),
    "pooling": POOLING_METHODS,
    "heads": ("mean", "each"),
    "rounding": ROUNDING_RULES,
    "include": CONTEXT_KINDS,
    "objective": OBJECTIVES,
}

# Runs store these, too: options that stand behind a measure's name today, with their defaults. Maps
# by other values are known by the measure's name.
_STORED_DEFAULTS = {
    "distance": "cosine",
    "engine": "delta",
    "product_dtype": None,
    "steps": 50,
    "baseline": "mean",
}
_STORED_ORDER = (
    *("measures", "stacks", "layers", "units", "spans", "targets", "pooling", "distance", "heads"),
    *("rounding", "include", "dtype", "engine", "product_dtype", "objective", "steps", "baseline"),
    "window",
)
# Options that decide the maps of those measures only that read them.
MEASURE_SPECIFIC_OPTIONS = (*_STORED_DEFAULTS, "objective")

# What replaces a former option of `mix`.
_REPLACEMENTS = {
    "distance": "write it behind the measure's name: measures='value_zeroing:distance={value}'",
    "engine": "write it behind the measure's name: measures='value_zeroing:engine={value}'",
    "product_dtype": "write it behind the measure's name: "
    "measures='value_zeroing:product_dtype={value}'",
    "steps": "write it behind the measure's name: measures='integrated_gradients:steps={value}'",
    "baseline": "write it behind the measure's name: "
    "measures='integrated_gradients:baseline={value}'",
    "prompt": "give the model its prompt: mix(model.with_prompt({value!r}), clip)",
    "answer": "give the model its answer: mix(model.with_prompt(prompt, answer={value!r}), clip)",
    "segments": "divide the clip first: mix(model, speechmix.segment_clip(clip, {value!r}))",
    "batch_size": "leave it out, because pairs are computed in batches that fit the memory; "
    "clips_at_once is the number of clips that share a forward pass",
}

Targets = str | Sequence[int] | Mapping[str, Sequence[int]]
ObjectiveOption = str | Sequence[int] | Sequence[str] | Callable[[Any], "torch.Tensor"]


@dataclass(frozen=True)
class MixRequest:
    """What is to be scored and how scores are defined: the options of `mix`, normalised and
    checked.

    The InputError of a wrong option says what was expected.
    """

    measures: tuple[str, ...] = ("value_zeroing",)
    stacks: tuple[str, ...] | None = None
    layers: tuple[int, ...] | None = None
    units: str = "word"
    spans: Sequence[SpanRequest] | None = None
    targets: Targets | None = None
    pooling: str = "mean"
    heads: str = "mean"
    rounding: str = "disjoint"
    include: tuple[str, ...] = ()
    dtype: str | torch.dtype | None = None
    objective: ObjectiveOption = "auto"
    window: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_request(self)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> MixRequest:
        """Request of options as `mix` takes them: one measure, stack, layer or target needs no
        list."""
        refuse_former_options(options)
        normalized_options = dict(options)
        for name in options.keys() & {"measures", "stacks", "layers", "include"}:
            normalized_options[name] = as_unique_tuple(options[name])
        if isinstance(options.get("targets"), int):
            normalized_options["targets"] = as_unique_tuple(options["targets"])
        return cls(**normalized_options)

    @classmethod
    def of_run(cls, options: Mapping[str, Any]) -> MixRequest:
        """Make the request of a run, which may be resumed: no option may be unknown, or a function.

        A function is an InputError, because it cannot be compared with that of an earlier start.
        """
        refuse_former_options(options)
        option_names = [option.name for option in fields(cls)]
        unknown_options = set(options) - set(option_names)
        if unknown_options:
            raise InputError(
                f"unknown option {', '.join(sorted(unknown_options))}; a run takes those of mix: "
                f"{', '.join(option_names)}"
            )
        function_options = [name for name, value in options.items() if callable(value)]
        if function_options:
            raise InputError(
                f"{function_options[0]} cannot be a function in a run, which may be resumed: name it, or "
                "use speechmix.mix"
            )
        return cls.of(options)

    @property
    def options(self) -> JsonObject:
        """The request as options of `mix`."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    def described(self) -> JsonObject:
        """The options as JSON knows them, to be stored and compared: lists for sequences, names for
        torch's types."""
        values = {**self.options, **_STORED_DEFAULTS}
        description: JsonObject = json.loads(
            json.dumps({name: _as_json(values[name]) for name in _STORED_ORDER}, default=str)
        )
        return description

    @classmethod
    def read_stored(cls, description: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return some options of a run as `mix` takes them; InputError if its maps are of options
        that a measure has behind its name today."""
        for name, default in _STORED_DEFAULTS.items():
            if description.get(name, default) != default:
                raise InputError(
                    f"the run has {name}={description[name]!r}, as earlier versions took it: score "
                    f"again; {_REPLACEMENTS[name].format(value=description[name])}"
                )
        return {name: description[name] for name in names if name in description}


def refuse_former_options(options: Mapping[str, object]) -> None:
    """Raise `InputError` for an option that `mix` no longer has; it says what to write instead."""
    for name, replacement in _REPLACEMENTS.items():
        if name in options:
            value = options[name]
            raise InputError(
                f"mix has no option {name} any more: {replacement.format(value=value)}"
            )


P = ParamSpec("P")
R = TypeVar("R")


def without_former_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function with options of `mix`: a former one is an error that says the new form."""

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        refuse_former_options(options)
        return function(*args, **options)

    return checked


def as_unique_tuple(value: Any) -> tuple[Any, ...] | None:
    """One option value, or a sequence of them, as a tuple without duplicates; None stays None."""
    if value is None:
        return None
    return (value,) if isinstance(value, str | int) else tuple(dict.fromkeys(value))


def _as_json(value: object) -> Json:
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [_as_json(element) for element in value]
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def _check_request(request: MixRequest) -> None:
    """Raise `InputError` for the first option that cannot be."""
    from ..measures.measure_functions import find_measure  # which imports torch

    if not request.measures:
        raise InputError(
            f"no measure asked for; there are {', '.join(measure_names('layer', 'model'))}"
        )
    for name in request.measures:
        check_gives_maps(name)
        facts = measure_facts(name)
        if request.heads == "each" and facts.no_heads:
            raise InputError(f"{name} has no form per head{facts.no_heads}")
        find_measure(name)  # an error for an option behind its name that it does not have
    _check_objective(request.objective)
    unknown_spans = set(request.include) - set(CONTEXT_KINDS)
    if unknown_spans:
        raise InputError(f"include takes 'silence' and 'padding', found {sorted(unknown_spans)}")
    if isinstance(request.targets, Mapping) and set(request.targets) - set(STACKS):
        raise InputError(
            f"targets is by stack, {', '.join(STACKS)}; found {sorted(request.targets)}"
        )
    for name in ("heads", "units", "rounding", "pooling"):
        if getattr(request, name) not in ALLOWED_VALUES[name]:
            raise InputError(
                f"{name} must be one of {ALLOWED_VALUES[name]}, found {getattr(request, name)!r}"
            )
    window = request.window
    if window is not None and (
        request.units != "frame" or len(window) != 2 or not window[0] < window[1]
    ):
        raise InputError(f"window is (start, end) in seconds, with units='frame'; found {window!r}")


def _check_objective(option: object) -> None:
    """Raise `InputError` unless an option of `mix` is an objective: a name, a callable or a
    tuple."""
    if callable(option) or (isinstance(option, str) and option in OBJECTIVES):
        return
    if isinstance(option, Sequence) and not isinstance(option, str):
        if 1 <= len(option) <= 2 and all(isinstance(word, str) for word in option):
            return
        if 2 <= len(option) <= 3 and all(type(number) is int and number >= 0 for number in option):
            return
    raise InputError(
        f"objective should be one of {OBJECTIVES}, (position, token id), (position, token id, "
        "foil's id), the target's "
        "spelling and its foil's as (word, word), or a function of the model's output; found "
        f"{option!r}"
    )
