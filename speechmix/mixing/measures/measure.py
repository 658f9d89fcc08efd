"""A measure: what is declared of it, its function, and the options that the function reads.

The keyword-only arguments of the function are the measure's options: those of `OPTIONS` come from
the caller, the others are the measure's own, with their defaults. They are passed by keyword, or
behind the measure's name: "NAME:option=value,option=value", in Python and on the command line.

Hash a measure's code, so that stored maps of a changed function are not reused.

In: a function. Out: 16 hexadecimal digits of its byte code, constants, defaults, and of the
functions and plain values that it closes over or takes from its own module. What other modules do
is not in it: their versions are in a run's description.

Check that a measure is defined for a model.

Positions of a measure's target and source units, and pooling over them.

A `Span` (inputs) is one labelled unit; a `View` (scoring) says which spans are the rows and columns
of each stack; `Units` are those rows and columns as a measure needs them: which positions to
compute, how to pool them. A unit is one range of positions, or several (a word in pieces). One
`Units` serves all layers of a stack: what a GPU needs of it is sent there once.
"""

from __future__ import annotations

import inspect
import warnings
from ast import literal_eval
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise, zip_longest
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ...adapters.capture.device_copy import to_device
from ...errors import InputError
from ...files.cache_keys import digest
from ...inputs.words.spans import POOLING_METHODS, Span
from ..maps.logit_contributions import LogitTerms
from ..maps.measure_registry import MeasureFacts

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.capture.layer_run import Block
    from ...adapters.model import Model

_PRIMITIVE_TYPES = (bool, int, float, complex, str, bytes, type(None))


def code_fingerprint(function: Any) -> str:
    """Hash of what a function does.

    Examples
    --------
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 1)
    True
    >>> code_fingerprint(lambda x: x + 1) == code_fingerprint(lambda x: x + 2)
    False
    """
    return digest(_describe_value(function, ()))[:16]


def _describe_value(value: object, enclosing_functions: tuple[object, ...]) -> object:
    """A value as lists of text; a function by its code and what that refers to, other things by
    their type alone."""
    if isinstance(value, _PRIMITIVE_TYPES):
        return repr(value)
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(repr, value))]
    if isinstance(value, tuple | list):
        return [
            type(value).__name__,
            *(_describe_value(component, enclosing_functions) for component in value),
        ]
    if isinstance(value, dict):
        return [
            "dict",
            *(
                [repr(key), _describe_value(component, enclosing_functions)]
                for key, component in value.items()
            ),
        ]
    if isinstance(value, CodeType):
        return [
            value.co_code.hex(),
            list(value.co_names),
            [_describe_value(component, enclosing_functions) for component in value.co_consts],
        ]
    if isinstance(value, partial):
        return [
            _describe_value(component, enclosing_functions)
            for component in (value.func, value.args, value.keywords)
        ]
    if not isinstance(value, FunctionType) or value in enclosing_functions:
        return (
            f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        )
    references = inspect.getclosurevars(value)
    module_globals = {
        name: referenced_value
        for name, referenced_value in references.globals.items()
        if isinstance(referenced_value, _PRIMITIVE_TYPES)
        or getattr(referenced_value, "__module__", None) == value.__module__
    }
    components = (
        value.__code__,
        value.__defaults__,
        value.__kwdefaults__,
        dict(references.nonlocals),
        module_globals,
    )
    return [_describe_value(component, (*enclosing_functions, value)) for component in components]


# Options of the calling function that a measure's function can read, by scope. `batch_size` and
# `product` (which does the matrix products) do not change scores.
OPTIONS = {
    "layer": ("heads", "product", "batch_size"),
    "model": (),
    "logit": (),
    "removal": ("samples", "seed"),
}


MeasureFunction = Callable[..., Any]  # see `Measure` for what those of each scope get and return


class BlockReader(Protocol):
    """Reads contributions to logits from the attention blocks of a pass, one after the other."""

    def on_block(self, block: Block) -> None:
        """Read one block."""

    def values(self) -> list[LogitTerms]:
        """Fields of `LogitContributions` for each objective, behind the pass."""


@dataclass(frozen=True)
class Measure(MeasureFacts):
    """What is known of a measure, and its function.

    Parameters
    ----------
    function : callable
        Of scope "layer": ``function(block, units, **options)`` returns a map of one layer, Tensor
        [W_t, W_s] ([H, W_t, W_s] for heads="each"). Of scope "model": ``function(gradient_pass,
        stack, units, **options)`` returns the maps of a stack's layers, Tensor [L, W_t, W_s] (one
        row with `objective`), and a dict for their provenance. Of scope "logit":
        ``function(logit_pass, objectives, **options)`` returns the fields of `LogitContributions`
        for each objective, as a list of dicts (`speechmix.extensions.logit_decompositions.logit_measures`). Of scope
        "removal": ``function(count, margins, **options)`` returns values [n, ...] of n sources, or
        these and their standard errors; ``margins(sets)`` are the margins [m, ...] of an item with
        some of its sources only, by Boolean rows [m, n].
    check : callable, optional
        Of scope "logit": called with a model; raises `InputError` if the measure is not defined for
        it.
    details : tuple of str
        Of scope "logit": what an objective must say, one of these.
    roundings : float
        Of scope "logit": by how many roundings of the sum of their lengths contributions may miss
        the logit.
    mismatch : str
        Of scope "logit": the likely reason if they miss it by more, as the error says it.
    block_reader : callable, optional
        Of scope "logit": makes a `BlockReader` of (model, view, request, inputs, objectives, units)
        and the measure's own options, if contributions can be read from the attention blocks of
        one pass, which other measures may share.
    batched : callable, optional
        Of scope "layer": ``batched(block_batch, units_batch, **options)`` returns the scores of each
        clip of a pass, a list of Tensors, where the clips go through a layer together; with the
        options that `function` has.
    check_options : callable, optional
        Called with the given options of the measure's own, by keyword; raises `InputError` for one
        that cannot be.
    values : mapping of str to object
        Options of the measure's own that differ from the defaults of its function.
    """

    function: MeasureFunction = field(kw_only=True)
    check: Callable[[Model], object] | None = field(default=None, kw_only=True)
    details: tuple[str, ...] = field(default=("position",), kw_only=True)
    roundings: float = field(default=1e4, kw_only=True)
    mismatch: str = field(
        default="its table describes something else than it computes (see speechmix check)",
        kw_only=True,
    )
    block_reader: Callable[..., BlockReader] | None = field(default=None, kw_only=True)
    is_builtin: bool = field(default=False, kw_only=True)
    batched: MeasureFunction | None = field(default=None, kw_only=True)
    check_options: Callable[..., object] | None = field(default=None, kw_only=True)
    values: Mapping[str, object] = field(default_factory=dict, kw_only=True)

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """The options of the calling function that the measure's function reads, by its keyword
        arguments."""
        return tuple(name for name in keyword_names(self.function) if name in OPTIONS[self.scope])

    @cached_property
    def own_options(self) -> tuple[str, ...]:
        """The options that only this measure has: the other keyword arguments of its function."""
        return tuple(
            name for name in keyword_names(self.function) if name not in OPTIONS[self.scope]
        )

    @cached_property
    def option_values(self) -> dict[str, object]:
        """The measure's own options with their values, defaults included."""
        defaults = {name: self._option_default(name) for name in self.own_options}
        return {**defaults, **self.values}

    def with_options(self, text: str) -> Measure:
        """Return the measure with options of its own, as "power=2,kind=max" has them.

        Raises
        ------
        InputError
            If it has no such option, or a value is not of the type of the option's default.
        """
        pairs = [pair.partition("=") for pair in text.split(",")]
        return self.with_values(
            {name: self._parse_option(name, value) for name, _, value in pairs}, text
        )

    def with_values(self, values: Mapping[str, object], text: str = "") -> Measure:
        """Return the measure with values of options of its own; `text` is written behind its name.

        Raises
        ------
        InputError
            If it has no such option.
        """
        for name in values:
            self._option_default(name)
        name = f"{self.name}:{text}" if text else self.name
        measure = replace(self, name=name, values={**self.values, **values})
        if measure.check_options is not None:
            try:
                measure.check_options(**measure.values)
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from None
        return measure

    def _option_default(self, option: str) -> object:
        if option not in self.own_options:
            available_options = (
                f"it has {', '.join(self.own_options)}" if self.own_options else "it has none"
            )
            raise InputError(
                f"{self.name} has no option {option or 'without a name'}; {available_options}"
            )
        return inspect.signature(self.function).parameters[option].default

    def _parse_option(self, option: str, text: str) -> object:
        """Parse the value of an option, of the type of its default, from text."""
        default = self._option_default(option)
        if isinstance(default, str):
            return text
        try:
            value = literal_eval(text.title() if isinstance(default, bool) else text)
        except (ValueError, SyntaxError):
            value = text
        value = float(value) if isinstance(default, float) and type(value) is int else value
        if default is not None and type(value) is not type(default):
            raise InputError(
                f"{self.name}: {option} should be of type {type(default).__name__}, as its default "
                f"{default!r} is; found {text!r}"
            )
        return value

    @cached_property
    def identity(self) -> str:
        """What stored maps are known by: name and revision (if not the first); for a measure of
        one's own a hash of it, too."""
        name = self.name if self.revision == 1 else f"{self.name} revision {self.revision}"
        return name if self.is_builtin else f"{name} {code_fingerprint(self.function)}"

    def __call__(self, *args: object, **options: object) -> Any:
        """Call the function, with the values of the measure's own options."""
        return self.function(*args, **options, **self.values)

    def batched_function(self, heads: str) -> Callable[..., list[Tensor]] | None:
        """Return `batched` with the values of the measure's own options; None if it does not compute what
        is requested: all heads at once, by the delta engine."""
        uses_delta = self.option_values.get("engine", "delta") == "delta"
        if self.batched is None or heads != "mean" or not uses_delta:
            return None
        return partial(self.batched, **self.values)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `InputError` unless an option has one of some values."""
    if value not in choices:
        raise InputError(f"{name} must be one of {choices}, found {value!r}")


def keyword_names(function: Callable[..., object]) -> list[str]:
    """Names of a function's arguments that can be given by keyword alone."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def check_defined(facts: MeasureFacts, stack: Stack) -> None:
    """Raise `InputError`, which names another measure, if this one is not defined for a stack; warn
    of what it misses."""
    if stack.name == "cross" and not facts.cross:
        raise InputError(
            f"{facts.name} is not defined for cross-attention: its targets are tokens and its "
            "sources are the encoder's, so "
            "the residual stream belongs to none of them. Ask for stacks=['encoder', 'decoder'], "
            "or use attention_norm "
            "or alti"
        )
    if facts.norms and stack.spec.norm_order != "post":
        raise InputError(
            f"{facts.name} is defined for post-norm stacks, where a layer norm follows the "
            "residual sum; this "
            f"{stack.name} is pre-norm. Use attention_norm_residual"
        )
    if facts.norms == 2 and len(stack.spec.blocks) > 1:
        raise InputError(
            f"{facts.name} is defined for encoder layers, attention and feed-forward; a layer of "
            f"this {stack.name} has "
            "cross-attention between them. Use attention_norm_residual_layernorm"
        )
    if stack.spec.between and facts.scope == "layer":
        warnings.warn(
            f"the {stack.name} of this model has {stack.spec.between}, which mixes positions "
            "between layers. A map of one "
            "layer is right; a rollout or a composed map leaves that mixing out",
            stacklevel=2,
        )


def mixing_between_layers(model: Model) -> str:
    """What mixes positions between a model's layers, as a sentence; empty if nothing does."""
    descriptions = [
        f"the {stack.name} of {model.name} has {stack.spec.between}"
        for stack in model.stacks.values()
        if stack.spec.between
    ]
    return (
        f"{'; '.join(descriptions)}, which mixes positions between layers" if descriptions else ""
    )


# Half-open ranges of one unit, apart from each other and in ascending order.
Ranges = tuple[tuple[int, int], ...]


class Units:
    """Targets and sources of one map as positions, with pooling ("mean" or "max") over them.

    Axis letters: R positions needed on the target side, K source positions, W units. `targets` and
    `sources` hold each unit's ranges of positions: one as a rule. `positions` are the R target
    positions that are needed, ascending; `rows` [R], the same on the device.
    """

    def __init__(
        self,
        targets: Sequence[Span],
        sources: Sequence[Span],
        *,
        pooling: str,
        device: torch.device,
    ):
        if pooling not in POOLING_METHODS:
            raise InputError(f"pooling must be one of {POOLING_METHODS}, found {pooling!r}")
        self._target_spans, self._source_spans = targets, sources
        self.targets: list[Ranges] = [span.ranges for span in targets]
        self.sources: list[Ranges] = [span.ranges for span in sources]
        self.pooling, self.device = pooling, device
        self.positions = sorted({position for span in targets for position in span.positions})
        self.rows = to_device(torch.tensor(self.positions, dtype=torch.long), device)
        self._groups: dict[int, list[Units]] = {}

    def groups(self, max_positions: int) -> list[Units]:
        """Split the targets into runs of at most so many positions (one target at least), to bound
        memory."""
        if len(self.positions) <= max_positions:
            return [self]
        if max_positions not in self._groups:
            groups: list[list[Span]] = [[]]
            for span in self._target_spans:
                if groups[-1] and sum(map(len, groups[-1])) + len(span) > max_positions:
                    groups.append([])
                groups[-1].append(span)
            self._groups[max_positions] = [
                Units(group, self._source_spans, pooling=self.pooling, device=self.device)
                for group in groups
            ]
        return self._groups[max_positions]

    def rows_in_ranges(self, ranges: Ranges) -> list[slice]:
        """Which of the rows lie in each range of positions."""
        return [
            slice(bisect_left(self.positions, start), bisect_left(self.positions, stop))
            for start, stop in ranges
        ]

    @cached_property
    def has_ordered_sources(self) -> bool:
        """True if the sources come one after the other, by where each begins."""
        return all(a[0] <= b[0] for a, b in pairwise(self.sources))

    @cached_property
    def source_lengths(self) -> list[int]:
        """How many positions each source has."""
        return [len(span) for span in self._source_spans]

    @cached_property
    def source_position_indices(self) -> list[slice | Tensor]:
        """What takes each source's positions out of an axis of positions: a slice, or indices where
        it is in pieces."""
        return [
            slice(span.start, span.stop)
            if len(span.ranges) == 1
            else to_device(torch.tensor(span.positions, dtype=torch.long), self.device)
            for span in self._source_spans
        ]

    def padded_sources(self, first: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positions of some sources, on the device, [S, J], and which of them are more than padding
        to the longest's length."""
        positions, begins, lengths = self._concatenated_sources
        columns = torch.arange(max(self.source_lengths[first:stop]), device=self.device)
        flat_indices = (begins[first:stop, None] + columns).clamp_max(len(positions) - 1)
        return positions[flat_indices], columns < lengths[first:stop, None]

    @cached_property
    def _concatenated_sources(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of all sources, one after the other; where each source begins among them [W],
        and its length [W]."""
        positions = [position for span in self._source_spans for position in span.positions]
        begins = [0, *accumulate(self.source_lengths)][:-1]
        tables = (
            torch.tensor(numbers, dtype=torch.long)
            for numbers in (positions, begins, self.source_lengths)
        )
        all_positions, starts, lengths = (to_device(table, self.device) for table in tables)
        return all_positions, starts, lengths

    @cached_property
    def source_positions(self) -> Tensor:
        """Positions that belong to some source, in ascending order, on the device."""
        positions = sorted({position for span in self._source_spans for position in span.positions})
        return to_device(torch.tensor(positions, dtype=torch.long), self.device)

    @cached_property
    def self_mask(self) -> Tensor:
        """Where a target meets itself among the sources, on the device, bool [W_t, W_s]."""
        matches = [[source == target for source in self.sources] for target in self.targets]
        return to_device(
            torch.tensor(matches).reshape(len(self.targets), len(self.sources)), self.device
        )

    @cached_property
    def target_rows(self) -> TargetRows:
        """The rows of each target, one target after the other."""
        return TargetRows(self)

    @cached_property
    def _target_pooling(self) -> _Pooling:
        rows = [self.rows_in_ranges(ranges) for ranges in self.targets]
        return _Pooling(
            [tuple((run.start, run.stop) for run in runs) for runs in rows],
            self.pooling,
            self.device,
        )

    @cached_property
    def _source_pooling(self) -> _Pooling:
        return _Pooling(self.sources, self.pooling, self.device)

    def pool_targets(self, scores: Tensor) -> Tensor:
        """Pool rows [..., R, S] over the positions of each target: [..., W, S]."""
        return self._target_pooling(scores.transpose(-1, -2)).transpose(-1, -2)

    def pool_sources(self, scores: Tensor) -> Tensor:
        """Pool columns [..., R, K] over the positions of each source: [..., R, W]."""
        return self._source_pooling(scores)


class TargetRows:
    """The rows of each target, one target after the other: P pairs of a target and one of its
    positions.

    A position of two targets that overlap is in two pairs. `pair_ranges` say which pairs are of
    each target. `rows`, `targets` and `row_indices` [P] are on the device: positions, indices of
    targets, and indices of positions among the units' rows.
    """

    def __init__(self, units: Units):
        self._ranges, self._device = units.targets, units.device
        lengths = [sum(stop - start for start, stop in ranges) for ranges in units.targets]
        ends = list(accumulate(lengths))
        self.positions = [
            p for ranges in units.targets for start, stop in ranges for p in range(start, stop)
        ]
        self.pair_ranges = list(zip([0, *ends], ends, strict=False))
        self.rows, self.targets, self.row_indices = (
            to_device(torch.tensor(numbers, dtype=torch.long), units.device)
            for numbers in (
                self.positions,
                [target for target, length in enumerate(lengths) for _ in range(length)],
                [bisect_left(units.positions, position) for position in self.positions],
            )
        )
        self._pooling = _Pooling([(pairs,) for pairs in self.pair_ranges], "mean", units.device)
        self._own_masks: dict[int, Tensor] = {}

    def own_position_mask(self, n_sources: int) -> Tensor:
        """Which of the source positions are each target's own, on the device, bool [W, K]."""
        if n_sources not in self._own_masks:
            mask = torch.zeros(len(self._ranges), n_sources, dtype=torch.bool)
            for target, ranges in enumerate(self._ranges):
                for start, stop in ranges:
                    mask[target, start:stop] = True
            self._own_masks[n_sources] = to_device(mask, self._device)
        return self._own_masks[n_sources]

    def mean(self, values: Tensor) -> Tensor:
        """Mean of values of pairs [..., P] over the positions of each target, [..., W], whatever
        the units' pooling."""
        return self._pooling(values)


class _Pooling:
    """Mean or maximum over each unit's positions, runs (start, stop) of the last axis."""

    def __init__(self, units: Sequence[Ranges], pooling: str, device: torch.device):
        self._units, self._pooling, self._device = units, pooling, device
        self._has_single_positions = all(
            len(runs) == 1 and runs[0][1] - runs[0][0] == 1 for runs in units
        )
        self._matrices: dict[tuple[int, torch.dtype], Tensor] = {}

    def __call__(self, scores: Tensor) -> Tensor:
        if self._has_single_positions:
            return scores[..., self._starts]
        if self._pooling == "max":
            return torch.stack([_pool_maximum(scores, runs) for runs in self._units], dim=-1)
        return scores @ self._means(scores.shape[-1], scores.dtype)

    @cached_property
    def _starts(self) -> Tensor:
        return to_device(
            torch.tensor([runs[0][0] for runs in self._units], dtype=torch.long), self._device
        )

    def _means(self, length: int, dtype: torch.dtype) -> Tensor:
        """Matrix [length, W] that takes the mean of each unit."""
        if (length, dtype) not in self._matrices:
            matrix = torch.zeros(length, len(self._units), dtype=dtype)
            for column, runs in enumerate(self._units):
                for start, stop in runs:
                    matrix[start:stop, column] = 1 / sum(b - a for a, b in runs)
            self._matrices[length, dtype] = to_device(matrix, self._device)
        return self._matrices[length, dtype]


def _pool_maximum(scores: Tensor, runs: Ranges) -> Tensor:
    """Maximum over the positions of one unit [...]."""
    (start, stop), *further = runs
    highest = scores[..., start:stop].amax(dim=-1)
    for start, stop in further:
        highest = torch.maximum(highest, scores[..., start:stop].amax(dim=-1))
    return highest


class UnitsBatch:
    """The units of C clips as padded tables on the device.

    Axis letters: P pairs of a target and one of its positions, J positions of a source. `rows` [C, R]
    are the target positions that are needed. Padding is position 0, or a source without positions;
    `pool_targets` and `mean_over_targets` cut it off.
    """

    def __init__(self, units: Sequence[Units]):
        self.units = units
        self._own_masks: dict[int, Tensor] = {}
        self.rows = _pad([clip_units.rows for clip_units in units])
        lengths = [clip_units.source_lengths for clip_units in units]
        self.source_lengths = [max(same_index) for same_index in zip_longest(*lengths, fillvalue=0)]

    @cached_property
    def _sources(self) -> tuple[Tensor, Tensor]:
        """Positions of all sources [C, S, J], and which of them are more than padding."""
        tables = [units.padded_sources(0, len(units.sources)) for units in self.units]
        source_count, longest = len(self.source_lengths), max(self.source_lengths)
        positions, is_position = (
            torch.stack(
                [
                    F.pad(table, (0, longest - table.shape[1], 0, source_count - len(table)))
                    for table in clip_tables
                ]
            )
            for clip_tables in zip(*tables, strict=True)
        )
        return positions, is_position

    def padded_sources(self, first: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positions of some sources [C, S', J], and which of them are more than padding to the
        longest's length."""
        longest = max(self.source_lengths[first:stop])
        positions, is_position = self._sources
        return positions[:, first:stop, :longest], is_position[:, first:stop, :longest]

    @cached_property
    def target_rows(self) -> tuple[Tensor, Tensor]:
        """Of each pair the position [C, P], and its index among the rows [C, P]."""
        target_rows = [units.target_rows for units in self.units]
        return _pad([rows.rows for rows in target_rows]), _pad(
            [rows.row_indices for rows in target_rows]
        )

    def own_position_mask(self, n_sources: int) -> Tensor:
        """Which source positions are of a pair's own target, bool [C, P, K]."""
        if n_sources not in self._own_masks:
            target_rows = [units.target_rows for units in self.units]
            self._own_masks[n_sources] = _pad(
                [rows.own_position_mask(n_sources)[rows.targets] for rows in target_rows]
            )
        return self._own_masks[n_sources]

    def pool_targets(self, scores: Tensor) -> list[Tensor]:
        """Pool rows [C, R, S] over the positions of each target: [W_t, W_s] of each clip."""
        return [
            units.pool_targets(clip_scores[: len(units.positions), : len(units.sources)])
            for units, clip_scores in zip(self.units, scores, strict=True)
        ]

    def mean_over_targets(self, values: Tensor) -> list[Tensor]:
        """Mean of values of pairs [C, P] over the positions of each target: [W_t] of each clip."""
        return [
            units.target_rows.mean(clip_values[: len(units.target_rows.positions)])
            for units, clip_values in zip(self.units, values, strict=True)
        ]


def _pad(tables: Sequence[Tensor]) -> Tensor:
    """One table of several, padded with zeros to the longest."""
    return pad_sequence([*tables], batch_first=True)
