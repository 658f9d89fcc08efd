"""Count the operations that the maps of a clip take, without weights.

In: a model on the meta device (`extensions.estimate.operation_count`), measures, the length of a clip. Out:
floating-point operations of the plain forward pass and of each measure (a multiplication and an
addition are two). Of each stack one layer is scored and counted for all, for its layers are alike.
What is not counted: measures that differentiate the whole model, features, and all that is done
number by number (norms, activations, softmax), which takes time all the same (`extensions.estimate.estimate`).

Count tensor operations by torch's formulas, without hooks on modules.

In: code that runs inside the context manager. Out: floating-point operations; a multiplication and
an addition are two.

Build a model without weights on torch's meta device.

In: a hub id, a folder, a model. Out: a `Model` whose parameters, stacks and operations can be
counted in a second, however large it is: of a hub id only the config is downloaded. Code that looks
at a number on its way runs there within an `OperationCounter` (extension estimate), which answers for it.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...adapters.binding.bound_layers import submodule
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.delta_engine.matrix_products import MatrixProduct
from ...adapters.families.family import Family
from ...adapters.families.registry import find_family, find_module_family
from ...adapters.generation.text_tokens import max_positions
from ...adapters.loading.checkpoints import (
    NO_CUSTOM_CODE,
    custom_code_message,
    first_line,
    needs_custom_code,
    read_config,
    split_processor,
    transformers_class,
)
from ...adapters.loading.load import adapter_base
from ...adapters.loading.model_source import (
    check_model_reference,
    is_pipeline,
    resolve_path_or_id,
    unwrap_module,
)
from ...adapters.model import Model
from ...adapters.transformers_types import Config, HookArguments, HookKeywords
from ...errors import InputError, ModelError
from ...mixing.measures.measure import Measure, check_defined
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.value_zeroing import choose_strength_measure
from ...mixing.passes.batches import inference_context, pair_batch_bytes, resolve_state_dtype
from ...mixing.passes.forward_pass import score_block
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view, resolve_stacks


class OperationCounter(TorchDispatchMode):
    """Count the operations of tensors while the block lasts, as torch's formulas have them.

    On the meta device there are no numbers: whoever asks for one is told yes (one), as in "nothing
    is padded". Unlike torch's `FlopCounterMode` it hooks no modules, so that what runs within may
    differentiate.

    Examples
    --------
    >>> with OperationCounter() as counter:
    ...     product = torch.ones(2, 3, device="meta") @ torch.ones(3, 5, device="meta")
    ...     answer = bool((product == 0).all())
    >>> counter.operations, answer
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


def build_meta_model(source: str | Path | Model | Any, *, revision: str | None = None) -> Model:
    """Build a model on the meta device from its config alone: float32, without weights or
    tokenizer.

    The source is what `speechmix.load` takes or returns, and raises the same errors.
    """
    if isinstance(source, Model):
        module_class = type(source.module)
        return _build_model(
            source.name, source.config, source.family, lambda config: module_class(config)
        )
    source = source.model if is_pipeline(source) else source
    check_model_reference(source)
    if isinstance(source, torch.nn.Module):
        module = unwrap_module(source)
        config = getattr(module, "config", None)
        if config is None:
            raise ModelError(
                f"expected a transformers model, found {type(module).__name__}, which has no config"
            )
        return _build_model(
            getattr(module, "name_or_path", "") or type(module).__name__,
            config,
            find_module_family(module, lambda: None),
            type(module),
        )
    path_or_id = resolve_path_or_id(source)
    adapter_base_id = adapter_base(path_or_id)
    options = {"revision": revision} if revision and adapter_base_id is None else {}
    config = read_config(
        path_or_id if adapter_base_id is None else resolve_path_or_id(adapter_base_id), options
    )
    family = find_family(config)
    cls = transformers_class(family.auto_class(config))
    name = Path(path_or_id).resolve().name if Path(path_or_id).is_dir() else os.fspath(source)
    build = partial(cls.from_config, **NO_CUSTOM_CODE) if hasattr(cls, "from_config") else cls
    return _build_model(name, config, family, build)


def _build_model(
    name: str, config: Config, family: Family, build: Callable[[Config], torch.nn.Module]
) -> Model:
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        config = copy.deepcopy(config)
        config.dtype = (
            torch.float32
        )  # of the checkpoint it may be half precision; weights are loaded in float32
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            module = build(config).eval().requires_grad_(False)
    except Exception as error:  # a config that fits no model
        if needs_custom_code(error):
            raise ModelError(custom_code_message(name)) from error
        raise ModelError(
            f"cannot build a model from the config of {name}: {first_line(error)}"
        ) from error
    finally:
        torch.set_default_dtype(default_dtype)
    return Model(module, family, name, "random", 0, *split_processor(None, family, config))


@contextmanager
def keep_first_layers(model: Model) -> Iterator[Model]:
    """Reduce each stack of a model on the meta device to its first layer while the block lasts.

    The layers of a stack are alike: what one needs, all need.

    Examples
    --------
    >>> import transformers
    >>> model = build_meta_model(transformers.BertModel(transformers.BertConfig(num_hidden_layers=12)))
    >>> with keep_first_layers(model) as shallow:
    ...     len(shallow.stacks["encoder"])
    1
    """
    paths = {stack.spec.layers for stack in model.stacks.values()}
    layer_lists = [submodule(model.base, path, label="layers") for path in paths]
    saved_layers = [
        (layer_list, dict(layer_list._modules))
        for layer_list in layer_lists
        if isinstance(layer_list, torch.nn.ModuleList)
    ]
    try:
        for layer_list, _ in saved_layers:
            del layer_list[1:]
        yield Model(
            model.module, model.family, model.name, model.init, model.seed, model.feature_extractor
        )
    finally:
        for layer_list, modules in saved_layers:
            layer_list._modules.clear()
            layer_list._modules.update(modules)


WORDS_PER_SECOND = 2.5
TOKENS_PER_WORD = 1.5
_PREFIX_TOKENS = 4  # tokens that a decoder starts from


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
    attention_reading : int
        What it takes to read attention where the model does not show it (WavLM).
    uncounted : tuple of str
        Measures that differentiate the whole model.
    """

    forward: int
    measures: Mapping[str, int] = field(default_factory=dict)
    attention_reading: int = 0
    uncounted: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.forward + self.attention_reading + sum(self.measures.values())


def make_blank_inputs(
    model: Model, seconds: float
) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
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
    word_count = max(2, round(WORDS_PER_SECOND * seconds))
    token_count = max(6, _PREFIX_TOKENS + round(TOKENS_PER_WORD * word_count))
    inputs, feature_rows = {}, model.family.feature_rows
    for name, example in model.family.tiny_inputs(model.config).items():
        if name == "input_features" and feature_rows is not None:
            inputs[name] = example.new_zeros(
                1,
                (round(seconds * model.sample_rate) - feature_rows[1]) // feature_rows[0],
                example.shape[2],
            )
            continue
        length = example.shape[-1] if name == "input_features" else token_count
        if name == "input_values" and example.ndim == 2:
            length = round(seconds * model.sample_rate)
        elif name == "input_values":  # a spectrogram of a fixed window
            length = example.shape[-1]
        inputs[name] = example.new_zeros(*example.shape[:-1], length)
    if model.hears:
        grid = model.grid(round(seconds * model.sample_rate))
        if grid.is_fixed_window and seconds > grid.duration:
            raise InputError(
                f"{model.name} hears {grid.duration:g} s at a time, found seconds={seconds:g}"
            )
        position_count = min(grid.n_frames, grid.frames_between(0.0, seconds)[1])
    else:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        position_count, max_tokens = token_count, max_positions(model)
        if max_tokens is not None and token_count > max_tokens:
            raise InputError(
                f"{model.name} reads {max_tokens} tokens at a time; a text of {seconds:g} s has about "
                f"{token_count}: give fewer seconds"
            )
    word_count = min(word_count, position_count)
    word_ends = [round(position_count * index / word_count) for index in range(word_count + 1)]
    return inputs, list(itertools.pairwise(word_ends))


def middle_word_rows(
    model: Model, word_count: int, inputs: Mapping[str, Tensor]
) -> dict[str, list[int]]:
    """Rows of a word in the middle of a clip: its own, and in a decoder behind an encoder those of
    two tokens."""
    word, token = (
        word_count // 2,
        inputs["decoder_input_ids"].shape[1] // 2 if "decoder_input_ids" in inputs else 0,
    )
    input_stack = model.capabilities.input_stack
    return {name: [word] if name == input_stack else [token - 1, token] for name in model.stacks}


def count_operations(
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
        On the meta device (`build_meta_model`).
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
    inputs, spans = make_blank_inputs(model, seconds)
    target_rows = None if targets is None else middle_word_rows(model, len(spans), inputs)
    request = MixRequest.of(
        {"measures": list(measures), "stacks": stacks, "spans": spans, "targets": target_rows}
    )
    requested_measures = [find_measure(name) for name in request.measures]
    stack_names = resolve_stacks(model, [inputs], request)
    for measure, name in itertools.product(requested_measures, stack_names):
        check_defined(measure, model.stacks[name])
    view = make_view(model, inputs, request, stack_names)
    meta_inputs = {name: tensor.to("meta") for name, tensor in view.prepared.inputs.items()}
    layer_measures = [measure for measure in requested_measures if measure.scope == "layer"]
    layer_measures += (
        [choose_strength_measure(requested_measures)]
        if any(not measure.objective for measure in requested_measures)
        else []
    )
    with (
        keep_first_layers(model) as shallow_model,
        inference_context(shallow_model, resolve_state_dtype(shallow_model, request)),
    ):
        layer_counts = {
            name: len(model.stacks[name]) // len(shallow_model.stacks[name]) for name in stack_names
        }
        forward_operations = _count_forward_pass(shallow_model, meta_inputs, layer_counts)
        measure_operations, reading_operations = _count_measures(
            shallow_model, view, meta_inputs, layer_measures, request, layer_counts
        )
    return Operations(
        forward=sum(forward_operations.values()),
        measures={
            measure.name: sum(
                layer_counts[name] * measure_operations[measure.name, name] for name in stack_names
            )
            for measure in layer_measures
        },
        attention_reading=sum(reading_operations.values()) - sum(forward_operations.values()),
        uncounted=tuple(measure.name for measure in requested_measures if measure.scope == "model"),
    )


def _count_forward_pass(
    model: Model, inputs: Mapping[str, Tensor], layer_counts: Mapping[str, int]
) -> Counter[str]:
    """Operations of a pass by stack and outside of all, if each layer were there so many times."""
    with OperationCounter() as counter, _count_layers(model, counter, layer_counts) as counts:
        model.family.run(model.base, inputs, tuple(layer_counts))
    counts["outside"] += counter.operations
    return counts


@contextmanager
def _count_layers(
    model: Model, counter: OperationCounter, layer_counts: Mapping[str, int]
) -> Iterator[Counter[str]]:
    """Count what layers take that are there more than once: all but the one that runs, which is
    counted outside."""
    operation_counts: Counter[str] = Counter()
    start_counts: list[int] = []
    layers = {
        layer.module: name for name in layer_counts for layer in model.stacks[name].layers
    }  # cross shares the decoder's
    with ExitStack() as hooks:
        for module, name in layers.items():

            def end(module: nn.Module, args: object, output: object, name: str = name) -> None:
                operation_counts[name] += (layer_counts[name] - 1) * (
                    counter.operations - start_counts.pop()
                )

            begin = module.register_forward_pre_hook(
                lambda module, args: start_counts.append(counter.operations)
            )
            hooks.callback(begin.remove)
            hooks.callback(module.register_forward_hook(end).remove)
        yield operation_counts


def _count_measures(
    model: Model,
    view: View,
    inputs: Mapping[str, Tensor],
    measures: Sequence[Measure],
    request: MixRequest,
    layer_counts: Mapping[str, int],
) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Operations of each measure in the one layer of each stack, and those of the pass in which it
    was read."""
    measure_operations: Counter[tuple[str, str]] = Counter()
    resources = {
        "product": MatrixProduct(model.state_dtype),
        "batch_size": "auto",
        "bytes_of_pairs": pair_batch_bytes(torch.device("cpu")),
    }

    def on_block(block: Block) -> None:
        units = view.units(block)
        for measure in measures:
            start_count = counter.operations
            for _ in score_block(block, units, [measure], request, resources):
                measure_operations[measure.name, block.stack.name] += (
                    counter.operations - start_count
                )

    stacks = [model.stacks[name] for name in layer_counts]
    with (
        OperationCounter() as counter,
        _count_layers(model, counter, layer_counts) as counts,
        Capture(stacks, on_block, layers={0}),
    ):
        model.family.run(model.base, inputs, tuple(layer_counts))
    counts["outside"] += counter.operations - measure_operations.total()
    return measure_operations, counts
