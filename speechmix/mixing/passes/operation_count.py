"""How many operations a clip's maps take: counted while the package's own code runs on a model
without weights.

In: a model on the meta device (`adapters.binding.meta_model`), measures, the length of a clip. Out:
floating-point operations of the plain forward pass and of each measure (a multiplication and an
addition are two). Of each stack one layer is scored and counted for all, for its layers are alike.
What is not counted: measures that differentiate the whole model, features, and all that is done
number by number (norms, activations, softmax), which takes time all the same (`mixing.passes.estimate`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...adapters.binding.meta_model import first_layers
from ...adapters.capture.block import Block
from ...adapters.capture.forward_pass import Capture
from ...adapters.delta.products import Product
from ...adapters.generation.text_tokens import most_positions
from ...adapters.model import Model
from ...adapters.transformers_types import HookArguments, HookKeywords
from ...errors import InputError
from ..measures.availability import check_defined
from ..measures.measure import Measure
from ..measures.mixing_strength import STRENGTH
from ..measures.registry import measure_named
from .batches import bytes_of_pairs
from .forward_pass import scores_of_block
from .precision import Precision, inference_context
from .request import MixRequest
from .requested_layers import stacks_of
from .view import View
from .views import make_view

WORDS_PER_SECOND = 2.5
TOKENS_PER_WORD = 1.5
_PREFIX = 4  # tokens that a decoder starts from


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of one clip.

    Attributes
    ----------
    forward : int
        Of the plain forward pass.
    measures : mapping of str to int
        What each measure takes beside it, in all layers of all stacks; and the mixing strength,
        which every map has.
    reading : int
        What it takes to read attention where the model does not show it (WavLM).
    uncounted : tuple of str
        Measures that differentiate the whole model.
    """

    forward: int
    measures: Mapping[str, int] = field(default_factory=dict)
    reading: int = 0
    uncounted: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.forward + self.reading + sum(self.measures.values())


class OperationCounter(TorchDispatchMode):
    """Count the operations of tensors while the block lasts, as torch's formulas have them.

    On the meta device there are no numbers: whoever asks for one is told yes (one), as in "nothing
    is padded". Unlike torch's `FlopCounterMode` it hooks no modules, so that what runs within may
    differentiate.

    Examples
    --------
    >>> with OperationCounter() as counting:
    ...     product = torch.ones(2, 3, device="meta") @ torch.ones(3, 5, device="meta")
    ...     told = bool((product == 0).all())
    >>> counting.operations, told
    (60, True)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return torch.ones((), dtype=args[0].dtype).item()
        result = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.operations += formula(*args, **kwargs, out_val=result)
        return result


def shaped_inputs(model: Model, seconds: float) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Inputs of the shape that a clip (a sentence) of so many seconds has, and the spans of its
    words.

    Of 2.5 words a second, evenly spread, and 1.5 tokens a word, as read speech and the tokenizers
    of large models have it.

    Raises
    ------
    InputError
        If the model cannot hear or read as much at a time.
    """
    model.refuse_audio_tokens(
        f"{model.name}: what an audio language model takes cannot be told beforehand: its "
        "decoder reads sound, prompt and "
        "answer. Time a few clips instead"
    )
    words = max(2, round(WORDS_PER_SECOND * seconds))
    n_tokens = max(6, _PREFIX + round(TOKENS_PER_WORD * words))
    inputs, rows = {}, model.family.feature_rows
    for name, example in model.family.tiny_inputs(model.config).items():
        if name == "input_features" and rows is not None:
            inputs[name] = example.new_zeros(
                1, (round(seconds * model.sample_rate) - rows[1]) // rows[0], example.shape[2]
            )
            continue
        length = example.shape[-1] if name == "input_features" else n_tokens
        length = round(seconds * model.sample_rate) if name == "input_values" else length
        inputs[name] = example.new_zeros(*example.shape[:-1], length)
    if model.hears:
        grid = model.grid(round(seconds * model.sample_rate))
        if grid.is_fixed_window and seconds > grid.duration:
            raise InputError(
                f"{model.name} hears {grid.duration:g} s at a time, found seconds={seconds:g}"
            )
        places = min(grid.n_frames, grid.frames_between(0.0, seconds)[1])
    else:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        places, most = n_tokens, most_positions(model)
        if most is not None and n_tokens > most:
            raise InputError(
                f"{model.name} reads {most} tokens at a time; a text of {seconds:g} s has about "
                f"{n_tokens}: give fewer seconds"
            )
    words = min(words, places)
    ends = [round(places * index / words) for index in range(words + 1)]
    return inputs, list(itertools.pairwise(ends))


def middle_rows(model: Model, n_words: int, inputs: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """Rows of a word in the middle of a clip: its own, and in a decoder behind an encoder those of
    two tokens."""
    word, token = (
        n_words // 2,
        inputs["decoder_input_ids"].shape[1] // 2 if "decoder_input_ids" in inputs else 0,
    )
    before = model.capabilities.input_stack
    return {name: [word] if name == before else [token - 1, token] for name in model.stacks}


def counted_operations(
    model: Model,
    *,
    seconds: float,
    measures: Sequence[str] = ("value_zeroing",),
    targets: str | None = None,
    stacks: Sequence[str] | None = None,
) -> Operations:
    """Count the operations of one clip's maps.

    Parameters
    ----------
    model : Model
        On the meta device (`outline`).
    seconds : float
        Length of the clip.
    measures : sequence of str
    targets : {"target"}, optional
        Count the rows of one word (and of two tokens) alone.
    stacks : sequence of str, optional
        All that the model has by default.

    Raises
    ------
    InputError
        For an unknown measure, one that is not defined for a stack, or a clip that is too long for
        it.
    """
    inputs, spans = shaped_inputs(model, seconds)
    rows = None if targets is None else middle_rows(model, len(spans), inputs)
    request = MixRequest.of(
        {"measures": list(measures), "stacks": stacks, "spans": spans, "targets": rows}
    )
    asked = [measure_named(name) for name in request.measures]
    view = make_view(model, inputs, request)
    named = stacks_of(model, [view], request)
    for measure, name in itertools.product(asked, named):
        check_defined(measure, model.stacks[name])
    view.prepare(named)
    on_meta = {name: tensor.to("meta") for name, tensor in view.prepared.inputs.items()}
    of_blocks = [measure for measure in asked if measure.scope == "layer"]
    of_blocks += [STRENGTH] if any(not measure.objective for measure in asked) else []
    with (
        first_layers(model) as shallow,
        inference_context(shallow, Precision.of(shallow, request)),
    ):
        times = {name: len(model.stacks[name]) // len(shallow.stacks[name]) for name in named}
        plain = _of_forward_pass(shallow, on_meta, times)
        by_measure, read = _of_measures(shallow, view, on_meta, of_blocks, request, times)
    return Operations(
        forward=sum(plain.values()),
        measures={
            measure.name: sum(times[name] * by_measure[measure.name, name] for name in named)
            for measure in of_blocks
        },
        reading=sum(read.values()) - sum(plain.values()),
        uncounted=tuple(measure.name for measure in asked if measure.scope == "model"),
    )


def _of_forward_pass(
    model: Model, inputs: Mapping[str, Tensor], times: Mapping[str, int]
) -> Counter[str]:
    """Operations of a pass by stack and outside of all, if each layer were there so many times."""
    with OperationCounter() as counting, _within_layers(model, counting, times) as counts:
        model.family.run(model.base, inputs, tuple(times))
    counts["outside"] += counting.operations
    return counts


@contextmanager
def _within_layers(
    model: Model, counting: OperationCounter, times: Mapping[str, int]
) -> Iterator[Counter[str]]:
    """Count what layers take that are there more than once: all but the one that runs, which is
    counted outside."""
    counts: Counter[str] = Counter()
    begun: list[int] = []
    layers = {
        layer.module: name for name in times for layer in model.stacks[name].layers
    }  # cross shares the decoder's
    with ExitStack() as hooks:
        for module, name in layers.items():

            def end(module: nn.Module, args: object, output: object, name: str = name) -> None:
                counts[name] += (times[name] - 1) * (counting.operations - begun.pop())

            begin = module.register_forward_pre_hook(
                lambda module, args: begun.append(counting.operations)
            )
            hooks.callback(begin.remove)
            hooks.callback(module.register_forward_hook(end).remove)
        yield counts


def _of_measures(
    model: Model,
    view: View,
    inputs: Mapping[str, Tensor],
    measures: Sequence[Measure],
    request: MixRequest,
    times: Mapping[str, int],
) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Operations of each measure in the one layer of each stack, and those of the pass in which it
    was read."""
    by_measure: Counter[tuple[str, str]] = Counter()
    resources = {
        "product": Product(model.state_dtype),
        "batch_size": "auto",
        "bytes_of_pairs": bytes_of_pairs(torch.device("cpu")),
    }

    def on_block(block: Block) -> None:
        units = view.units(block)
        for measure in measures:
            before = counting.operations
            for _ in scores_of_block(block, units, [measure], request, resources):
                by_measure[measure.name, block.stack.name] += counting.operations - before

    stacks = [model.stacks[name] for name in times]
    with (
        OperationCounter() as counting,
        _within_layers(model, counting, times) as counts,
        Capture(stacks, on_block, layers={0}),
    ):
        model.family.run(model.base, inputs, tuple(times))
    counts["outside"] += counting.operations - by_measure.total()
    return by_measure, counts
