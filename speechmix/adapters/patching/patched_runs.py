"""Run an unmodified model with patches, many such runs in one pass.

A patch changes a source at some layer: its value vectors are zeroed, or its states or values are
those of another item. Before that layer its run is the clean one, so one forward pass carries both:
it begins with the clean item alone, and its batch *grows* by the patches of a layer when it reaches
that layer. Row 0 stays the clean run, unless all patches begin in one layer. A model of L layers with
a patch for each of W words in each layer so runs half of L W passes, batched; and what comes before
the patches once.

Unlike Value Zeroing, which asks about one layer at a time on the original input, a change is
carried on to the output: queries, keys and attention weights of later layers follow from the
changed states, as they would. The module's code is not changed; the model is as before on leaving.

Share one encoder output and its cross-attention projections among many runs.

In: a model whose decoder is fed many inputs behind the same states, given as one expanded tensor
[n, T, D] (``expand``: it has one row in memory). Out: the same numbers. Keys and values of the
states are projected once a layer and not once a run, and what all runs ask of them is asked as the
rows of one: for a Whisper's 1,500 frames that is nearly all that a short text costs. Undone on
leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...errors import InputError
from ..binding.bound_layers import AttentionModules, Stack
from ..capture.forward_pass import arguments_by_name, use_attention
from ..capture.layer_run import first_output, pack_like, unpack_states
from ..capture.model_use import run_encoder
from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput
from .patches import Patch, PatchedValues

if TYPE_CHECKING:
    from ..binding.bound_layers import Layer
    from ..model import Model


@contextmanager
def share_encoder_states(model: Model) -> Iterator[None]:
    """Let runs that share their encoder states attend to them together, as long as the block lasts."""
    with ExitStack() as exit_stack:
        if "cross" in model.stacks:
            for layer in model.stacks["cross"].layers:
                share_projections(layer, exit_stack)
                _merge_queries(layer, exit_stack)
        yield


def share_projections(layer: Layer, exit_stack: ExitStack) -> None:
    """Project states that all runs share once in a layer's cross-attention, until `exit_stack`
    closes."""
    for projection in (layer.attention.key, layer.attention.value):
        run_counts: list[int] = []

        def keep_first_row(
            module: nn.Module, args: HookArguments, run_counts: list[int] = run_counts
        ) -> tuple[Any, ...] | None:
            is_shared = _is_shared(args[0])
            run_counts.append(len(args[0]) if is_shared else 0)
            return (args[0][:1], *args[1:]) if is_shared else None

        def expand_output(
            module: nn.Module,
            args: HookArguments,
            output: Tensor,
            run_counts: list[int] = run_counts,
        ) -> Tensor | None:
            count = run_counts.pop()
            return output.expand(count, *output.shape[1:]) if count else None

        exit_stack.callback(projection.register_forward_pre_hook(keep_first_row).remove)
        exit_stack.callback(projection.register_forward_hook(expand_output).remove)


def _merge_queries(layer: Layer, exit_stack: ExitStack) -> None:
    """Run n runs of Q positions through a layer's cross-attention as one run of n Q positions."""
    run_counts: list[int] = []

    def merge_rows(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords] | None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        shared_states = [tensor for tensor in tensors if _is_shared(tensor)]
        queries = [tensor for tensor in tensors if not _is_shared(tensor)]
        # No mask, no positions of the rows.
        is_plain_call = len(shared_states) == len(queries) == 1 and queries[0].ndim == 3
        run_counts.append(
            len(queries[0]) if is_plain_call and len(queries[0]) == len(shared_states[0]) else 0
        )
        if not run_counts[-1]:
            return None

        def merge_tensor(value: ModelOutput) -> ModelOutput:
            if not isinstance(value, Tensor):
                return value
            return value[:1] if value is shared_states[0] else value.reshape(1, -1, value.shape[-1])

        return tuple(map(merge_tensor, args)), {
            name: merge_tensor(value) for name, value in kwargs.items()
        }

    def split_rows(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        count = run_counts.pop()
        if not count:
            return None
        states = first_output(output)
        states = states.reshape(count, -1, states.shape[-1])
        return (states, *output[1:]) if isinstance(output, tuple) else states

    exit_stack.callback(
        layer.attention.module.register_forward_pre_hook(merge_rows, with_kwargs=True).remove
    )
    exit_stack.callback(layer.attention.module.register_forward_hook(split_rows).remove)


def _is_shared(states: Tensor) -> bool:
    """Whether the rows of a batch are one in memory."""
    return states.ndim == 3 and len(states) > 1 and states.stride(0) == 0


_ENCODER_INPUT_NAMES = ("input_features", "input_values", "input_ids")  # what an encoder is fed
_MAX_BATCH_POSITIONS = 48_000  # of all patches that run together
_MAX_BATCH_RUNS = 256


def run_patches(
    model: Model,
    inputs: Mapping[str, Tensor],
    patches: Sequence[Patch],
    read_output: Callable[[ModelOutput], Tensor],
    *,
    audio_hash: str | None = None,
    batch_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a model clean and with each of N patches; return `read_output` [...] of the clean run and
    [N, ...] of the others.

    Call it within `Model.in_use`, with inputs of one item (a batch of 1) on the model's device in
    its precision. `read_output` maps the module's output for R runs to a Tensor [R, ...].
    `audio_hash` (`PreparedInputs.audio_hash`) finds the cached encoder output. By default as many
    patches run together as hold 48,000 positions, at most 256. A patch of a stack, layer or
    position that does not exist is an InputError.
    """
    full_inputs: dict[str, Any] = dict(inputs)
    decoder_inputs = full_inputs
    with torch.no_grad():
        with _patched_pass(model, ()) as clean_pass:
            if "cross" in model.stacks:  # the encoder runs once for all patches behind it
                decoder_inputs = {
                    **full_inputs,
                    "encoder_outputs": _run_shared_encoder(model, full_inputs, audio_hash),
                }
            clean_reading = read_output(_run_module(model, decoder_inputs))[0]
        if "cross" in clean_pass.lengths:  # what the encoder gives may have been remembered
            clean_pass.lengths.setdefault("encoder", clean_pass.lengths["cross"])
        for patch in patches:
            _check_patch(model, patch, clean_pass.lengths)
        readings: dict[int, Tensor] = {}
        most_runs = max(1, _MAX_BATCH_POSITIONS // max(clean_pass.lengths.values()))
        run_count = batch_size or min(_MAX_BATCH_RUNS, most_runs)  # that share one pass
        joins_tokens = "decoder" in model.stacks and "cross" not in model.stacks
        for is_encoder in (True, False):
            patch_indices = [
                patch_index
                for patch_index, patch in enumerate(patches)
                if (patch.stack == "encoder") == is_encoder
            ]
            for start in range(0, len(patch_indices), run_count):
                chunk = patch_indices[start : start + run_count]
                chunk.sort(key=lambda patch_index: patches[patch_index].layers.start)
                run_inputs = full_inputs if is_encoder else decoder_inputs
                # Sound must meet tokens of as many runs, and a label head may read all layers or
                # a mask: all run from the start.
                runs_from_start = is_encoder and (joins_tokens or model.has_label_head)
                chunk_patches = [patches[patch_index] for patch_index in chunk]
                first_row = int(runs_from_start or not _begin_together(model, chunk_patches))
                if runs_from_start:
                    run_inputs = {
                        name: torch.cat([tensor] * (len(chunk) + 1))
                        for name, tensor in full_inputs.items()
                    }
                with _patched_pass(model, chunk_patches, first_row=first_row):
                    output = _run_module(model, run_inputs)
                readings |= dict(zip(chunk, read_output(output)[first_row:], strict=True))
    patch_readings = [readings[patch_index] for patch_index in range(len(patches))]
    return clean_reading, torch.stack(patch_readings) if patch_readings else clean_reading[None][:0]


def _begin_together(model: Model, patches: Sequence[Patch]) -> bool:
    """Whether all patches begin in one layer, so that none is made of the clean run behind it."""
    modules = {model.stacks[patch.stack].layers[patch.layers.start].module for patch in patches}
    return len(modules) == 1


def _run_shared_encoder(
    model: Model, inputs: Mapping[str, ModelOutput], audio_hash: str | None
) -> ModelOutput:
    """Run the encoder under the attention implementation of passes with patches."""
    encoder_inputs = {
        name: value for name, value in inputs.items() if not name.startswith("decoder_")
    }
    return run_encoder(model, encoder_inputs, audio_hash, attention=model.readable_attention)


def _run_module(model: Model, inputs: Mapping[str, ModelOutput]) -> ModelOutput:
    if "encoder_outputs" in inputs:  # then what the encoder is fed is not needed
        inputs = {name: value for name, value in inputs.items() if name not in _ENCODER_INPUT_NAMES}
    return model.run_with_head(inputs)


def _check_patch(model: Model, patch: Patch, lengths: Mapping[str, int]) -> None:
    if patch.stack not in model.stacks:
        raise InputError(f"{model.name} has no stack {patch.stack!r}; it has {list(model.stacks)}")
    layer_count, length = len(model.stacks[patch.stack]), lengths.get(patch.stack, 0)
    if (
        not patch.layers
        or patch.layers.step != 1
        or not 0 <= patch.layers.start < patch.layers.stop <= layer_count
    ):
        raise InputError(
            f"layers should be a range within the {layer_count} of the {patch.stack}, found "
            f"{patch.layers}"
        )
    invalid_positions = [position for position in patch.positions if not 0 <= position < length]
    if invalid_positions:
        raise InputError(
            f"position {invalid_positions[0]} is not among the {length} sources of the {patch.stack}"
        )
    if patch.states is not None and patch.stack == "cross":
        raise InputError(
            "states are put in where they enter a layer: ask for the encoder or the decoder, not "
            "for cross"
        )


@contextmanager
def _patched_pass(
    model: Model, patches: Sequence[Patch], *, first_row: int = 1
) -> Iterator[_GrowingBatch]:
    """Let a pass with one item return that item's run, followed by the run of each patch; the runs
    of patches alone with `first_row` 0.

    Patches come in the order of their first layers, and are of the encoder alone or of what is
    behind it.
    """
    model.rebind()
    with ExitStack() as exit_stack:
        exit_stack.enter_context(use_attention(model.module, model.readable_attention))
        yield _GrowingBatch(model, patches, exit_stack, first_row)


class _GrowingBatch:
    """Hooks of a pass whose batch grows; `lengths` holds the source positions of the stacks that
    have run."""

    def __init__(
        self, model: Model, patches: Sequence[Patch], exit_stack: ExitStack, first_row: int
    ):
        self.lengths: dict[str, int] = {}
        # Row in the batch of each patch; before them is the clean run.
        self._rows = list(enumerate(patches, start=first_row))
        # Runs that packed states hold.
        self._encoder_run_count = first_row + sum(patch.stack == "encoder" for patch in patches)
        self._exit_stack = exit_stack
        # Open while an attention module runs whose values are changed.
        self._value_patches = exit_stack.enter_context(ExitStack())
        by_module: dict[nn.Module, list[tuple[Stack, int]]] = {}
        for stack in model.stacks.values():
            for index, layer in enumerate(stack.layers):
                by_module.setdefault(layer.module, []).append((stack, index))
        for module, blocks in by_module.items():
            self._hook_layer(module, blocks)

    def _remove_on_exit(self, handle: RemovableHandle) -> None:
        self._exit_stack.callback(handle.remove)

    def _hook_layer(self, module: nn.Module, blocks: list[tuple[Stack, int]]) -> None:
        """Let the batch grow where a layer begins, and change values where its attention runs."""
        names, first_stack = [stack.name for stack, _ in blocks], blocks[0][0]
        head_count, shared_arguments = first_stack.heads, first_stack.spec.shared
        starting_patches = [
            (row, b)
            for row, b in self._rows
            if (b.stack, b.layers.start) in {(s.name, i) for s, i in blocks}
        ]

        def grow_inputs(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords
        ) -> tuple[HookArguments, HookKeywords]:
            layer_input, kwargs = arguments_by_name(module, args, kwargs)
            hidden = unpack_states(layer_input, self._encoder_run_count)
            memory = kwargs.get("encoder_hidden_states")
            source_states = {"cross": hidden if memory is None else memory}
            self.lengths |= {name: source_states.get(name, hidden).shape[1] for name in names}
            batch_sizes = {1, len(hidden), 1 if memory is None else len(memory)}
            row_count = max(*batch_sizes, *(row + 1 for row, _ in starting_patches), 1)
            hidden = _grow_batch(hidden, row_count, batch_sizes)
            if starting_patches:
                hidden = hidden.clone()
            for row, patch in starting_patches:
                if patch.states is not None:
                    hidden[row, list(patch.positions)] = patch.states.to(hidden)
            position_bias, repeated_arguments = kwargs.get("position_bias"), {}
            if (
                isinstance(position_bias, Tensor)
                and position_bias.ndim == 3
                and "position_bias" not in shared_arguments
            ):
                # WavLM's [rows heads, T, T], the same in all rows.
                repeated_arguments["position_bias"] = position_bias[:head_count].repeat(
                    row_count, 1, 1
                )
            grown_arguments = {
                name: x if name in shared_arguments else _grow_batch(x, row_count, batch_sizes)
                for name, x in kwargs.items()
            }
            return (pack_like(layer_input, hidden),), {**grown_arguments, **repeated_arguments}

        self._remove_on_exit(module.register_forward_pre_hook(grow_inputs, with_kwargs=True))
        for stack, index in blocks:
            changes = [
                (row, patch) for row, patch in self._rows if patch.changes_values(stack.name, index)
            ]
            if changes:
                self._hook_attention(stack.layers[index].attention, index, stack.heads, changes)
            if stack.name == "cross":
                share_projections(stack.layers[index], self._exit_stack)

    def _hook_attention(
        self, attention: AttentionModules, layer: int, heads: int, changes: list[tuple[int, Patch]]
    ) -> None:
        def start_patching(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            states = arguments_by_name(module, args, kwargs)[0]
            states_by_run = unpack_states(states, self._encoder_run_count)
            patched_heads = heads if attention.needs_eager else None
            packed_length = states_by_run.shape[1] if states.ndim == 2 else 0
            self._value_patches.enter_context(
                PatchedValues(
                    layer, changes, len(states_by_run), patched_heads, packed_length=packed_length
                )
            )

        def stop_patching(*_: object) -> None:
            self._value_patches.close()

        self._remove_on_exit(
            attention.module.register_forward_pre_hook(start_patching, with_kwargs=True)
        )
        self._remove_on_exit(attention.module.register_forward_hook(stop_patching))


def _grow_batch(value: ModelOutput, row_count: int, batch_sizes: set[int]) -> ModelOutput:
    """Grow a batch (of one of these sizes) to `row_count` rows by repeating its first row, the clean
    run's."""
    if (
        not isinstance(value, Tensor)
        or value.ndim < 2
        or len(value) == row_count
        or len(value) not in batch_sizes
    ):
        return value
    clean_rows = value[:1].expand(
        row_count if len(value) == 1 else row_count - len(value), *value.shape[1:]
    )
    return clean_rows if len(value) == 1 else torch.cat([value, clean_rows])
