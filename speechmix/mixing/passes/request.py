"""Options of `mix`, checked.

`mix`, runs and the command line make a `MixRequest`; nobody else checks an option. How an answer is
computed (batch sizes, files) is no part of it. Nothing here imports torch, so that the command line
can say what it takes at once.

Resolve the spans of frames or words that a request names.

In: a clip and its frames, or ranges of positions as a user passes them; a request. Out: `Span`s,
the units of the encoder's side of a `View`.

In which precision a model runs and measures compute.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import torch

from ...adapters.capture.forward_pass import use_attention
from ...adapters.capture.module_access import resolve_dtype
from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import FRAMES, SegmentOption, segment_clip
from ...inputs.words.spans import (
    CONTEXT_KINDS,
    POOLING_METHODS,
    ROUNDING_RULES,
    Span,
    SpanRequest,
    clip_frame_count,
    context_spans,
    frame_spans,
    parse_span_request,
    word_spans,
)
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, TIER_UNITS, unit_owners
from ..maps.measure_registry import STACKS, check_gives_maps, measure_facts, measure_names
from ..measures.measure_functions import find_measure

if TYPE_CHECKING:
    import torch

    from ...adapters.model import Model
    from ...inputs.audio.frame_grid import FrameGrid


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


ItemT = TypeVar("ItemT")


def audio_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Units on the audio side of a clip: frames, or words with what is included around them."""
    words = word_spans(clip.words, grid, rounding=request.rounding) if clip.words else []
    if request.units == "frame":
        return _frame_spans(clip, grid, words, request.window)
    if request.units in TIER_UNITS:
        words = _tier_spans(clip, grid, request)
    elif clip.spoken_words:
        _warn_short_units(clip, clip.spoken_words, "word", grid, request)
    if not words:
        raise InputError(
            f"{clip.name} has no word times: give words= (TextGrid, CTM, JSON, TSV), align its "
            "text with "
            "speechmix.align(clip), or ask for units='frame'"
        )
    # Where nobody speaks, what a fixed window adds behind the clip may be what a text comes from.
    include = (*request.include, "padding") if clip.has_segments else request.include
    return context_spans(words, grid, clip.duration, include=include) if include else words


def _frame_spans(
    clip: Clip, grid: FrameGrid, words: Sequence[Span], window: tuple[float, float] | None
) -> list[Span]:
    """Frames as units, each with the word that it is in: those within a window, or those of the
    clip and the padding of a fixed window as one more unit."""
    word_by_frame = {frame: span.word for span in words for frame in span.positions}
    frames = [replace(span, word=word_by_frame.get(span.start)) for span in frame_spans(grid)]
    if window is None:
        clip_frames = frames[: clip_frame_count(grid, clip.duration, words)]
        return context_spans(clip_frames, grid, clip.duration, include=["padding"])
    start_seconds, end_seconds = window
    frames = [
        frame
        for frame in frames
        if start_seconds <= (frame.onset or 0.0) and (frame.offset or 0.0) <= end_seconds
    ]
    if not frames:
        raise InputError(
            f"{clip.name}: no frame lies within window={window} of its {clip.duration:.2f} s; "
            f"window=(0, {grid.duration:g}) takes all {grid.n_frames} frames"
        )
    return frames


def _tier_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Phones or syllables as units, each with the word that it is in."""
    unit = request.units
    if unit not in clip.tiers:
        advice = ", or align its text with speechmix.align(clip, tiers=['word', 'phone'])"
        raise InputError(
            f"{clip.name} has no {unit}s, but {', '.join(clip.tiers) or 'no tiers'}: give "
            f"tiers={{{unit!r}: ...}}{advice if unit == PHONE else ''}"
        )
    tier = clip.tiers[unit]
    spans = word_spans(tier, grid, rounding=request.rounding, unit=unit)
    _warn_short_units(clip, tier, unit, grid, request)
    owners = unit_owners(tier, clip.spoken_words)
    return [replace(span, kind=unit, word=owner) for span, owner in zip(spans, owners, strict=True)]


def _warn_short_units(
    clip: Clip, units: Sequence[Word], unit: str, grid: FrameGrid, request: MixRequest
) -> None:
    """Say how many units hold the centre of no frame, so that a frame of a neighbour is theirs."""
    short_count = sum(
        all(
            first == stop for first, stop in (grid.frames_between(*part) for part in item.intervals)
        )
        for item in units
    )
    if short_count and request.rounding == "disjoint":
        warnings.warn(
            f"{clip.name}: {short_count} of {len(units)} {unit}s contain the centre of no frame "
            f"({1000 * grid.stride:g} ms each): each has the next free frame, which is mostly a "
            "neighbour's sound",
            stacklevel=3,
        )


def spans_at_positions(spans: Sequence[Span], grid: FrameGrid) -> list[Span]:
    """Units of frames at the positions of the model that hold these frames."""
    if grid.n_positions == grid.n_frames:
        return list(spans)
    return [span.with_ranges(grid.position_ranges(span.ranges)) for span in spans]


def segment_item(model: Model, item: ItemT, segments: SegmentOption | None) -> ItemT:
    """Return a clip with segments in place of words, as the option `segments` says; any item for
    None.

    An InputError says that the item is no clip, or cannot be divided so (`segment_clip`).
    """
    if segments is None:
        return item
    if not isinstance(item, Clip):
        raise InputError(f"segments={segments!r} divides the sound of a clip, found {item!r:.80}")
    grid = None
    if segments == FRAMES:
        grid = model.grid(len(item.audio(model.sample_rate)))
    return cast("ItemT", segment_clip(item, segments, grid=grid))


def parse_spans(requested_spans: Sequence[SpanRequest]) -> list[Span]:
    """Return what the option `spans` requests as spans; the InputError of a wrong one names it.

    Wrong are no spans, one that is empty or no range of whole positions, pieces of one that
    overlap, and one in pieces that shares a position with another.
    """
    spans = []
    for index, span in enumerate(requested_spans):
        if not isinstance(span, Span):
            try:
                ranges = parse_span_request(span)
            except (TypeError, ValueError):
                raise InputError(
                    f"span {index} should be (start, stop) in whole frames, or a list of these, "
                    f"found {span!r}"
                ) from None
            if len(ranges) == 1:  # checked below, as any span
                span = Span(*ranges[0], str(index), "word", index)
            else:
                span = Span.from_ranges(ranges, str(index), word=index)
        if not 0 <= span.start < span.stop:
            raise InputError(
                f"span {index} should be half-open [start, stop) with 0 <= start < stop, found "
                f"{span}"
            )
        spans.append(span)
    if not spans:
        raise InputError("spans is empty: give at least one, or None for every frame")
    if any(span.pieces for span in spans):
        _check_overlap(spans)
    return spans


def _check_overlap(spans: Sequence[Span]) -> None:
    """Refuse a unit in pieces that shares a position with another: whose would it be?"""
    owner_by_position: dict[int, int] = {}
    for index, span in enumerate(spans):
        for position in span.positions:
            other = owner_by_position.setdefault(position, index)
            if other != index and (span.pieces or spans[other].pieces):
                raise InputError(
                    f"spans {other} and {index} share position {position}: where one is in pieces, "
                    "each position is in one span"
                )


def resolve_state_dtype(model: Model, request: MixRequest) -> torch.dtype:
    """Precision of the states: float32 or better by default, because scores are small differences
    of states, which half precision rounds away."""
    if request.dtype is None:
        return model.state_dtype
    dtype = resolve_dtype(request.dtype)
    if dtype.itemsize < 4:
        warnings.warn(
            f"scores are computed on {dtype} states: expect relative errors of tens of percent, and "
            "small scores to be noise; measures='value_zeroing:product_dtype=bfloat16' is as fast "
            "and keeps errors below 1 %",
            stacklevel=4,
        )
    return dtype


@contextmanager
def inference_context(model: Model, dtype: torch.dtype) -> Iterator[None]:
    """Run a model unchanged while the block lasts: its own weights in this precision, no gradients,
    no random number taken from the caller."""
    with (
        torch.inference_mode(False),  # a caller's, in which nothing could be differentiated
        model.in_use(dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
    ):
        yield
